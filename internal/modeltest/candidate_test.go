package modeltest

import (
	"math"
	"time"

	"example.com/idempotency/store"
)

// A candidate is a state that a record may be in after the calls so far, and the time in
// which it was last touched. Moments are those of the store's clock.
type candidate struct {
	record

	first, last time.Duration // it was touched in between
	now         time.Duration // the last call was not earlier
	over        bool          // the lost calls that have had no effect will have none
}

// never is later than every moment. Adding a duration to it does not overflow.
const never = time.Duration(math.MaxInt64 / 4)

// A moment is when a call had its effect, as far as its caller can tell.
type moment struct {
	first, last time.Duration
	slack       time.Duration // how much the store may err in measuring a duration
}

// step returns the candidates after the call, which had its effect at that moment and
// returned got. There are none if the contract does not let the call end like that. There
// are also none if the call was lost and has no effect: it makes no difference when that
// was, so other moments need not be tried.
func (s candidate) step(c call, got reply, at moment) []candidate {
	// The calls happen in this order, so the moment lies between those of its neighbours.
	s.now = max(s.now, at.first)
	s.last = min(s.last, at.last)
	var next []candidate
	for _, phase := range s.phases() {
		r := s.record
		if phase.expired {
			r = record{}
		}
		for _, e := range r.endings(c, phase.lapsed) {
			passed := span{s.now - s.last - at.slack, at.last - s.first + at.slack + 1}
			if got.lost {
				if e.next == r && !e.touched {
					continue // as good as never
				}
			} else {
				if !e.matches(c, got, phase.lapsed) {
					continue
				}
				if e.sees && !e.touched { // The store itself says how much has passed.
					passed = passed.and(span{got.age - at.slack, got.age + at.slack + 1})
				}
			}
			if passed.and(phase.span).empty() {
				continue
			}
			after := candidate{record: e.next, first: s.first, last: s.last, now: s.now}
			if e.touched {
				after.first, after.last = s.now, at.last
			}
			if e.next == (record{}) {
				after.first, after.last = 0, 0
			}
			next = append(next, after)
		}
	}
	return next
}

// A phase is what a record is for a while if nobody touches it.
type phase struct {
	span
	lapsed, expired bool
}

func (r record) phases() []phase {
	switch r.state {
	case 0:
		return []phase{{span: span{math.MinInt64, never}}}
	case store.Claimed:
		return []phase{
			{span: span{math.MinInt64, r.lease}},
			{span: span{r.lease, r.kept}, lapsed: true},
			{span: span{r.kept, never}, expired: true},
		}
	}
	return []phase{
		{span: span{math.MinInt64, r.kept}},
		{span: span{r.kept, never}, expired: true},
	}
}

// A span begins with one duration and ends before another.
type span struct{ from, to time.Duration }

func (s span) and(o span) span { return span{max(s.from, o.from), min(s.to, o.to)} }

func (s span) empty() bool { return s.from >= s.to }
