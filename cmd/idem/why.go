package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"example.com/idempotency"
	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/store"
)

func (a *app) why() *cobra.Command {
	cmd := &cobra.Command{
		Use: "why RECORD", Args: cobra.ExactArgs(1),
		Short: "Tell what happened to a key, and what each decision would do",
	}
	ttl := ttlFlag(cmd)
	cmd.RunE = a.on(func(ctx context.Context, s *source, args []string) error {
		r, err := lookInto(ctx, s, args[0], *ttl)
		if err != nil {
			return err
		}
		a.tell(r.Story(ctx), r.Info)
		return nil
	})
	return cmd
}

func (a *app) tell(t inspect.Story, i idempotency.RecordInfo) {
	list := a.list()
	if a.format == asJSON {
		list.add(t)
		return
	}
	list.add(t, "record", t.Record.Record)
	list.add(t, "route", inspect.Names([]string{t.Record.Route}))
	state := t.Record.State
	if i.State != store.Corrupt {
		state += fmt.Sprintf(", last change %s ago", inspect.Span(i.Age))
	}
	list.add(t, "state", state)
	for _, e := range t.Events() {
		if d := e.Decided; d != nil {
			list.add(t, fmt.Sprintf("decided %d", d.Attempt), d.At+" "+d.String()+" ("+d.ID+")")
		} else {
			list.add(t, fmt.Sprintf("attempt %d", e.Run.Attempt), strings.TrimSpace("began "+e.Run.Started+" "+e.Run.Trace))
		}
	}
	list.add(t, "recorded", inspect.Names(i.Steps))
	list.add(t, "in doubt", inspect.Names(i.InDoubt))
	list.add(t, "seen", t.Record.Seen)
	list.end("\n" + t.Happened)
	for _, d := range t.Decisions {
		fmt.Fprintf(a.out, "\n%s\n    %s\n", d.Decision, plain(d.Says))
	}
	if len(t.Decisions) > 0 {
		fmt.Fprintf(a.out, "\nTo decide, with what you have just seen:\n    idem resolve %s DECISION --seen %s --reason TEXT\n", i.Record, t.Record.Seen)
	}
}
