package idempotency

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/answer"
	"example.com/idempotency/internal/digest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// A verdict is what a run leaves in the store.
type verdict struct {
	outcome Outcome
	hold    bool           // for an Unknown outcome: Hold rather than Release
	release store.Release  // what else the store is told if the claim is given back
	answer  []byte         // for a Final outcome: the answer in its stored form
	buffer  *answer.Buffer // the memory of the answer, if it is used again
	status  int            // for a Final outcome: what is told of the answer without reading it
	refusal bool           // for a Final outcome: the answer says that nothing was done
	// instead is what the client gets in place of the run's answer, because of cause.
	instead problem.Code
	cause   error
	// doubt is the verdict that counts if the transaction of the run was committed after all.
	doubt *verdict
}

// lasting reports whether the verdict says something that must not be forgotten.
func (v verdict) lasting() bool { return v.outcome == Final || v.outcome == Unknown && v.hold }

// An ending is how a run was settled, as far as its client is concerned.
type ending struct {
	fate fate
	// obstacle is the record that stands in the way of an overtaken run. It is nil if the store
	// could not tell.
	obstacle *store.Record
}

// record returns what stands in the way, and the zero Record if the store could not tell.
func (e ending) record() store.Record {
	if e.obstacle == nil {
		return store.Record{}
	}
	return *e.obstacle
}

type fate uint8

const (
	settled    fate = iota // the store has the verdict
	pending                // settling goes on in the background
	overtaken              // another run's answer is recorded, or another run is or may be in flight
	supplanted             // another payload has the key: its record says nothing about this run
)

var (
	errAnotherInFlight = errors.New("idempotency: another run is in flight")
	errRetentionEnded  = errors.New("idempotency: retention ended")
	errTooManyPending  = errors.New("idempotency: too many runs wait to be settled")
	errNotHeldYet      = errors.New("idempotency: the last attempt has failed, and the store could not be told to hold the key")
)

// A settlement brings the verdict on a run to the store. It tries for as long as a client
// can be expected to wait, then goes on in the background.
type settlement struct {
	lease   *lease
	verdict verdict
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
	fate fate
}

// giveBack gives up a claim under which nothing has run.
func (l *lease) giveBack() {
	s := settlement{lease: l, verdict: verdict{outcome: NotExecuted, release: l.unused()}, owner: l.claim.Owner}
	s.settle()
}

// holdInstead holds the key of a claim under which nothing is to run. It returns the record that
// the request is answered from.
func (l *lease) holdInstead(rec store.Record) (store.Record, error) {
	s := settlement{lease: l, verdict: verdict{outcome: Unknown, hold: true}, owner: l.claim.Owner}
	switch e := s.settle(); e.fate {
	case settled:
		rec.State, rec.Mine, rec.TTL = store.Held, false, store.Forever
		if l.claim.HoldEnds {
			rec.TTL = l.claim.Retention
		}
		return rec, nil
	case overtaken, supplanted:
		return e.record(), nil
	default:
		return store.Record{}, errNotHeldYet
	}
}

// settle settles the run while its client waits.
func (s *settlement) settle() ending {
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

func (s *settlement) tryWhileClientWaits() ending {
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
		pause := backoff(n)
		if time.Since(start)+pause >= patience || !s.lease.core.work.pause(pause) {
			return s.leaveToBackground(n, err)
		}
		now = time.Now()
	}
}

// leaveToBackground lets the client go. It gets the run's answer before that is recorded,
// because an effect has happened and only this answer tells of it. But if the claim has
// lapsed meanwhile, another run may have ended with another answer, or somebody may have
// settled what was held. That answer is the one that counts: then the client has to ask again.
func (s *settlement) leaveToBackground(failures int, cause error) ending {
	sure := s.lease.undisputed()
	s.goOn(failures, cause)
	if !sure || s.fate == overtaken {
		return ending{fate: overtaken}
	}
	return ending{fate: pending}
}

// try makes one attempt to settle, now, with calls that together take no longer than the
// timeout. Its errors are those of the store, and errAnotherInFlight: then the client is
// answered by the ending, and settling goes on.
func (s *settlement) try(now time.Time, timeout time.Duration) (ending, error) {
	until := now.Add(timeout)
	s.unrecorded = nil
	if !s.displaced || s.verdict.lasting() && !s.verdict.refusal {
		err := s.conclude(timeout)
		if !errors.Is(err, store.ErrNotOwner) {
			return ending{fate: s.fate}, err
		}
		if s.wasReleased() {
			return ending{fate: s.fate}, nil
		}
		if !s.displaced {
			s.displaced = true
			s.owner = newOwner()
			s.reportLoss()
		}
	}
	return s.takeBack(until)
}

// wasReleased reports whether a release is refused because an earlier one, whose reply was lost, was
// executed: until the end of the lease, nobody else can have got the claim in another way.
func (s *settlement) wasReleased() bool {
	return s.failed && !s.displaced && !s.verdict.lasting() && s.verdict.doubt == nil && s.lease.wasKept()
}

// takeBack settles a run that has lost its claim. It looks at what became of the record,
// and gets the claim back where nobody else has it.
func (s *settlement) takeBack(until time.Time) (ending, error) {
	rec, err := s.reclaim(time.Until(until))
	if err != nil {
		return ending{fate: s.fate}, err
	}
	if !rec.Mine {
		return s.giveWay(rec)
	}
	switch {
	case rec.Attempt > 1:
		s.comeAfter()
	case s.verdict.doubt != nil: // a record that is gone does not tell whether it was committed
		s.fate = overtaken
	}
	err = s.conclude(time.Until(until))
	if errors.Is(err, store.ErrNotOwner) {
		return ending{fate: overtaken}, nil // another run was faster; the client has to ask again
	}
	return ending{fate: s.fate}, err
}

// reportLoss reports, unless the run has been told already, that the claim was lost. A
// release that is repeated may be refused because the first one was executed.
func (s *settlement) reportLoss() {
	if s.lease.isLost() || s.verdict.doubt != nil || s.failed && !s.verdict.lasting() {
		return
	}
	s.lease.observe(event.Event{Kind: event.LeaseLost, Outcome: s.verdict.outcome, Err: store.ErrNotOwner})
}

// comeAfter is called when another run came between the loss of the claim and its return,
// and left no answer. An answer that says what was done is still worth recording. A
// refusal is not: the other run may have done what this one refused. Then the record is
// left as the other run left it.
func (s *settlement) comeAfter() {
	s.reportOvertaken()
	switch {
	case s.verdict.outcome == Final && s.verdict.refusal:
		s.verdict, s.fate = verdict{outcome: NotExecuted}, overtaken
	case !s.verdict.lasting():
		s.fate = overtaken
	}
}

// giveWay settles a run whose record another one has. A recorded answer is final. While
// another run is in flight, what must not be forgotten waits for its chance. Beside a record of
// another payload, the run's own answer stands, although nothing can record it.
func (s *settlement) giveWay(rec store.Record) (ending, error) {
	if s.verdict.isCommitted(rec) {
		s.verdict = *s.verdict.doubt
		return ending{fate: settled}, nil
	}
	e := ending{overtaken, &rec}
	switch {
	case rec.State != 0 && isAnother(rec.Fingerprint, s.lease.claim.Fingerprint):
		e.fate = supplanted
	case rec.State == store.Claimed && rec.Fingerprint == s.lease.claim.Fingerprint && s.verdict.lasting() && !s.verdict.refusal:
		return e, errAnotherInFlight
	}
	s.reportOvertaken()
	return e, nil
}

// isAnother reports whether two fingerprints are surely of two payloads. Those of two versions
// cannot be compared.
func isAnother(a, b Fingerprint) bool { return a != b && a[0] == b[0] }

// reportOvertaken reports, once, that another run came in the way of this one.
func (s *settlement) reportOvertaken() {
	if s.reported {
		return
	}
	s.reported = true
	e := event.Event{Kind: event.Overtaken, Outcome: s.verdict.outcome}
	if a, err := s.answer(); err == nil {
		e.Status = s.verdict.status
		sum := sha256.Sum256(a.Body)
		e.Digest = hex.EncodeToString(sum[:])
	}
	s.lease.observe(e)
}

var errNoAnswer = errors.New("idempotency: the verdict has no answer")

// answer reads the answer of the verdict.
func (s *settlement) answer() (answer.Answer, error) {
	if s.verdict.outcome != Final {
		return answer.Answer{}, errNoAnswer
	}
	return s.lease.set.unseal(s.verdict.answer, s.lease.key, s.lease.claim.Fingerprint, nil)
}

// toldStatus is the status of an answer in events and lookups. The result of a function has
// none.
func toldStatus(a *answer.Answer, fp Fingerprint) int {
	if fp[0] == digest.VersionJob {
		return 0
	}
	return a.Status
}

// conclude makes the store call that the verdict stands for.
func (s *settlement) conclude(timeout time.Duration) error {
	switch {
	case s.verdict.outcome == Final:
		err := s.lease.complete(s.owner, s.verdict.answer, s.verdict.status, timeout)
		if !errors.Is(err, store.ErrNotOwner) {
			s.unrecorded = err
		}
		return err
	case s.verdict.lasting():
		return s.lease.hold(s.owner, timeout)
	default:
		return s.lease.release(s.owner, s.verdict.release, timeout)
	}
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

// goOn settles in the background until that succeeds, another run's answer stands in the
// way, the retention ends or the guard is shut down. Giving up any earlier is what makes
// duplicates: a store that is away for a minute would come back with a claim that lapses.
// Meanwhile the lease is renewed.
func (s *settlement) goOn(failures int, cause error) {
	core := s.lease.core
	held := int64(len(s.verdict.answer))
	if !core.pending.add(held) {
		s.shrink(errTooManyPending)
		held = int64(len(s.verdict.answer))
		if !core.pending.add(held) {
			s.giveUp(errTooManyPending)
			return
		}
	}
	if !core.work.enter() {
		core.pending.remove(held)
		s.giveUp(ErrShutdown)
		return
	}
	s.lease.forgetRun() // the answer is all that is kept
	s.lease.observe(event.Event{Kind: event.RecordingDelayed, Outcome: s.verdict.outcome, Err: cause})
	until := time.Now().Add(s.lease.claim.Retention)
	background := *s
	go func() {
		defer core.work.leave()
		defer core.pending.remove(held)
		background.tryUntil(until, failures)
	}()
}

func (s *settlement) tryUntil(until time.Time, failures int) {
	for n := failures; ; n++ {
		if !s.lease.core.work.pause(backoff(n)) {
			return // Shutdown gives it up and reports it, before it returns
		}
		if _, err := s.try(time.Now(), s.lease.sendTimeout(len(s.verdict.answer))); err == nil {
			s.end()
			return
		}
		if s.isTooLarge(s.lease.timeout()) {
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
	a = a.Brief(s.lease.set.maxResponseLen)
	stored, err := s.lease.set.seal(&a, s.lease.key, s.lease.claim.Fingerprint)
	if err != nil || len(stored) >= len(s.verdict.answer) {
		return
	}
	s.verdict.answer = stored
	s.lease.observe(e)
}

// fail notes, once, that the store has failed to take the verdict.
func (s *settlement) fail() {
	if !s.failed {
		s.failed = true
		s.lease.core.unsettled.add(s.lease)
	}
}

// end ends the lease: there is nothing left to do.
func (s *settlement) end() {
	if s.failed {
		s.lease.core.unsettled.remove(s.lease)
	}
	s.lease.end()
}

func (s *settlement) giveUp(err error) {
	if s.failed {
		s.lease.core.unsettled.remove(s.lease)
	}
	s.lease.giveUp(err)
}

// giveUp implements [debt]: it leaves a run that could not be settled to its lease. The client
// has its answer all the same.
func (l *lease) giveUp(err error) {
	if l.end() {
		l.observe(event.Event{Kind: event.RecordingLost, Err: err})
	}
}
