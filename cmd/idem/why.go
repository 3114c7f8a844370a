package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"example.com/idempotency/internal/inspect"
)

func (a *app) why() *cobra.Command {
	cmd := &cobra.Command{
		Use: "why RECORD", Args: cobra.ExactArgs(1),
		Short: "Tell what happened to a key, and what each decision would do",
	}
	a.target.ttlFlag(cmd.Flags())
	cmd.RunE = a.on(func(ctx context.Context, d desk, args []string) error {
		record, err := named(args[0])
		if err != nil {
			return err
		}
		t, err := d.Why(ctx, record)
		if err != nil {
			return err
		}
		a.tell(t)
		return nil
	})
	return cmd
}

func (a *app) tell(t inspect.Story) {
	list, r := a.list(), t.Record
	if a.format == asJSON {
		list.add(t)
		return
	}
	list.add(t, "record", r.Record)
	list.add(t, "route", inspect.Names([]string{r.Route}))
	state := r.State
	if state != "corrupt" {
		state += fmt.Sprintf(", last change %s ago", span(r.Age))
	}
	list.add(t, "state", state)
	for _, e := range t.Events() {
		if d := e.Decided; d != nil {
			list.add(t, fmt.Sprintf("decided %d", d.Attempt), d.At+" "+d.String()+" ("+d.ID+")")
		} else {
			list.add(t, fmt.Sprintf("attempt %d", e.Run.Attempt), strings.TrimSpace("began "+e.Run.Started+" "+e.Run.Trace))
		}
	}
	list.add(t, "recorded", inspect.Names(r.Steps))
	list.add(t, "in doubt", inspect.Names(r.InDoubt))
	list.add(t, "seen", r.Seen)
	list.end("\n" + plain(t.Happened))
	for _, d := range t.Decisions {
		fmt.Fprintf(a.out, "\n%s\n    %s\n", plain(d.Decision), plain(d.Says))
	}
	if len(t.Decisions) > 0 {
		fmt.Fprintf(a.out, "\nTo decide, with what you have just seen:\n    idem resolve %s DECISION --seen %s --reason TEXT\n", plain(r.Record), plain(r.Seen))
	}
}
