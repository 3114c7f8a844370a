package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.com/idempotency/internal/inspect"
)

func (a *app) why() *cobra.Command {
	cmd := &cobra.Command{
		Use: "why RECORD", Args: cobra.ExactArgs(1),
		Short: "Tell what happened to a key, and what each decision would do",
	}
	a.target.ttlFlag(cmd.Flags())
	answer := cmd.Flags().Bool("answer", false, "with --server: show the recorded answer instead")
	ask := cmd.Flags().Bool("ask", false, "with --server: ask the resolver of the route instead, and settle nothing")
	unasked := cmd.Flags().Bool("no-ask", false, "with --server: tell the story without what the resolver of the route says now")
	cmd.MarkFlagsMutuallyExclusive("answer", "ask", "no-ask")
	cmd.RunE = a.on(func(ctx context.Context, d desk, args []string) error {
		record, err := named(args[0])
		if err != nil {
			return err
		}
		switch {
		case *answer:
			shown, err := d.Answer(ctx, record)
			if err == nil {
				a.show(shown)
			}
			return err
		case *ask:
			word, err := d.Ask(ctx, record)
			if err == nil {
				a.say(word)
			}
			return err
		}
		t, err := d.Why(ctx, record)
		if err != nil {
			return err
		}
		if t.CanAsk && !*unasked {
			t.Word = wordFrom(ctx, d, record)
		}
		a.tell(t)
		return nil
	})
	return cmd
}

// wordFrom has the resolver asked. The story is told, too, if that fails.
func wordFrom(ctx context.Context, d desk, record string) *inspect.Word {
	word, err := d.Ask(ctx, record)
	if err != nil {
		word = inspect.Word{Type: "word", Record: record, Decision: "unknown", Reason: "it could not be asked: " + err.Error()}
	}
	return &word
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
		state += ", last change " + a.since(a.after(-r.Age))
	}
	list.add(t, "state", state)
	for _, e := range t.Events() {
		switch d, held := e.Decided, e.Hold; {
		case d != nil:
			list.add(t, fmt.Sprintf("decided %d", d.Attempt), a.since(d.At)+": "+d.String()+" ("+d.ID+")")
		case held != nil && held.Held == "":
			list.add(t, fmt.Sprintf("held %d", held.Attempt), "when its lease had ended: "+causeOf(held.Cause, held.Answered))
		case held != nil:
			list.add(t, fmt.Sprintf("held %d", held.Attempt), a.since(held.Held)+": "+causeOf(held.Cause, held.Answered))
		default:
			list.add(t, fmt.Sprintf("attempt %d", e.Run.Attempt), strings.TrimSpace("began "+a.since(e.Run.Started)+" "+e.Run.Trace))
		}
	}
	list.add(t, "recorded", inspect.Names(r.Steps))
	list.add(t, "in doubt", inspect.Names(r.InDoubt))
	if len(r.Unread) > 0 {
		list.add(t, "unread", inspect.Names(r.Unread)+": sealed, or of a later version; a service with the key can tell (--server)")
	}
	if r.Lease > 0 {
		list.add(t, "lease ends", "in "+span(r.Lease)+" ("+a.after(r.Lease)+")")
	}
	if r.Ends != nil {
		list.add(t, "ends", "in "+span(*r.Ends)+" ("+a.after(*r.Ends)+")")
	}
	list.add(t, "seen", r.Seen)
	list.end("\n" + plain(t.Happened))
	if t.Word != nil {
		fmt.Fprintf(a.out, "\n%s\n", plain(t.Word.String()))
	}
	for _, d := range t.Decisions {
		fmt.Fprintf(a.out, "\n%s\n    %s\n", plain(d.Decision), plain(d.Says))
	}
	if slices.ContainsFunc(t.Decisions, func(d inspect.Decision) bool { return d.Allowed }) {
		fmt.Fprintf(a.out, "\nTo decide, with what you have just seen:\n    idem resolve %s DECISION --seen %s --reason TEXT\n", plain(r.Record), plain(r.Seen))
	}
}

// after returns the time so many seconds after now, as logs write it.
func (a *app) after(seconds int64) string {
	return a.now().Add(time.Duration(seconds) * time.Second).UTC().Format(time.RFC3339)
}

// since tells a time for people, and as logs write it.
func (a *app) since(at string) string {
	t, err := time.Parse(time.RFC3339, at)
	if err != nil {
		return at
	}
	return inspect.Span(max(0, a.now().Sub(t))) + " ago (" + at + ")"
}

// show shows a recorded answer.
func (a *app) show(s inspect.ShownAnswer) {
	list := a.list()
	if a.format == asJSON {
		list.add(s)
		return
	}
	list.add(s, "record", s.Record)
	list.add(s, "kind", s.Kind)
	if s.Status != 0 {
		list.add(s, "status", number(s.Status))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Header)) {
		list.add(s, name, strings.Join(s.Header[name], ", "))
	}
	list.add(s, "bytes", number(s.Bytes))
	list.end("")
	for line := range strings.Lines("\n" + s.Body) {
		fmt.Fprintln(a.out, inspect.Visible(strings.TrimRight(line, "\r\n")))
	}
	if s.Note != "" {
		fmt.Fprintln(a.out, plain(s.Note))
	}
}

// say tells what a resolver says.
func (a *app) say(w inspect.Word) {
	list := a.list()
	if a.format == asJSON {
		list.add(w)
		return
	}
	list.add(w, "record", w.Record)
	list.add(w, "its resolver says", w.Decision)
	if w.Answer != nil {
		list.add(w, "with the answer", w.Answer.String())
	}
	list.add(w, "reason", inspect.Names([]string{w.Reason}))
	list.end("Nothing was decided.")
}
