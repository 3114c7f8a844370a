package engine

import (
	"errors"
	"time"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/answer"
	"example.com/idempotency/internal/digest"
	"example.com/idempotency/internal/engine/work"
	"example.com/idempotency/store"
)

// A settlement brings the verdict on a run to the store. It tries for as long as a client
// can be expected to wait, then goes on in the background.
type settlement struct {
	lease   *Lease
	verdict Verdict
	owner   store.Owner // under which the run is settled
	failed  bool        // the store has failed to take the verdict so far
	// displaced says that the claim was lost. Then a refusal looks at the record before each
	// try: the claim may be ours again by a call whose reply was lost.
	displaced bool
	reported  bool // that another run came in the way
	// unrecorded is why Complete failed in the last try, and nil if something else did.
	unrecorded error
	strikes    int  // failures of Complete in a row while the store answered another call
	brief      bool // the answer has been given up for the fact that the run has happened
	// fate is what the client learns once the store has the verdict. A run that gives way
	// to another is overtaken although the store takes its release.
	fate Fate
}

// settle settles the run while its client waits.
func (s *settlement) settle() Ending {
	s.lease.outliveRun()
	returned := false
	defer func() {
		if !returned { // runtime.Goexit in a function of the program: nobody else would end it
			s.end()
		}
	}()
	e := s.tryWhileClientWaits()
	returned = true
	return e
}

func (s *settlement) tryWhileClientWaits() Ending {
	start := time.Now()
	now := start
	for n := 1; ; n++ {
		timeout := s.lease.haste(n, now.Sub(start), len(s.verdict.answer))
		e, err := s.try(now, timeout)
		if err == nil {
			s.end()
			return e
		}
		s.fail()
		if s.isTooLarge(timeout - time.Since(now)) {
			s.shrink(s.unrecorded)
			start = time.Now()
			now = start
			continue
		}
		if errors.Is(err, errAnotherInFlight) {
			s.goOn(n, err)
			return e
		}
		pause := work.Backoff(n)
		if time.Since(start)+pause >= patience || !s.lease.core.work.Pause(pause) {
			return s.leaveToBackground(n, err)
		}
		now = time.Now()
	}
}

// leaveToBackground lets the client go. It gets the run's answer before that is recorded,
// because an effect has happened and only this answer tells of it. But if the claim has
// lapsed meanwhile, another run may have ended with another answer, or somebody may have
// settled what was held. That answer is the one that counts: then the client has to ask again.
func (s *settlement) leaveToBackground(failures int, cause error) Ending {
	sure := s.lease.undisputed()
	s.goOn(failures, cause)
	if !sure || s.fate == Overtaken {
		return Ending{Fate: Overtaken}
	}
	return Ending{Fate: Pending}
}

// try makes one attempt to settle, now, with calls that together take no longer than the
// timeout. Its errors are those of the store, and errAnotherInFlight: then the client is
// answered by the ending, and settling goes on.
func (s *settlement) try(now time.Time, timeout time.Duration) (Ending, error) {
	until := now.Add(timeout)
	s.unrecorded = nil
	if !s.displaced || s.verdict.Lasting() && !s.verdict.Refusal {
		err := s.conclude(timeout)
		if !errors.Is(err, store.ErrNotOwner) {
			return Ending{Fate: s.fate}, err
		}
		if s.wasReleased() {
			return Ending{Fate: s.fate}, nil
		}
		if !s.displaced {
			s.displaced = true
			s.owner = newOwner()
			s.reportLoss()
		}
	}
	return s.takeBack(until)
}

// conclude makes the store call that the verdict stands for.
func (s *settlement) conclude(timeout time.Duration) error {
	switch {
	case s.verdict.Outcome == event.Final:
		err := s.lease.complete(s.owner, s.verdict.answer, s.verdict.status, timeout)
		if !errors.Is(err, store.ErrNotOwner) {
			s.unrecorded = err
		}
		return err
	case s.verdict.Lasting():
		return s.lease.hold(s.owner, timeout)
	default:
		return s.lease.release(s.owner, s.verdict.Release, timeout)
	}
}

// fail notes, once, that the store has failed to take the verdict.
func (s *settlement) fail() {
	if !s.failed {
		s.failed = true
		s.lease.core.unsettled.Add(s.lease)
	}
}

// end ends the lease: there is nothing left to do.
func (s *settlement) end() {
	if s.failed {
		s.lease.core.unsettled.Remove(s.lease)
	}
	s.lease.end()
}

func (s *settlement) giveUp(err error) {
	if s.failed {
		s.lease.core.unsettled.Remove(s.lease)
	}
	s.lease.GiveUp(err)
}

// wasReleased reports whether a release is refused because an earlier one, whose reply was lost, was
// executed: until the end of the lease, nobody else can have got the claim in another way.
func (s *settlement) wasReleased() bool {
	return s.failed && !s.displaced && !s.verdict.Lasting() && s.verdict.doubt == nil && s.lease.wasKept()
}

var (
	errAnotherInFlight = errors.New("idempotency: another run is in flight")
	errRetentionEnded  = errors.New("idempotency: retention ended")
	errTooManyPending  = errors.New("idempotency: too many runs wait to be Settled")
	errNotHeldYet      = errors.New("idempotency: the last attempt has failed, and the store could not be told to hold the key")
)

// GiveBack gives up a claim under which nothing has run.
func (l *Lease) GiveBack() {
	s := settlement{lease: l, verdict: Verdict{Outcome: event.NotExecuted, Release: l.unused()}, owner: l.claim.Owner}
	s.settle()
}

// holdInstead holds the key of a claim under which nothing is to run. It returns the record that
// the request is answered from.
func (l *Lease) holdInstead(rec store.Record) (store.Record, error) {
	s := settlement{lease: l, verdict: Verdict{Outcome: event.Unknown, Hold: true}, owner: l.claim.Owner}
	switch e := s.settle(); e.Fate {
	case Settled:
		rec.State, rec.Mine, rec.TTL = store.Held, false, store.Forever
		if l.claim.HoldEnds {
			rec.TTL = l.claim.Retention
		}
		return rec, nil
	case Overtaken, Supplanted:
		return e.Record(), nil
	default:
		return store.Record{}, errNotHeldYet
	}
}

var errNoAnswer = errors.New("idempotency: the verdict has no answer")

// answer reads the answer of the verdict.
func (s *settlement) answer() (answer.Answer, error) {
	if s.verdict.Outcome != event.Final {
		return answer.Answer{}, errNoAnswer
	}
	return s.lease.rules.Seals.OpenAnswer(s.verdict.answer, s.lease.Name, s.lease.claim.Fingerprint, nil)
}

// toldStatus is the status of an answer in events and lookups. The result of a function has
// none.
func toldStatus(a *answer.Answer, fp store.Fingerprint) int {
	if fp[0] == digest.VersionJob {
		return 0
	}
	return a.Status
}
