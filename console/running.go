package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/store"
)

// This file is about runs in flight: those of all processes on routes that hold, which the index of the store has, and those of
// other routes that last in this process.

const (
	// hanging is how long a run lasts of which the first screen says so, as the alert of the module for metrics.
	hanging = 10 * time.Minute
	// mostHanging is how many of the oldest runs of the index are looked at for that, of which so many at once.
	mostHanging, atOnce = 100, 20
)

// runs returns the oldest runs in flight of a route, or of all, and a sentence about those that last longer than they should.
func (v *visit) runs(ctx context.Context, route string, all *survey, long []idempotency.RecordInfo) (found []idempotency.RecordInfo, says string, err error) {
	found, hang, err := v.ofIndex(ctx, all.claimed)
	if err != nil {
		return nil, "", err
	}
	var here hangs
	shown := 0
	for _, run := range long {
		if route != "" && run.Route != route || slices.ContainsFunc(all.claimed, func(e store.Entry) bool { return e.Key == run.Record }) {
			continue
		}
		if here.add(v.now().Sub(run.Started)); shown == oldestRuns {
			continue
		}
		i, err := v.inFlight(ctx, run.Route, run.Record)
		if err != nil {
			return nil, "", err
		}
		if i != nil {
			found, shown = append(found, *i), shown+1
		}
	}
	slices.SortStableFunc(found, func(a, b idempotency.RecordInfo) int { return a.Started.Compare(b.Started) })
	return found[:min(len(found), oldestRuns)], hang.says("") + here.says(" of this process on routes that do not hold"), nil
}

// ofIndex looks at the oldest runs of the index, and returns some, and which of them hang.
func (v *visit) ofIndex(ctx context.Context, claimed []store.Entry) (found []idempotency.RecordInfo, hang hangs, err error) {
	for begin := 0; begin < min(len(claimed), mostHanging); begin += atOnce {
		before := hang.n
		for _, e := range claimed[begin:min(begin+atOnce, len(claimed))] {
			i, err := v.inFlight(ctx, e.Record.Label, e.Key)
			if err != nil {
				return nil, hang, err
			}
			if i == nil {
				continue
			}
			if found = append(found, *i); !i.Started.IsZero() {
				hang.add(v.now().Sub(i.Started))
			}
		}
		if hang.n == before {
			break // those that follow are younger
		}
	}
	hang.more = hang.n == mostHanging && len(claimed) > mostHanging
	return found, hang, nil
}

// inFlight returns what is known of a run, or nil if it has ended meanwhile.
func (v *visit) inFlight(ctx context.Context, route, record string) (*idempotency.RecordInfo, error) {
	i, err := inspect.Look(ctx, v.guardOf(route), idempotency.Key{Record: record})
	switch {
	case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrUnreadableHere), err == nil && i.State != store.Claimed:
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &i, nil
}

// hangs are runs that last longer than they should.
type hangs struct {
	n      int
	oldest time.Duration
	more   bool
}

// add counts a run that has lasted so long, if it hangs.
func (h *hangs) add(lasts time.Duration) {
	if lasts >= hanging {
		h.n, h.oldest = h.n+1, max(h.oldest, lasts)
	}
}

// says tells of them in a sentence.
func (h *hangs) says(whose string) string {
	switch {
	case h.n == 0:
		return ""
	case h.n == 1:
		return fmt.Sprintf(" 1 run%s has been going on for %s.", whose, inspect.Span(h.oldest))
	case h.more:
		whose = " or more" + whose
	}
	return fmt.Sprintf(" %d runs%s have been going on for more than 10 minutes, the oldest for %s.", h.n, whose, inspect.Span(h.oldest))
}

// showRunning lists the runs in flight of all processes on routes that hold, for programs.
func (v *visit) showRunning(string) (err error) {
	if !v.wantsJSON() {
		return errForPrograms
	}
	from := v.r.URL.Query()
	q := store.Query{Holding: true, States: []store.State{store.Claimed}, Label: from.Get("route"), Cursor: from.Get("cursor")}
	if q.Limit, err = limit(from, pageSize, mostLooked); err != nil {
		return err
	}
	found, next, err := v.list(v.r.Context(), v.lister.List, q)
	if err != nil {
		return err
	}
	return v.show(http.StatusOK, "", "", nil, inspect.Runs{Type: "runs", Records: inspect.RunsOf(found), Next: next})
}
