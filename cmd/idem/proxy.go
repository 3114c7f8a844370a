package main

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"example.com/idempotency/cmd/idem/internal/proxy"
)

func (a *app) proxy() *cobra.Command {
	var file, check string
	cmd := &cobra.Command{
		Use: "proxy --to URL", Args: cobra.NoArgs,
		Short: "Protect a service in any language: a reverse proxy that runs each key once",
		Long: `idem proxy passes requests on to a service, and protects those with an Idempotency-Key: a retry gets
the first answer back. POST and PATCH are protected; everything else passes. The service need not know of it.

Whose a key is says --scope: by default the Authorization field, which must be there. A caller whose token
changes between two tries needs jwt:sub, or header:NAME if a gateway in front sets and cleans that field.
Records are in memory, and gone with the process, unless --redis, --postgres or --sqlite names a store.

SIGTERM ends it when the requests under way have their answers.`,
		Example: `  idem proxy --to http://127.0.0.1:3000 --sqlite records.db
  idem proxy --to h2c://127.0.0.1:3000 --redis redis://127.0.0.1/0 --scope jwt:sub --jwks keys.json
  idem proxy --check proxy.yaml`,
	}
	said := proxy.Default()
	said.Flags(cmd.Flags())
	cmd.Flags().StringVar(&file, "config", "", "file with settings and routes, in YAML; flags count before it")
	cmd.Flags().StringVar(&check, "check", "", "only check such a file, and print what it protects")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		a.began = true
		if a.target.server != "" {
			return usage("proxy runs requests itself, and --server is not for it: name a store, by --redis, --postgres or --sqlite")
		}
		c := proxy.Default()
		if name := cmp.Or(check, file); name != "" {
			if err := c.Read(name); err != nil {
				return usage("%w", err)
			}
		}
		if err := a.flagsOver(&c, cmd.Flags()); err != nil {
			return err
		}
		if err := c.Check(); err != nil {
			return usage("%w", err)
		}
		if check != "" {
			return c.Print(a.out)
		}
		return proxy.Run(cmd.Context(), c, a.errOut)
	}
	return cmd
}

// flagsOver sets what the flags say, and what the environment says of a store that nobody has named.
func (a *app) flagsOver(c *proxy.Config, given *pflag.FlagSet) error {
	over := pflag.NewFlagSet("", pflag.ContinueOnError)
	c.Flags(over)
	for name, setting := range map[string]*string{
		"redis": &c.Store.Redis, "prefix": &c.Store.Prefix, "postgres": &c.Store.Postgres, "table": &c.Store.Table, "sqlite": &c.Store.SQLite,
	} {
		over.StringVar(setting, name, *setting, "")
	}
	var err error
	given.Visit(func(f *pflag.Flag) {
		if over.Lookup(f.Name) != nil && err == nil {
			err = over.Set(f.Name, f.Value.String())
		}
	})
	if s := &c.Store; err == nil && s.Redis == "" && s.Postgres == "" && s.SQLite == "" {
		s.Redis, s.Postgres, s.SQLite = a.env("IDEM_REDIS"), a.env("IDEM_POSTGRES"), a.env("IDEM_SQLITE")
	}
	if err != nil {
		return fmt.Errorf("flags: %w", err)
	}
	return nil
}
