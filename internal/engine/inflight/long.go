package inflight

import (
	"cmp"
	"maps"
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

// LongRuns are those of a process. A run gets in with its first renewal, so a short one costs nothing. The zero
// LongRuns is ready for use.
type LongRuns struct {
	mu sync.Mutex
	of map[any]LongRun
}

// Add adds a run, under the pointer by which it is removed.
func (r *LongRuns) Add(lease any, run LongRun) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = make(map[any]LongRun)
	}
	r.of[lease] = run
}

// Remove removes a run that has ended.
func (r *LongRuns) Remove(lease any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.of, lease)
}

// All returns all runs, by their leases.
func (r *LongRuns) All() map[any]LongRun {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.of)
}

// mostLong is how many long runs are told of.
const mostLong = 16

// Oldest returns the runs that have lasted longest, the oldest first.
func (r *LongRuns) Oldest() []LongRun {
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
