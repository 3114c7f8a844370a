// Package inspect tells operators, by the command line and in the browser, what is known of a record, what
// happened to it, and what each decision about it would do. What it returns is what idem -o json prints.
package inspect

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/store"
)

// A Record is what is told of a record.
type Record struct {
	Type     string   `json:"type"`
	Record   string   `json:"record" jsonschema:"the name of the record in the store"`
	Route    string   `json:"route" jsonschema:"of its last run; empty if it is not known"`
	State    string   `json:"state" jsonschema:"claimed, lapsed, released, completed, held or corrupt"`
	Cause    string   `json:"cause,omitempty" jsonschema:"why it is held: step-in-doubt if a step may have happened; otherwise as in the event: outcome-unknown, panic, last-attempt, commit-in-doubt, not-recorded, record-forgotten, said-unknown, or lapsed if its run has not said why"`
	Held     string   `json:"held,omitempty" jsonschema:"when its run has left it held, by the clock of its process; absent if the run has not said so"`
	Answered int      `json:"answered,omitempty" jsonschema:"the status with which that run ended, which does not tell what has happened"`
	Attempt  int      `json:"attempt" jsonschema:"the number of its last run"`
	Age      int64    `json:"age_seconds" jsonschema:"since it was last claimed, renewed, completed, released or held"`
	Ends     *int64   `json:"ends_in_seconds,omitempty" jsonschema:"when the record and its hold end; absent if they have no end of their own"`
	Lease    int64    `json:"lease_seconds,omitempty" jsonschema:"how long a run in flight is protected from takeover"`
	Steps    []string `json:"steps" jsonschema:"those that have a recorded result"`
	InDoubt  []string `json:"in_doubt" jsonschema:"steps that may have happened"`
	Unread   []string `json:"unread,omitempty" jsonschema:"steps that cannot be read here, because they are sealed, or of a later version: a service with the key can tell"`
	Status   int      `json:"status,omitempty" jsonschema:"that of the recorded answer"`
	Started  string   `json:"started,omitempty" jsonschema:"when the last run claimed the key, by the clock of its process"`
	Trace    string   `json:"trace,omitempty" jsonschema:"the span of the last run, as W3C traceparent"`
	Decided  []Made   `json:"decided,omitempty" jsonschema:"the last decisions about it, oldest first, 8 at most"`
	Seen     string   `json:"seen" jsonschema:"what a decision takes as --seen"`
}

// A Made decision is what a record tells of one.
type Made struct {
	ID       string `json:"id" jsonschema:"as in the event and in the log"`
	At       string `json:"at" jsonschema:"by the clock of the process that made it"`
	Attempt  int    `json:"attempt" jsonschema:"the run that it was about"`
	From     string `json:"from" jsonschema:"the state of the record before: held, or any if it was forgotten"`
	Decision string `json:"decision" jsonschema:"final, not-executed, resume or forget"`
	Actor    string `json:"actor" jsonschema:"its first 100 bytes"`
	Reason   string `json:"reason" jsonschema:"its first 380 bytes"`
}

// madeOf returns what a record tells of decisions.
func madeOf(i idempotency.RecordInfo) (all []Made) {
	for _, d := range i.Decisions {
		word := d.Outcome.String()
		if d.Outcome == 0 {
			word = "forget"
		}
		all = append(all, Made{d.ID, d.Made.UTC().Format(time.RFC3339), d.Attempt, d.From, word, d.Actor, d.Reason})
	}
	return all
}

// String tells a decision in a line, without the attempt.
func (m Made) String() string {
	return m.Decision + ", " + m.by()
}

// by says who has decided, and why.
func (m Made) by() string {
	return "by " + cmp.Or(m.Actor, "nobody named") + ": " + cmp.Or(m.Reason, "no reason given")
}

// RecordOf returns what is told of a record.
func RecordOf(i idempotency.RecordInfo) Record {
	r := Record{
		Type: "record", Record: i.Record, Route: i.Route, State: StateOf(i), Attempt: i.Attempt, Age: int64(i.Age / time.Second),
		Steps: append([]string{}, i.Steps...), InDoubt: append([]string{}, i.InDoubt...), Unread: i.Unread, Status: i.Status, Seen: i.Seen().String(),
		Lease: max(0, int64(i.Lease/time.Second)), Decided: madeOf(i),
	}
	if i.State == store.Held {
		r.Cause, r.Held, r.Answered = causeOf(i), moment(i.Held), i.Answered
	}
	if i.TTL != store.Forever && i.State != store.Corrupt {
		ends := int64(i.TTL / time.Second)
		r.Ends = &ends
	}
	r.Started = moment(i.Started)
	if i.Trace != (event.TraceContext{}) {
		r.Trace = i.Trace.String()
	}
	return r
}

// StateOf names the state of a record. A lapsed claim is one whose lease has ended.
func StateOf(i idempotency.RecordInfo) string {
	if i.State == store.Claimed && i.Lease <= 0 {
		return "lapsed"
	}
	return i.State.String()
}

// Look returns what is known of a key. A record that cannot be read is in the state corrupt.
func Look(ctx context.Context, g *idempotency.Guard, k idempotency.Key) (idempotency.RecordInfo, error) {
	info, err := g.Lookup(ctx, k)
	switch {
	case errors.Is(err, idempotency.ErrCorrupt):
		err = nil
	case err != nil && info.Forgotten != nil:
		err = gone(info.Forgotten)
	case errors.Is(err, store.ErrNotFound):
		err = &Refusal{"there is no such record: it has ended or was forgotten, or the store, its prefix or its table is another one", err}
	}
	return info, err
}

// Named returns the key of the record with a name.
func Named(name string) (idempotency.Key, error) {
	if sum, err := base64.RawURLEncoding.Strict().DecodeString(name); err != nil || len(sum) != 32 || len(name) != 43 {
		return idempotency.Key{}, fmt.Errorf("%q is not the name of a record, which has 43 characters of base64url", name)
	}
	return idempotency.Key{Record: name}, nil
}

// A Refusal says for people why a decision is refused.
type Refusal struct {
	says string
	err  error
}

// Error says why.
func (r *Refusal) Error() string { return r.says }

// Unwrap returns the error of the library.
func (r *Refusal) Unwrap() error { return r.err }

// A Gone error says that there is no record, because somebody has removed it, and what it was.
type Gone struct {
	Forgotten
	says string
}

// GoneFrom returns a Gone error as it was told.
func GoneFrom(f Forgotten, says string) *Gone { return &Gone{f, says} }

// gone says that there is no record, who has removed it, and why, and what was decided before.
func gone(was *idempotency.RecordInfo) *Gone {
	f, says := forgottenOf(was)
	return GoneFrom(f, "there is no such record: "+says)
}

// forgottenOf tells of a record that somebody has removed, also in words.
func forgottenOf(was *idempotency.RecordInfo) (f Forgotten, says string) {
	says = "it was forgotten"
	made := madeOf(*was)
	for i, d := range slices.Backward(made) {
		why := fmt.Sprintf("%s ago (%s) %s", Span(max(0, time.Since(was.Decisions[i].Made))), d.At, d.by())
		if i == len(made)-1 {
			says = fmt.Sprintf("it was forgotten %s; it was %s, attempt %d", why, d.From, d.Attempt)
		} else {
			says += fmt.Sprintf("; before, %s %s", d.Decision, why)
		}
	}
	return Forgotten{
		Record: was.Record, Route: was.Route, State: was.State.String(), Attempt: was.Attempt, Age: int64(was.Age / time.Second),
		Ends: int64(was.TTL / time.Second), Decided: made,
	}, says
}

// Error says that.
func (g *Gone) Error() string { return g.says }

// Unwrap returns the error of the store that it stands for.
func (*Gone) Unwrap() error { return store.ErrNotFound }

// A Forgotten record is what is told of one that somebody has removed.
type Forgotten struct {
	Record  string `json:"record"`
	Route   string `json:"route"`
	State   string `json:"state" jsonschema:"what it was: claimed, released, completed, held or corrupt"`
	Attempt int    `json:"attempt"`
	Age     int64  `json:"age_seconds" jsonschema:"as it was when it was removed"`
	Ends    int64  `json:"ends_in_seconds" jsonschema:"how much longer this is known"`
	Decided []Made `json:"decided" jsonschema:"the last decisions, oldest first, 8 at most; the last one is forget"`
}

// A Changed error says that a record is not what was seen, and what it is now.
type Changed struct {
	Seen, Now store.Seen
}

// ChangedFrom returns a Changed error about a record that was told as a text of what is there.
func ChangedFrom(seen store.Seen, now string) *Changed {
	c := &Changed{Seen: seen}
	_ = c.Now.UnmarshalText([]byte(now))
	return c
}

// Error says what was seen and what is there now.
func (c *Changed) Error() string {
	return fmt.Sprintf("the record has changed: you saw %s, and now it is %s. Nothing was changed by this.", c.Seen, c.Now)
}

// Unwrap returns the error of the store that it stands for.
func (*Changed) Unwrap() error { return store.ErrChanged }

// A Failure is an error as it is shown to programs.
type Failure struct {
	Type  string `json:"type"`
	Code  int    `json:"code" jsonschema:"the exit code"`
	Error string `json:"error"`
	Now   string `json:"now,omitempty" jsonschema:"what is there now, for --seen, if the record has changed meanwhile"`
	// Forgotten is what was there, if somebody has removed it.
	Forgotten *Forgotten `json:"forgotten,omitempty" jsonschema:"what the record was, if somebody has removed it"`
	Actor     string     `json:"actor,omitempty" jsonschema:"who has asked, as the console knows"`
}

// FailureOf is an error as it is shown to programs, with what the error knows of the record.
func FailureOf(code int, says string, err error) Failure {
	f := Failure{Type: "error", Code: code, Error: says}
	if changed, ok := errors.AsType[*Changed](err); ok {
		f.Now = changed.Now.String()
	}
	if gone, ok := errors.AsType[*Gone](err); ok {
		f.Forgotten = &gone.Forgotten
	}
	return f
}

// The exit codes of the command line, by what a script can do about them.
const (
	ExitOK          = iota
	ExitError       // refused, or anything else
	ExitUsage       // call it in another way
	ExitNotFound    // there is no such record
	ExitChanged     // look again before you decide
	ExitUnhealthy   // the doctor has found a fault
	ExitUnreachable // try again when the store is back, or with the right password
)
