package inspect

import (
	"context"
	"fmt"
	"slices"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/store"
)

// An Attempt is one run of a record.
type Attempt struct {
	Attempt int    `json:"attempt"`
	Started string `json:"started" jsonschema:"by the clock of its process"`
	Trace   string `json:"trace,omitempty" jsonschema:"its span, as W3C traceparent"`
	// What follows is of a run that has left its key held.
	Cause    string `json:"cause,omitempty" jsonschema:"why it has left its key held, as that of the record; absent if it has not, or does not say"`
	Held     string `json:"held,omitempty" jsonschema:"when it did, by the clock of its process"`
	Answered int    `json:"answered,omitempty" jsonschema:"the status with which it ended then"`
}

// A Story is what happened to a record, and what may be decided.
type Story struct {
	Type      string     `json:"type"`
	Record    Record     `json:"record"`
	Runs      []Attempt  `json:"runs" jsonschema:"the last runs, oldest first, 16 at most"`
	Happened  string     `json:"happened" jsonschema:"what happened, in sentences"`
	Before    *Forgotten `json:"before,omitempty" jsonschema:"an earlier record of the key, if somebody has removed it and that is still known"`
	Decisions []Decision `json:"decisions" jsonschema:"what each decision would do; none if there is nothing to decide"`
	CanAsk    bool       `json:"can_ask,omitempty" jsonschema:"you may have the resolver of the route asked, by decision=ask"`
	Word      *Word      `json:"resolver,omitempty" jsonschema:"what the resolver of the route says now; idem has it asked"`
}

// Story tells what happened to the record, and what each decision would do.
func (r *Ruling) Story(ctx context.Context) Story {
	t := Story{Type: "why", Record: RecordOf(r.Info), Runs: []Attempt{}, Happened: happened(r.Info), Decisions: []Decision{}}
	for _, run := range r.Info.Runs {
		at := Attempt{
			Attempt: run.Attempt, Started: run.Started.UTC().Format(time.RFC3339),
			Cause: string(run.Cause), Held: moment(run.Held), Answered: run.Status,
		}
		if run.Trace != (event.TraceContext{}) {
			at.Trace = run.Trace.String()
		}
		if at.Cause != "" && run.Attempt == r.Info.Attempt && r.Info.State == store.Held {
			at.Cause = t.Record.Cause // what its steps say
		}
		t.Runs = append(t.Runs, at)
	}
	if r.Info.Forgotten != nil {
		before, says := forgottenOf(r.Info.Forgotten)
		t.Before = &before
		t.Happened += " There was an earlier record of this key: " + says + "."
	}
	if r.Info.State != store.Held {
		return t
	}
	for _, word := range order {
		d := Decision{Type: "decision", Record: r.Info.Record, Decision: word, DryRun: true, Seen: t.Record.Seen}
		if says, err := r.Of(Rehearse(ctx), word, r.Info.Seen(), idempotency.Resolution{}); err == nil {
			d.Allowed, d.Says = true, says
		} else {
			d.Says = "Refused: " + err.Error()
		}
		t.Decisions = append(t.Decisions, d)
	}
	return t
}

// An Event of a story is a run, that it has left its key held, or a decision about it.
type Event struct {
	Run, Hold *Attempt
	Decided   *Made
}

// Events are the runs, holds and decisions, each behind the run that it is about.
func (t *Story) Events() (all []Event) {
	for i := range t.Runs {
		run := &t.Runs[i]
		all = append(all, Event{Run: run})
		if run.Cause != "" || run.Held != "" {
			all = append(all, Event{Hold: run})
		}
	}
	for i := range t.Record.Decided {
		d := &t.Record.Decided[i]
		at := slices.IndexFunc(all, func(e Event) bool { return e.attempt() > d.Attempt })
		if at < 0 {
			at = len(all)
		}
		all = slices.Insert(all, at, Event{Decided: d})
	}
	return all
}

func (e Event) attempt() int {
	switch {
	case e.Run != nil:
		return e.Run.Attempt
	case e.Hold != nil:
		return e.Hold.Attempt
	}
	return e.Decided.Attempt
}

// happened tells in sentences what happened to a record.
func happened(i idempotency.RecordInfo) string {
	switch StateOf(i) {
	case "claimed":
		says := fmt.Sprintf("Attempt %d is running", i.Attempt)
		if !i.Started.IsZero() {
			says = fmt.Sprintf("Attempt %d has been running for %s", i.Attempt, Span(max(0, time.Since(i.Started))))
		}
		return says + fmt.Sprintf(". Its lease lasts for another %s, and its process renews it. Retries get 409 in-flight, or wait. There is nothing to decide.", Span(i.Lease))
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
		return fmt.Sprintf("Nobody knows whether attempt %d has had its effect: %s. "+
			"Retries get 409 outcome-unknown, and nothing runs until somebody decides%s.", i.Attempt, reason(i), ending(i.TTL))
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
	return " for another " + Span(ttl)
}

func ending(ttl time.Duration) string {
	if ttl == store.Forever {
		return ""
	}
	return fmt.Sprintf(", or until the hold ends in %s: then the next request runs as the first", Span(ttl))
}
