package engine

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Stats are what an engine is busy with in this process at one moment. The root's Stats say more of
// each field.
type Stats struct {
	Running      int
	ByRoute      map[string]int
	Waiting      int
	Pending      int
	PendingBytes int64
	GivingBack   int
	Abandoned    int
	Long, Oldest []InFlightRun
}

// An InFlightRun is a run in flight.
type InFlightRun struct {
	Record, Route string
	Attempt       int
	Started       time.Time
}

// mostLong is how many long runs are told of.
const mostLong = 16

// Stats returns what e is busy with, together with all engines made from it by With.
func (e *Engine) Stats() Stats {
	c := e.core
	s := Stats{Waiting: c.room.size(), Abandoned: int(c.abandoned.Load())}
	s.Pending, s.PendingBytes = c.pending.Size()
	s.GivingBack, _ = c.ghosts.Size()
	now, oldest := time.Now(), make(map[string]InFlightRun)
	c.runs.Each(func(of any, started time.Time) {
		l := of.(*Lease)
		run := InFlightRun{l.Name, l.Route, l.Attempt, started}
		if s.Running++; s.Running == 1 {
			s.ByRoute = make(map[string]int)
		}
		s.ByRoute[run.Route]++
		if first, ok := oldest[run.Route]; !ok || run.compare(first) < 0 {
			oldest[run.Route] = run
		}
		if now.Sub(started) > l.claim.Lease/renewalsPerLease {
			s.Long = append(s.Long, run)
		}
	})
	s.Oldest = slices.SortedFunc(maps.Values(oldest), InFlightRun.compare)
	slices.SortFunc(s.Long, InFlightRun.compare)
	s.Long = s.Long[:min(len(s.Long), mostLong)]
	return s
}

// compare puts the run first that has begun first.
func (r InFlightRun) compare(other InFlightRun) int {
	return cmp.Or(r.Started.Compare(other.Started), cmp.Compare(r.Record, other.Record))
}
