package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"example.com/idempotency/event"
	"example.com/idempotency/store"
)

// takeBack settles a run that has lost its claim. It looks at what became of the record,
// and gets the claim back where nobody else has it.
func (s *settlement) takeBack(until time.Time) (Ending, error) {
	rec, err := s.reclaim(time.Until(until))
	if err != nil {
		return Ending{Fate: s.fate}, err
	}
	if !rec.Mine {
		return s.giveWay(rec)
	}
	switch {
	case rec.Attempt > 1:
		s.comeAfter()
	case s.verdict.doubt != nil: // a record that is gone does not tell whether it was committed
		s.fate = Overtaken
	}
	err = s.conclude(time.Until(until))
	if errors.Is(err, store.ErrNotOwner) {
		return Ending{Fate: Overtaken}, nil // another run was faster; the client has to ask again
	}
	return Ending{Fate: s.fate}, err
}

// reportLoss reports, unless the run has been told already, that the claim was lost. A
// release that is repeated may be refused because the first one was executed.
func (s *settlement) reportLoss() {
	if s.lease.isLost() || s.verdict.doubt != nil || s.failed && !s.verdict.Lasting() {
		return
	}
	s.lease.Observe(event.Event{Kind: event.LeaseLost, Outcome: s.verdict.Outcome, Err: store.ErrNotOwner})
}

// comeAfter is called when another run came between the loss of the claim and its return,
// and left no answer. An answer that says what was done is still worth recording. A
// refusal is not: the other run may have done what this one refused. Then the record is
// left as the other run left it.
func (s *settlement) comeAfter() {
	s.reportOvertaken()
	switch {
	case s.verdict.Outcome == event.Final && s.verdict.Refusal:
		s.verdict, s.fate = Verdict{Outcome: event.NotExecuted}, Overtaken
	case !s.verdict.Lasting():
		s.fate = Overtaken
	}
}

// giveWay settles a run whose record another one has. A recorded answer is final. While
// another run is in flight, what must not be forgotten waits for its chance. Beside a record of
// another payload, the run's own answer stands, although nothing can record it.
func (s *settlement) giveWay(rec store.Record) (Ending, error) {
	if s.verdict.isCommitted(rec) {
		s.verdict = *s.verdict.doubt
		return Ending{Fate: Settled}, nil
	}
	e := Ending{Overtaken, &rec}
	switch {
	case rec.State != 0 && isAnother(rec.Fingerprint, s.lease.claim.Fingerprint):
		e.Fate = Supplanted
	case rec.State == store.Claimed && rec.Fingerprint == s.lease.claim.Fingerprint && s.verdict.Lasting() && !s.verdict.Refusal:
		return e, errAnotherInFlight
	}
	s.reportOvertaken()
	return e, nil
}

// isAnother reports whether two fingerprints are surely of two payloads. Those of two versions
// cannot be compared.
func isAnother(a, b store.Fingerprint) bool { return a != b && a[0] == b[0] }

// reportOvertaken reports, once, that another run came in the way of this one.
func (s *settlement) reportOvertaken() {
	if s.reported {
		return
	}
	s.reported = true
	e := event.Event{Kind: event.Overtaken, Outcome: s.verdict.Outcome}
	if a, err := s.answer(); err == nil {
		e.Status = s.verdict.status
		sum := sha256.Sum256(a.Body)
		e.Digest = hex.EncodeToString(sum[:])
	}
	s.lease.Observe(e)
}

// reclaim asks for the claim again. It is granted if the record is gone, because the store
// lost it or its retention ended, or if it is free again, because the run that took over
// ended without an answer. The lease is renewed again until the run is settled.
//
// The claim has an owner of its own. A call of the first owner may still be on its way, and
// its verdict may no longer be the one to record. All tries have the same new owner, so that
// a claim whose reply is lost does not stand in the way of the next try.
func (s *settlement) reclaim(timeout time.Duration) (store.Record, error) {
	claim := s.lease.claim
	claim.Owner = s.owner
	sent := time.Now()
	var rec store.Record
	err := s.lease.requestClaim(&rec, sent, &claim, timeout)
	if err == nil && rec.Mine {
		s.lease.resume(s.owner, sent)
	}
	return rec, err
}
