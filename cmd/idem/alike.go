package main

import (
	"context"
	"fmt"
	"time"

	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/store"
)

// This file decides about all keys that one cause may have: those of one route that were held in one minute.

// minute is that in which a record became what it is.
func (a *app) minute(age time.Duration) time.Time {
	return a.now().Add(-age).UTC().Truncate(time.Minute)
}

// alike returns the held records of the route and the minute of one, which is among them.
func (a *app) alike(ctx context.Context, s *source, r *inspect.Ruling) (found []store.Entry, err error) {
	since := a.minute(r.Info.Age)
	err = walk(ctx, s, store.Query{Holding: true, States: []store.State{store.Held}, Label: r.Info.Route}, func(e store.Entry) {
		if e.Record.Label == r.Info.Route && a.minute(e.Record.Age).Equal(since) {
			found = append(found, e)
		}
	})
	return found, err
}

// decideAlike decides about a record that was looked at and all that are like it. It leaves alone and names what has
// changed meanwhile, and of which the decision is refused.
func (a *app) decideAlike(ctx context.Context, s *source, v *verdict, word string, r *inspect.Ruling, seen store.Seen, expect int) error {
	if seen != r.Info.Seen() {
		return orChanged(ctx, r, seen, store.ErrChanged)
	}
	found, err := a.alike(ctx, s, r)
	if err != nil {
		return err
	}
	if len(found) != expect {
		return &coded{inspect.ExitChanged, fmt.Errorf("--expect is %d, and %d keys of route %s were held at %s. Nothing was changed. Look at them: idem held --route %q",
			expect, len(found), plain(r.Info.Route), a.minute(r.Info.Age).Format("2006-01-02 15:04 UTC"), r.Info.Route)}
	}
	left := 0
	for _, e := range found {
		of, err := lookInto(ctx, s, e.Key, r.TTL)
		if err == nil {
			err = a.decide(ctx, v, word, of, e.Record.Seen())
		}
		switch {
		case isAway(err):
			return err
		case err != nil:
			a.leave(v, word, e, err)
			left++
		}
	}
	if left > 0 {
		return fmt.Errorf("left %d of %d keys alone", left, len(found))
	}
	return nil
}

// leave tells that a decision was not made about one of several records.
func (a *app) leave(v *verdict, word string, e store.Entry, err error) {
	list := a.list()
	if a.format != asJSON {
		list.end("Left alone: " + e.Key + ": " + plain(err.Error()))
		return
	}
	list.add(inspect.Decision{
		Type: "decision", Record: e.Key, Decision: word, DryRun: v.dryRun, Says: err.Error(), Seen: e.Record.Seen().String(), Actor: v.Actor, Reason: v.Reason,
	})
}
