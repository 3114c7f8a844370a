package inspect

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/internal/engine"
	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/store"
)

// This file erases a tenant as it was seen.

// An Erased is what was erased of a tenant, or would be.
type Erased struct {
	Type       string `json:"type"`
	DryRun     bool   `json:"dry_run" jsonschema:"nothing was changed"`
	Completed  int    `json:"completed" jsonschema:"erased, with an answer: a retry of these keys runs again"`
	Unanswered int    `json:"unanswered" jsonschema:"erased, without an answer"`
	Held       int    `json:"held" jsonschema:"erased, although nobody knows whether they have happened"`
	HeldLeft   int    `json:"held_left" jsonschema:"not erased, because they are held, or a step is in doubt"`
	InFlight   int    `json:"in_flight" jsonschema:"not erased, because they run"`
	Younger    int    `json:"younger" jsonschema:"not erased, because they are not old enough"`
	Changed    int    `json:"changed" jsonschema:"not erased, because they changed meanwhile"`
	OlderThan  int64  `json:"older_than_seconds,omitempty" jsonschema:"younger records were left"`
	Seen       string `json:"seen,omitempty" jsonschema:"of a dry run of the console: what an erasing takes as seen"`
	Actor      string `json:"actor,omitempty"`
	Reason     string `json:"reason,omitempty"`
}

// Does says what an erasing would do, or has done.
func (e *Erased) Does() string {
	verb, changed := "Erased", fmt.Sprintf(", and %d that have changed meanwhile", e.Changed)
	if e.DryRun {
		verb, changed = "Now it would erase", ""
	}
	return fmt.Sprintf("%s %d completed, whose retries run again, %d without an answer, and %d held. Left: %d held, %d in flight%s%s.",
		verb, e.Completed, e.Unanswered, e.Held, e.HeldLeft, e.InFlight, e.younger(), changed)
}

// younger tells of those that are not old enough, if that was asked for.
func (e *Erased) younger() string {
	if e.OlderThan == 0 {
		return ""
	}
	return fmt.Sprintf(", %d younger than %s", e.Younger, Span(time.Duration(e.OlderThan)*time.Second))
}

// Erases is how many records are erased, or would be.
func (e *Erased) Erases() int { return e.Completed + e.Unanswered + e.Held }

// count counts a record that is erased.
func (e *Erased) count(s store.State) {
	switch s {
	case store.Completed:
		e.Completed++
	case store.Held:
		e.Held++
	default:
		e.Unanswered++
	}
}

// An Erasure is a plan of which records of a tenant are erased, made from what was there.
type Erasure struct {
	// Would is what it does, if nothing changes meanwhile.
	Would  Erased
	doomed []doomed
}

// A doomed record is one that is to be erased, as it was seen.
type doomed struct {
	name, route string
	seen        store.Seen
}

// PlanErasure looks at all records of the scope that an erasing is about, and which of them it leaves.
func (f Finder) PlanErasure(ctx context.Context, what idempotency.Erasing) (*Erasure, error) {
	of := engine.Erasing{Held: what.Held, OlderThan: what.OlderThan}
	x, known := &Erasure{Would: Erased{Type: "erased", DryRun: true}}, make(map[string]bool) // a record may be in two pages
	for q := (store.Query{Limit: 1000}); ; {
		page, err := f.Page(ctx, ByTenant, what.Scope, q)
		if err != nil {
			return nil, err
		}
		for _, e := range page.Entries {
			if known[e.Key] {
				continue
			}
			known[e.Key] = true
			spared, err := f[0].Spares(ctx, intent.Key{Record: e.Key}, e.Record, of)
			if err != nil {
				return nil, err
			}
			x.add(e, spared)
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			break
		}
	}
	slices.SortFunc(x.doomed, func(a, b doomed) int { return strings.Compare(a.name, b.name) })
	sum := sha256.New()
	for _, d := range x.doomed {
		sum.Write([]byte(d.name + " " + d.seen.String() + "\n"))
	}
	w := &x.Would
	w.OlderThan = int64(what.OlderThan / time.Second)
	w.Seen = fmt.Sprintf("%d/%d/%d/%d/%d/%x", w.Completed, w.Unanswered, w.Held, w.HeldLeft, w.InFlight, sum.Sum(nil)[:8])
	return x, nil
}

func (x *Erasure) add(e store.Entry, spared engine.Sparing) {
	switch spared {
	case engine.InFlight:
		x.Would.InFlight++
	case engine.InDoubt:
		x.Would.HeldLeft++
	case engine.Younger:
		x.Would.Younger++
	default:
		x.Would.count(e.Record.State)
		x.doomed = append(x.doomed, doomed{e.Key, e.Record.Label, e.Record.Seen()})
	}
}

// Do erases what was planned, each record by the guard of its route, and nothing that has come or changed since. After an
// error it returns what was done until then.
func (x *Erasure) Do(ctx context.Context, guardOf func(route string) *idempotency.Guard, d idempotency.Decision) (Erased, error) {
	done := Erased{Type: "erased", HeldLeft: x.Would.HeldLeft, InFlight: x.Would.InFlight, Younger: x.Would.Younger, OlderThan: x.Would.OlderThan, Actor: d.Actor, Reason: d.Reason}
	for _, r := range x.doomed {
		switch err := guardOf(r.route).Forget(ctx, idempotency.Key{Record: r.name}, r.seen, d); {
		case errors.Is(err, store.ErrChanged):
			done.Changed++
		case err != nil:
			return done, err
		default:
			done.count(r.seen.State)
		}
	}
	return done, nil
}
