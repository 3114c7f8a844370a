package main

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// run is the program without its process. It returns the exit code.
func run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer, env func(string) string) int {
	a := &app{in: in, out: out, errOut: errOut, env: env, now: time.Now}
	return a.execute(ctx, args)
}

func (a *app) execute(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(withRecords(args))
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.errOut)
	err := root.ExecuteContext(ctx)
	if err != nil && !a.began {
		err = usage("%w", err)
		a.findFormat(args)
	}
	if err != nil {
		a.complain(err)
	}
	return codeOf(err)
}

// dashed are the names of records that begin like a flag: one of 64 does.
var dashed = regexp.MustCompile(`^-[A-Za-z0-9_-]{42}$`)

// withRecords returns arguments in which the name of a record is not taken for a flag.
func withRecords(args []string) []string {
	args = slices.Clone(args)
	for i, arg := range args {
		if dashed.MatchString(arg) {
			args[i] = " " + arg
		}
	}
	return args
}

// findFormat finds -o among arguments of which one is wrong: the flags after that one have not been read.
func (a *app) findFormat(args []string) {
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.ParseErrorsAllowlist.UnknownFlags = true
	f.StringVarP(&a.format, "output", "o", a.format, "")
	f.Usage = func() {}
	_ = f.Parse(args)
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "idem",
		Short: "See which idempotency keys wait for a decision, find out why, and decide",
		Long: `idem looks into the store of a service that uses package idempotency, or asks the service.

Name the store by one of --redis, --postgres and --sqlite, or by one of the variables IDEM_REDIS,
IDEM_POSTGRES and IDEM_SQLITE, so that no password stands in the arguments. Or name the console of the
service by --server or IDEM_SERVER, with credentials in IDEM_SERVER_HEADER: it also decides about sealed
routes, shows answers and asks resolvers.

Exit codes: 0 done, 1 error or refused, 2 wrong usage, 3 no such record, 4 the record has changed
meanwhile, 5 the doctor has found a fault, 6 the store or the service cannot be reached, or its
file or database is not there.`,
		SilenceUsage: true, SilenceErrors: true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if a.format != asTable && a.format != asJSON {
				return fmt.Errorf("-o is %q, and must be %s or %s", a.format, asTable, asJSON)
			}
			return nil
		},
	}
	root.PersistentFlags().StringVarP(&a.format, "output", "o", asTable, "table for people, or json: one object a line")
	a.target.flags(root.PersistentFlags())
	root.AddCommand(a.held(), a.running(), a.why(), a.find(), a.resolve(), a.forget(), a.erase(), a.stats(), a.watch(), a.doctor(), a.proxy(), a.conform())
	return root
}
