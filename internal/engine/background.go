package engine

import (
	"errors"
	"math"
	"time"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/engine/inflight"
	"example.com/idempotency/store"
)

// forever is how long somebody waits for whom nobody waits.
const forever = math.MaxInt64

// goOn settles in the background until that succeeds, another run's answer stands in the
// way, the retention ends or the guard is shut down. Giving up any earlier is what makes
// duplicates: a store that is away for a minute would come back with a claim that lapses.
// Meanwhile the lease is renewed.
func (s *settlement) goOn(failures int, cause error) {
	core := s.lease.core
	held := int64(len(s.verdict.answer))
	if !core.pending.Add(held) {
		s.shrink(errTooManyPending)
		held = int64(len(s.verdict.answer))
		if !core.pending.Add(held) {
			s.giveUp(errTooManyPending)
			return
		}
	}
	if !core.work.Enter() {
		core.pending.Remove(held)
		s.giveUp(ErrShutdown)
		return
	}
	s.lease.forgetRun() // the answer is all that is kept
	s.lease.Observe(event.Event{Kind: event.RecordingDelayed, Outcome: s.verdict.Outcome(), Err: cause})
	until := time.Now().Add(s.lease.claim.Retention)
	background := *s
	go func() {
		defer core.work.Leave()
		defer core.pending.Remove(held)
		background.tryUntil(until, failures)
	}()
}

func (s *settlement) tryUntil(until time.Time, failures int) {
	for n := failures; ; n++ {
		if !s.lease.core.work.Pause(inflight.Backoff(n)) {
			return // Shutdown gives it up and reports it, before it returns
		}
		_, tooLarge, err := s.tryInSlot(n+1, time.Now(), forever, forever)
		if err == nil {
			s.end()
			return
		}
		if tooLarge {
			s.shrink(s.unrecorded)
			n = 0
		}
		if s.lease.recordEnds() && time.Now().After(until) {
			s.giveUp(errRetentionEnded)
			return
		}
	}
}

const (
	// smallAnswer is the size up to which an answer is not worth giving up: the store is not
	// away because of its size.
	smallAnswer = 4 << 10

	// maxStrikes is how often in a row a store may fail to take an answer, and answer another call
	// at once, before the size of the answer is to blame. One time may be the end of an outage.
	// A store that fails one call in six, whatever its size, gets to three in one answer of 370, and
	// to six in one of 130,000.
	maxStrikes = 6

	// lastStrikes is the same during a shutdown. It has little time, and what it leaves unsettled is a run
	// of which nothing is known: worse than a run without its answer.
	lastStrikes = 2
)

// isTooLarge reports whether the last try has failed because the store does not take an
// answer of that size. It need not say so: it may be too slow, or close the connection. So
// it is asked to renew the claim, within the timeout.
func (s *settlement) isTooLarge(timeout time.Duration) bool {
	switch {
	case s.unrecorded == nil || s.brief:
		return false
	case errors.Is(s.unrecorded, store.ErrTooLarge):
		return true
	case len(s.verdict.answer) <= smallAnswer || timeout <= 0:
		return false
	}
	if err := s.lease.requestRenewal(s.owner, timeout); err != nil && !errors.Is(err, store.ErrNotOwner) {
		s.strikes = 0
		return false
	}
	s.strikes++
	if s.lease.core.work.Closing() {
		return s.strikes >= lastStrikes
	}
	return s.strikes >= maxStrikes
}

// shrink replaces an answer that there is no room for by the fact that the run has
// happened.
func (s *settlement) shrink(cause error) {
	s.brief = true
	a, err := s.answer()
	if err != nil {
		return // an unknown outcome, or a sealer that fails: there is nothing to give up
	}
	e := event.Event{
		Kind: event.NotKept, Status: s.verdict.status, Size: int64(len(a.Body)), Err: cause,
	}
	a = a.Brief(s.lease.rules.MaxAnswer)
	stored, err := s.lease.rules.Seals.Answer(&a, s.lease.Name, s.lease.claim.Fingerprint)
	if err != nil || len(stored) >= len(s.verdict.answer) {
		return
	}
	s.verdict.answer = stored
	s.lease.Observe(e)
}
