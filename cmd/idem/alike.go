package main

import (
	"context"
	"fmt"
	"time"

	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/store"
)

// This file decides about all keys that one cause may have: those of one route that were held in one minute.

// minute is that in which a record became what it is, so many seconds ago.
func (a *app) minute(age int64) time.Time {
	return a.now().Add(-time.Duration(age) * time.Second).UTC().Truncate(time.Minute)
}

// alike returns the held records of the route and the minute of one, which is among them.
func (a *app) alike(ctx context.Context, d desk, of inspect.Record) (found []inspect.Listed, err error) {
	since := a.minute(of.Age)
	err = walk(ctx, d, store.Query{Holding: true, States: []store.State{store.Held}, Label: of.Route}, func(r inspect.Listed) {
		if r.Attempt > 0 && r.Route == of.Route && a.minute(r.Age).Equal(since) {
			found = append(found, r)
		}
	})
	return found, err
}

// decideAlike decides about a record that was looked at and all that are like it. It leaves alone and names what has
// changed meanwhile, and of which the decision is refused.
func (a *app) decideAlike(ctx context.Context, d desk, now inspect.Record, o inspect.Order, expect int) error {
	if o.Seen.String() != now.Seen {
		return fmt.Errorf("%w. If an earlier call was cut off, name one of those that are left: idem held --route %q",
			undecided(o.Told(), now.State, inspect.ChangedFrom(o.Seen, now.Seen)), now.Route)
	}
	if now.State != store.Held.String() { // nor is it among those that would be decided
		return undecided(o.Told(), now.State, fmt.Errorf("--expect is about keys that are held, and %s is %s. Nothing was changed", o.Record, now.State))
	}
	found, err := a.alike(ctx, d, now)
	if err != nil {
		return err
	}
	if len(found) != expect {
		return &coded{inspect.ExitChanged, fmt.Errorf("--expect is %d, and %d keys of route %s were held at %s. Nothing was changed. Look at them: idem held --route %q",
			expect, len(found), plain(now.Route), a.minute(now.Age).Format("2006-01-02 15:04 UTC"), now.Route)}
	}
	left := 0
	for _, r := range found {
		o.Record = r.Record
		if err := o.Seen.UnmarshalText([]byte(r.Seen)); err != nil {
			return err
		}
		told, err := a.decide(ctx, d, o, r.State)
		switch codeOf(err) {
		case inspect.ExitOK:
		case inspect.ExitUsage, inspect.ExitUnreachable:
			return err
		default:
			a.leave(told, err)
			left++
		}
	}
	if left > 0 {
		return fmt.Errorf("left %d of %d keys alone", left, len(found))
	}
	return nil
}

// leave tells that a decision was not made about one of several records.
func (a *app) leave(d inspect.Decision, err error) {
	list := a.list()
	d.Says = err.Error()
	list.add(d, "Left alone: "+d.Record+": "+d.Says)
	list.end("")
}
