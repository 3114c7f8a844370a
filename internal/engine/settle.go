package engine

import (
	"errors"
	"time"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/answer"
	"example.com/idempotency/internal/digest"
	"example.com/idempotency/internal/engine/inflight"
	"example.com/idempotency/internal/engine/note"
	"example.com/idempotency/internal/rules"
	"example.com/idempotency/store"
)

// A settlement brings the verdict on a run to the store. It tries for as long as a client
// can be expected to wait, then goes on in the background.
type settlement struct {
	lease   *Lease
	verdict Verdict
	owner   store.Owner // under which the run is settled
	failed  bool        // the store has failed to take the verdict so far
	sent    bool        // the call for the verdict has failed: it may have been executed all the same
	// displaced says that the claim was lost. Then a refusal looks at the record before each
	// try: the claim may be ours again by a call whose reply was lost.
	displaced bool
	// lacking are the steps of the verdict that the record does not have. What it has of a step is newer than what the
	// run knows.
	lacking  map[string][]byte
	detained *store.Record // what is reported as held, once it is: the key of such a record
	reported bool          // that another run came in the way
	// unrecorded is why Complete failed in the last try, and nil if something else did.
	unrecorded error
	strikes    int  // failures of Complete in a row while the store answered another call
	brief      bool // the answer has been given up for the fact that the run has happened
	// fate is what the client learns once the store has the verdict. A run that gives way
	// to another is overtaken although the store takes its release.
	fate rules.Fate
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
		e, tooLarge, err := s.tryInSlot(n, now, timeout/2, timeout)
		if err == nil {
			s.end()
			return e
		}
		if tooLarge {
			s.shrink(s.unrecorded)
			start = time.Now()
			now = start
			continue
		}
		if errors.Is(err, errAnotherInFlight) {
			s.goOn(n, err)
			return e
		}
		pause := inflight.Backoff(n)
		if time.Since(start)+pause >= patience || !s.lease.core.work.Pause(pause) {
			return s.leaveToBackground(n, err)
		}
		now = time.Now()
	}
}

// tryInSlot makes the nth attempt in a slot, for which it waits from now, no longer than patience. That and the attempt
// take no longer than timeout. It reports whether the answer is too large for the store.
func (s *settlement) tryInSlot(n int, now time.Time, patience, timeout time.Duration) (e Ending, tooLarge bool, err error) {
	until := now.Add(timeout)
	var t slot
	if n == 1 {
		t = s.lease.takeSlot(len(s.verdict.answer))
	} else if t, err = s.lease.waitForSlot("complete", patience, len(s.verdict.answer)); err != nil {
		s.fail()
		return Ending{Fate: s.fate}, false, err
	}
	defer func() { t.end(err) }()
	e, err = s.try(until)
	if err == nil {
		return e, false, nil
	}
	s.fail()
	return e, s.isTooLarge(min(s.left(until), s.lease.timeout())), err
}

// left is how long the next call of an attempt may take that is to be over by then.
func (s *settlement) left(until time.Time) time.Duration {
	return min(time.Until(until), s.lease.sendTimeout(len(s.verdict.answer)))
}

// leaveToBackground lets the client go. It gets the run's answer before that is recorded,
// because an effect has happened and only this answer tells of it. But if the claim has
// lapsed meanwhile, another run may have ended with another answer, or somebody may have
// settled what was held. That answer is the one that counts: then the client has to ask again.
func (s *settlement) leaveToBackground(failures int, cause error) Ending {
	f := s.facts() | rules.NoReply | rules.NotSeen | rules.If(s.lease.undisputed(), rules.Undisputed, rules.Disputed)
	s.goOn(failures, cause)
	return Ending{Fate: rules.Stalled.Of(f).Fate}
}

// facts are those about the verdict and its claim.
func (s *settlement) facts() rules.Settling {
	f := rules.If(s.displaced, rules.Lost, rules.Ours) |
		rules.If(s.verdict.doubt != nil, rules.CommitInDoubt, rules.CommitKnown) |
		rules.If(len(s.lacking) > 0, rules.MarksLost, rules.MarksKept) |
		rules.If(s.sent, rules.TriedBefore, rules.FirstTry) |
		rules.If(s.fate == rules.Overtaken, rules.AlreadyOvertaken, rules.OnCourse)
	switch {
	case s.verdict.refusal:
		return f | rules.Refusal
	case s.verdict.Left == rules.Definite:
		return f | rules.Answer
	case s.verdict.Left == rules.Held:
		return f | rules.Hold
	case s.verdict.Left == rules.Undone:
		return f | rules.Nothing
	default:
		return f | rules.GiveBack
	}
}

// try makes one attempt to settle, with calls that return by then. Its errors are those of the store, and
// errAnotherInFlight: then the client is answered by the ending, and settling goes on.
func (s *settlement) try(until time.Time) (Ending, error) {
	s.unrecorded = nil
	if rules.Settle.Of(s.facts()|rules.NotSeen).Move == rules.Conclude {
		err := s.conclude(s.left(until))
		if !errors.Is(err, store.ErrNotOwner) {
			return Ending{Fate: s.fate}, err
		}
		if err := s.recall(s.left(until)); err != nil {
			return Ending{Fate: s.fate}, err
		}
		f := s.facts() | rules.NotOwner | rules.NotSeen | rules.If(s.lease.wasKept(), rules.Undisputed, rules.Disputed)
		if next := rules.Stalled.Of(f); next.Move != rules.Look {
			return Ending{Fate: next.Fate}, nil
		}
		s.displace()
	}
	return s.takeBack(until)
}

// displace notes that the claim was lost. What is tried from now on has another owner.
func (s *settlement) displace() {
	if !s.displaced {
		s.displaced = true
		s.owner = newOwner()
		s.reportLoss()
	}
}

// conclude makes the store call that the verdict stands for.
func (s *settlement) conclude(timeout time.Duration) (err error) {
	if s.verdict.Left != rules.Definite {
		// A store that has gone back to a copy of itself has the claim, perhaps, and not what came after it.
		say := s.verdict.once
		if s.displaced {
			say = s.lacking
		}
		for name, stored := range say {
			if err := s.lease.saveStep(s.owner, name, stored, timeout); err != nil {
				return err
			}
		}
	}
	defer func() { s.sent = s.sent || err != nil && !errors.Is(err, store.ErrNotOwner) }()
	switch s.verdict.Left {
	case rules.Definite:
		err = s.lease.complete(s.owner, s.verdict.answer, s.verdict.status, timeout)
		if !errors.Is(err, store.ErrNotOwner) {
			s.unrecorded = err
		}
		if err == nil {
			s.lease.bearWitness(s.owner)
		}
		return err
	case rules.Held:
		why := s.verdict.hold
		if s.displaced && s.verdict.doubt != nil { // otherwise the record has told that there was no commit
			why.Cause = event.CauseCommit
		}
		err = s.lease.holdNow(s.owner, why, timeout)
		if err == nil && s.detained != nil {
			s.lease.ReportHeld(s.detained, event.CauseForgotten)
		}
		return err
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

var (
	errAnotherInFlight = errors.New("idempotency: another run is in flight")
	errRetentionEnded  = errors.New("idempotency: retention ended")
	errTooManyPending  = errors.New("idempotency: too many runs wait to be settled")
	errNotHeldYet      = errors.New("idempotency: the last attempt has failed, and the store could not be told to hold the key")
)

// GiveBack gives up a claim under which nothing has run.
func (l *Lease) GiveBack() {
	s := settlement{lease: l, verdict: Verdict{Left: rules.Undone, Release: l.unused()}, owner: l.claim.Owner}
	s.settle()
}

// holdInstead holds the key of a claim under which nothing is to run. It returns the record that
// the request is answered from.
func (l *Lease) holdInstead(rec store.Record) (store.Record, error) {
	s := settlement{lease: l, verdict: Verdict{Left: rules.Held, hold: note.Hold{Cause: event.CauseAttempts}}, owner: l.claim.Owner}
	switch e := s.settle(); e.Fate {
	case rules.Settled:
		l.ReportHeld(&rec, event.CauseAttempts)
		rec.State, rec.Mine, rec.TTL = store.Held, false, store.Forever
		if l.claim.HoldEnds {
			rec.TTL = l.claim.Retention
		}
		return rec, nil
	case rules.Overtaken, rules.Supplanted:
		return e.Record(), nil
	default:
		return store.Record{}, errNotHeldYet
	}
}

var errNoAnswer = errors.New("idempotency: the verdict has no answer")

// answer reads the answer of the verdict.
func (s *settlement) answer() (answer.Answer, error) {
	if s.verdict.Left != rules.Definite {
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
