package main

import (
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/store"
)

// A record is what idem tells of a record.
type record struct {
	Type    string   `json:"type"`
	Record  string   `json:"record" jsonschema:"the name of the record in the store"`
	Route   string   `json:"route" jsonschema:"of its last run; empty if it is not known"`
	State   string   `json:"state" jsonschema:"claimed, lapsed, released, completed, held or corrupt"`
	Cause   string   `json:"cause,omitempty" jsonschema:"why it is held: step-in-doubt if a step may have happened, or outcome-unknown"`
	Attempt int      `json:"attempt" jsonschema:"the number of its last run"`
	Age     int64    `json:"age_seconds" jsonschema:"since it was last claimed, renewed, completed, released or held"`
	Ends    *int64   `json:"ends_in_seconds,omitempty" jsonschema:"when the record and its hold end; absent if they have no end of their own"`
	Lease   int64    `json:"lease_seconds,omitempty" jsonschema:"how long a run in flight is protected from takeover"`
	Steps   []string `json:"steps" jsonschema:"those that have a recorded result"`
	InDoubt []string `json:"in_doubt" jsonschema:"steps that may have happened, or that are sealed and cannot be read here"`
	Status  int      `json:"status,omitempty" jsonschema:"that of the recorded answer"`
	Started string   `json:"started,omitempty" jsonschema:"when the last run claimed the key, by the clock of its process"`
	Trace   string   `json:"trace,omitempty" jsonschema:"the span of the last run, as W3C traceparent"`
	Seen    string   `json:"seen" jsonschema:"what a decision takes as --seen"`
}

func recordOf(i idempotency.RecordInfo) record {
	r := record{
		Type: "record", Record: i.Record, Route: i.Route, State: stateOf(i), Attempt: i.Attempt, Age: int64(i.Age / time.Second),
		Steps: append([]string{}, i.Steps...), InDoubt: append([]string{}, i.InDoubt...), Status: i.Status, Seen: i.Seen().String(),
		Lease: max(0, int64(i.Lease/time.Second)),
	}
	switch {
	case i.State != store.Held:
	case len(i.InDoubt) > 0:
		r.Cause = "step-in-doubt"
	default:
		r.Cause = "outcome-unknown"
	}
	if i.TTL != store.Forever && i.State != store.Corrupt {
		ends := int64(i.TTL / time.Second)
		r.Ends = &ends
	}
	if !i.Started.IsZero() {
		r.Started = i.Started.UTC().Format(time.RFC3339)
	}
	if i.Trace != (event.TraceContext{}) {
		r.Trace = i.Trace.String()
	}
	return r
}

var recordHead = []string{"RECORD", "ROUTE", "STATE", "CAUSE", "ATTEMPT", "AGE", "RECORDED", "IN DOUBT", "ENDS"}

// cells are the row of a record under recordHead.
func cells(i idempotency.RecordInfo) []string {
	r, ends := recordOf(i), "never"
	if r.Ends != nil {
		ends = "in " + span(i.TTL)
	}
	return []string{
		r.Record, names([]string{r.Route}), r.State, names([]string{r.Cause}), number(r.Attempt), span(i.Age),
		names(r.Steps), names(r.InDoubt), ends,
	}
}

// stateOf names the state of a record. A lapsed claim is one whose lease has ended.
func stateOf(i idempotency.RecordInfo) string {
	if i.State == store.Claimed && i.Lease <= 0 {
		return "lapsed"
	}
	return i.State.String()
}

// guard returns a guard that looks at the records of a store and decides about them.
func guard(st store.Store, opts ...idempotency.Option) (*idempotency.Guard, error) {
	opts = append(opts, idempotency.WithLogger(slog.New(slog.DiscardHandler)))
	return idempotency.New(st, idempotency.SharedScope, opts...)
}

// look returns what is known of a key. A record that cannot be read is in the state corrupt.
func look(ctx context.Context, g *idempotency.Guard, k idempotency.Key) (idempotency.RecordInfo, error) {
	info, err := g.Lookup(ctx, k)
	switch {
	case errors.Is(err, idempotency.ErrCorrupt):
		err = nil
	case errors.Is(err, store.ErrNotFound):
		err = &refusal{"there is no such record: it has ended or was forgotten, or the store, its prefix or its table is another one", err}
	}
	return info, err
}

// named returns the key of the record with a name.
func named(name string) (idempotency.Key, error) {
	if sum, err := base64.RawURLEncoding.Strict().DecodeString(name); err != nil || len(sum) != 32 || len(name) != 43 {
		return idempotency.Key{}, usage("%q is not the name of a record, which has 43 characters of base64url; idem find has it for a key of a client", name)
	}
	return idempotency.Key{Record: name}, nil
}
