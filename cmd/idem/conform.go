package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.com/idempotency/cmd/idem/internal/conform"
	"example.com/idempotency/cmd/idem/internal/conform/report"
)

// conformity is what the flags of idem conform say.
type conformity struct {
	conform.Config
	name, restart, bodyFile string
	header                  []string
	from                    []string
}

func (a *app) conform() *cobra.Command {
	var c conformity
	cmd := &cobra.Command{
		Use: "conform URL", Args: cobra.MaximumNArgs(1),
		Short: "Test whether a server keeps what is said about idempotency keys",
		Long: `conform sends a request to a server in many ways: again, with another body, several at once, over
connections that break. It compares what comes back with a profile, and says of each check that fails
what was sent, what came, what was expected, and who says so.

It makes real effects: use a test system. It sends nothing to a host that the command line does not
name, and follows no redirect. It needs none of the flags of a store.

Exit codes: 0 every MUST that was tried holds, 1 a MUST fails or nothing could be tried, 2 wrong usage,
6 the server cannot be reached.`,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if !slices.Contains(report.Formats(), a.format) {
				return fmt.Errorf("-o is %q, and must be one of %s", a.format, strings.Join(report.Formats(), ", "))
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Profile, "profile", "ietf-07", "whose rules: "+conform.Names())
	f.StringVar(&c.name, "name", "", "what the server is called in a matrix")
	f.StringArrayVar(&c.from, "from", nil, "a file with a report in JSON: print it, and send nothing; several make a matrix")
	f.StringVar(&c.Template.Method, "method", http.MethodPost, "the method of the request")
	f.StringArrayVar(&c.header, "header", nil, `a field of the request, "Name: value"`)
	f.StringVar(&c.Template.Body, "body", "", "the body; "+conform.Unique+" in it becomes a number, another one for each request")
	f.StringVar(&c.bodyFile, "body-file", "", "a file with the body")
	f.StringVar(&c.KeyHeader, "key-header", "", "the field of the key, if it is not the one of the profile")
	f.StringVar(&c.Policy, "policy", "", "the URL of the published policy, if refusals do not link to it")
	f.StringVar(&c.Effects.URL, "effects", "", "count effects by a counter that this URL shows")
	f.StringVar(&c.Effects.Pointer, "pointer", "", "--effects: the JSON pointer that leads to the counter, such as /count")
	f.StringVar(&c.Effects.Sink, "sink", "", "count effects by listening at this address: the server calls it for each one")
	f.StringVar(&c.Effects.ID, "id", "", "count effects by the distinct values of this JSON pointer in answers, such as /id")
	f.StringVar(&c.Credential, "credential", "", `the field of a second caller, "Authorization: Bearer …"`)
	f.StringVar(&c.OtherPath, "other-path", "", "the path of a second route that takes the same request")
	f.StringVar(&c.restart, "restart-cmd", "", "a command of the shell that kills the server and starts it again")
	f.DurationVar(&c.TTL, "ttl", 0, "how long the server keeps a key; the test waits that long")
	f.DurationVar(&c.Late, "late", 4*time.Second, "how long after its answer an effect may come; the test waits that long a few times")
	f.IntVar(&c.AtOnce, "at-once", 10, "how many requests are sent at once")
	f.IntVar(&c.MaxRequests, "max-requests", 1000, "how many requests are sent at most")
	f.Float64Var(&c.Rate, "rate", 50, "how many requests are sent in a second, on average")
	f.DurationVar(&c.Timeout, "timeout", 30*time.Second, "how long an answer may take")
	f.DurationVar(&c.Patience, "patience", 10*time.Second, "for how long a request is sent again that is refused for now")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		a.began = true
		reports, err := c.reports(cmd.Context(), args, a.errOut)
		switch {
		case errors.Is(err, conform.ErrConfig):
			return usage("%w", err)
		case err != nil:
			return err
		}
		if err := report.Print(a.out, a.format, reports...); err != nil {
			return err
		}
		return judged(reports)
	}
	return cmd
}

// reports tests a server, or reads what was found before.
func (c *conformity) reports(ctx context.Context, args []string, errOut io.Writer) ([]*report.Report, error) {
	if (len(args) == 0) == (len(c.from) == 0) {
		return nil, usage("give either the URL of a server, or reports by --from")
	}
	if len(args) == 0 {
		return readReports(c.from)
	}
	c.Template.URL, c.Template.Header = args[0], http.Header{}
	for _, line := range c.header {
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return nil, usage("--header is %q, and must be like X-Tenant: acme", line)
		}
		c.Template.Header.Add(name, strings.TrimSpace(value))
	}
	if c.bodyFile != "" {
		text, err := os.ReadFile(c.bodyFile)
		if err != nil {
			return nil, usage("--body-file: %w", err)
		}
		c.Template.Body = string(text)
	}
	if c.restart != "" {
		c.Restart = func(ctx context.Context) error {
			cmd := exec.CommandContext(ctx, "sh", "-c", c.restart)
			cmd.Stdout, cmd.Stderr = errOut, errOut
			return cmd.Run()
		}
	}
	r, err := conform.Run(ctx, c.Config)
	if err != nil {
		return nil, err
	}
	r.Name = c.name
	return []*report.Report{r}, nil
}

func readReports(files []string) (all []*report.Report, err error) {
	for _, file := range files {
		in, err := os.Open(file)
		if err != nil {
			return nil, usage("--from: %w", err)
		}
		reports, err := report.Read(in)
		_ = in.Close()
		if err != nil {
			return nil, usage("--from %s: %w", file, err)
		}
		all = append(all, reports...)
	}
	return all, nil
}

// judged returns an error if a MUST fails, or if nothing could be tried.
func judged(reports []*report.Report) error {
	for _, r := range reports {
		if r.Findings[0].Result != report.Holds {
			return fmt.Errorf("nothing could be tried: %s %s does not answer the first request with success. See --header, --body and --key-header", r.Method, r.Target)
		}
		if n := r.Count(report.Must, report.Fails); n > 0 {
			return fmt.Errorf("%s %s: %d MUST of profile %s fail", r.Method, r.Target, n, r.Profile)
		}
	}
	return nil
}
