package console

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/store"
)

// This file is about runs in flight: those that last in this process, and those of all processes on routes that hold.

// hanging is how long a run lasts of which the first screen says so, as the alert of the module for metrics.
const hanging = 10 * time.Minute

// runs returns the oldest runs in flight of a route, or of all, and whether the index has more than was read.
func (v *visit) runs(ctx context.Context, route string, long []idempotency.RecordInfo) (found []idempotency.RecordInfo, more bool, err error) {
	found, next, err := v.list(ctx, v.lister.List, store.Query{Holding: true, States: []store.State{store.Claimed}, Limit: oldestRuns, Label: route})
	if err != nil {
		return nil, false, err
	}
	for _, run := range long {
		if route != "" && run.Route != route || slices.ContainsFunc(found, func(i idempotency.RecordInfo) bool { return i.Record == run.Record }) {
			continue
		}
		i, err := inspect.Look(ctx, v.guardOf(run.Route), idempotency.Key{Record: run.Record})
		switch {
		case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrUnreadableHere), err == nil && i.State != store.Claimed:
			continue // it has ended meanwhile
		case err != nil:
			return nil, false, err
		}
		if found = append(found, i); len(found) == 2*oldestRuns {
			break
		}
	}
	slices.SortStableFunc(found, func(a, b idempotency.RecordInfo) int { return a.Started.Compare(b.Started) })
	return found[:min(len(found), oldestRuns)], next != "", nil
}

// hang says in a sentence which runs of this process last longer than they should.
func (v *visit) hang(long []idempotency.RecordInfo) string {
	n := 0
	for n < len(long) && v.now().Sub(long[n].Started) >= hanging {
		n++
	}
	switch n {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf(" 1 run has been going on for %s.", inspect.Span(v.now().Sub(long[0].Started)))
	}
	return fmt.Sprintf(" %d runs have been going on for more than 10 minutes, the oldest for %s.", n, inspect.Span(v.now().Sub(long[0].Started)))
}
