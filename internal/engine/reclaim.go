package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"time"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/engine/note"
	"example.com/idempotency/internal/rules"
	"example.com/idempotency/store"
)

// takeBack settles a run that has lost its claim. It looks at what became of the record,
// and gets the claim back where nobody else has it.
func (s *settlement) takeBack(until time.Time) (Ending, error) {
	rec, err := s.reclaim(s.left(until))
	if err != nil {
		return Ending{Fate: s.fate}, err
	}
	f := s.seen(&rec)
	s.compare(&rec)
	next := rules.Settle.Of(s.facts() | f)
	if next.Move == rules.Yield || f == rules.MineAfter {
		s.reportOvertaken()
	}
	switch next.Move {
	case rules.Believe:
		s.verdict = *s.verdict.doubt
		return Ending{Fate: next.Fate}, nil
	case rules.Yield:
		return Ending{next.Fate, &rec}, nil
	case rules.Wait:
		return Ending{next.Fate, &rec}, errAnotherInFlight
	case rules.Retreat:
		s.verdict = Verdict{Left: rules.Undone, once: s.verdict.once}
	case rules.Detain:
		s.verdict = Verdict{Left: rules.Held, hold: note.Hold{Cause: event.CauseForgotten}}
		s.detained = &store.Record{Attempt: rec.Attempt, Owner: s.owner, Notes: store.AppendNote(nil, s.lease.claim.Note)}
	case rules.Withdraw:
		s.verdict.Release.Unused = !s.verdict.Release.Unbind
	}
	s.fate = max(s.fate, next.Fate)
	err = s.conclude(s.left(until))
	if errors.Is(err, store.ErrNotOwner) {
		f |= s.facts() | rules.NotOwner | rules.Disputed
		return Ending{Fate: rules.Stalled.Of(f).Fate}, nil
	}
	return Ending{Fate: s.fate}, err
}

// compare finds out which steps a record does not have that the run has made or found and that must not be repeated.
func (s *settlement) compare(rec *store.Record) {
	s.lacking = maps.Clone(s.verdict.once)
	for name := range rec.Steps {
		delete(s.lacking, name)
	}
}

// recall looks whether a record that refuses a call has the steps of a run which may have given its claim back. They say
// that it has, and that the store has not gone back to an older copy of itself since.
func (s *settlement) recall(timeout time.Duration) error {
	if len(s.verdict.once) == 0 || !s.sent || s.displaced {
		return nil
	}
	rec, err := s.lease.look(timeout)
	s.compare(&rec)
	return err
}

// seen is the fact about the record that the claim was asked for again.
func (s *settlement) seen(rec *store.Record) rules.Settling {
	ours := s.lease.claim.Fingerprint
	switch {
	case rec.Mine && rec.Attempt > 1:
		return rules.MineAfter
	case rec.Mine:
		return rules.MineFirst
	case s.verdict.isCommitted(rec):
		return rules.OwnCommit
	case rec.State != 0 && isAnother(rec.Fingerprint, ours):
		return rules.OfOther
	case rec.State == store.Claimed && rec.Fingerprint == ours:
		return rules.OtherRuns
	default:
		return rules.OtherOrNone
	}
}

// reportLoss reports, unless the run has been told already, that the claim was lost. A
// release that is repeated may be refused because the first one was executed.
func (s *settlement) reportLoss() {
	if s.rolledBack() || s.lease.isLost() || s.verdict.doubt != nil || s.sent && len(s.lacking) == 0 && !s.verdict.Lasts() {
		return
	}
	s.lease.Observe(event.Event{Kind: event.LeaseLost, Outcome: s.verdict.Outcome(), Err: store.ErrNotOwner})
}

// rolledBack reports whether the run has done nothing and the claim may have ended with its transaction. Whoever has the key since
// then came in nobody's way.
func (s *settlement) rolledBack() bool { return s.lease.isFleeting() && s.verdict.Left == rules.Undone }

// isAnother reports whether two fingerprints are surely of two payloads. Those of two versions
// cannot be compared.
func isAnother(a, b store.Fingerprint) bool { return a != b && a[0] == b[0] }

// reportOvertaken reports, once, that another run came in the way of this one.
func (s *settlement) reportOvertaken() {
	if s.reported || s.rolledBack() {
		return
	}
	s.reported = true
	e := event.Event{Kind: event.Overtaken, Outcome: s.verdict.Outcome()}
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
