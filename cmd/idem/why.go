package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/store"
)

// An attempt is one run of a record.
type attempt struct {
	Attempt int    `json:"attempt"`
	Started string `json:"started" jsonschema:"by the clock of its process"`
	Trace   string `json:"trace,omitempty" jsonschema:"its span, as W3C traceparent"`
}

// A story is what happened to a record, and what may be decided.
type story struct {
	Type      string     `json:"type"`
	Record    record     `json:"record"`
	Runs      []attempt  `json:"runs" jsonschema:"the last runs, oldest first, 16 at most"`
	Happened  string     `json:"happened" jsonschema:"what happened, in sentences"`
	Decisions []decision `json:"decisions" jsonschema:"what each decision would do; none if there is nothing to decide"`
}

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
		t := story{Type: "why", Record: recordOf(r.info), Runs: []attempt{}, Happened: happened(r.info), Decisions: []decision{}}
		for _, run := range r.info.Runs {
			at := attempt{Attempt: run.Attempt, Started: run.Started.UTC().Format(time.RFC3339)}
			if run.Trace != (event.TraceContext{}) {
				at.Trace = run.Trace.String()
			}
			t.Runs = append(t.Runs, at)
		}
		for _, word := range order {
			if r.info.State != store.Held {
				break
			}
			d := decision{Type: "decision", Record: r.info.Record, Decision: word, DryRun: true, Seen: t.Record.Seen}
			if says, err := r.of(ctx, word, r.info.Seen(), idempotency.Resolution{}); err == nil {
				d.Allowed, d.Says = true, says
			} else {
				d.Says = "Refused: " + err.Error()
			}
			t.Decisions = append(t.Decisions, d)
		}
		a.tell(t, r.info)
		return nil
	})
	return cmd
}

func (a *app) tell(t story, i idempotency.RecordInfo) {
	list := a.list()
	if a.format == asJSON {
		list.add(t)
		return
	}
	list.add(t, "record", t.Record.Record)
	list.add(t, "route", names([]string{t.Record.Route}))
	state := t.Record.State
	if i.State != store.Corrupt {
		state += fmt.Sprintf(", last change %s ago", span(i.Age))
	}
	list.add(t, "state", state)
	for _, run := range t.Runs {
		list.add(t, fmt.Sprintf("attempt %d", run.Attempt), strings.TrimSpace("began "+run.Started+" "+run.Trace))
	}
	list.add(t, "recorded", names(i.Steps))
	list.add(t, "in doubt", names(i.InDoubt))
	list.add(t, "seen", t.Record.Seen)
	list.end("\n" + t.Happened)
	for _, d := range t.Decisions {
		fmt.Fprintf(a.out, "\n%s\n    %s\n", d.Decision, plain(d.Says))
	}
	if len(t.Decisions) > 0 {
		fmt.Fprintf(a.out, "\nTo decide, with what you have just seen:\n    idem resolve %s DECISION --seen %s --reason TEXT\n", i.Record, t.Record.Seen)
	}
}

// happened tells in sentences what happened to a record.
func happened(i idempotency.RecordInfo) string {
	switch stateOf(i) {
	case "claimed":
		return fmt.Sprintf("Attempt %d is running. Its lease lasts for another %s, and its process renews it. Retries get 409 in-flight, or wait. There is nothing to decide.",
			i.Attempt, span(i.Lease))
	case "lapsed":
		return fmt.Sprintf("The lease of attempt %d has ended: its process has died, stands still, or cannot reach the store. "+
			"The next request runs as attempt %d, unless its route says Hold: then the key is held. There is nothing to decide.", i.Attempt, i.Attempt+1)
	case "released":
		says := fmt.Sprintf("Nothing runs, and no answer is recorded. The next request runs as attempt %d.", i.Attempt+1)
		if len(i.Steps) > 0 {
			says += fmt.Sprintf(" It takes the recorded result of %s.", quoted(i.Steps))
		}
		if len(i.InDoubt) > 0 {
			says += fmt.Sprintf(" It finds %s in doubt, and the key is held then, unless its handler knows what has happened.", quoted(i.InDoubt))
		}
		return says + " There is nothing to decide."
	case "completed":
		return fmt.Sprintf("The answer is recorded%s. Every retry gets it%s, and nothing runs.", withStatus(i.Status), until(i.TTL))
	case "held":
		return fmt.Sprintf("Nobody knows whether attempt %d has had its effect: it ended without a definite answer, or its process died, hung or lost the store. "+
			"Retries get 409 outcome-unknown, and nothing runs until somebody decides%s.", i.Attempt, ending(i.TTL))
	default:
		return "The record cannot be read. After a deployment, another version can probably read it: roll back, and forget nothing. " +
			"Otherwise it is damaged. Requests with the key get 500 or 503, and nothing runs. Find out from your own data whether the effect has happened, before you forget it."
	}
}

func withStatus(status int) string {
	if status == 0 {
		return ""
	}
	return fmt.Sprintf(", with status %d", status)
}

func until(ttl time.Duration) string {
	if ttl == store.Forever {
		return ""
	}
	return " for another " + span(ttl)
}

func ending(ttl time.Duration) string {
	if ttl == store.Forever {
		return ""
	}
	return fmt.Sprintf(", or until the hold ends in %s: then the next request runs as the first", span(ttl))
}
