package engine

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// A LongRun is a run in flight that has lasted for longer than a third of its lease.
type LongRun struct {
	Record, Route string
	Attempt       int
	Started       time.Time
}

// longRuns are those of a process. A run gets in with its first renewal, so a short one costs nothing.
type longRuns struct {
	mu sync.Mutex
	of map[*Lease]LongRun
}

// mostLong is how many long runs are told of.
const mostLong = 16

// oldest returns the runs that have lasted longest, the oldest first.
func (r *longRuns) oldest() []LongRun {
	r.mu.Lock()
	var all []LongRun
	for _, run := range r.of {
		all = append(all, run)
	}
	r.mu.Unlock()
	slices.SortFunc(all, func(a, b LongRun) int {
		return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.Record, b.Record))
	})
	return all[:min(len(all), mostLong)]
}

// becomesLong notes that the run has not ended by its first renewal. The lease is locked.
func (l *Lease) becomesLong() {
	if l.isLong || l.runOver || l.ended {
		return
	}
	l.isLong = true
	r := &l.core.long
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = make(map[*Lease]LongRun)
	}
	r.of[l] = LongRun{Record: l.Name, Route: l.Route, Attempt: l.Attempt, Started: l.sure.Add(-l.margin())}
}

// isLongNoMore notes that the run has ended. The lease is locked.
func (l *Lease) isLongNoMore() {
	if !l.isLong {
		return
	}
	l.isLong = false
	r := &l.core.long
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.of, l)
}
