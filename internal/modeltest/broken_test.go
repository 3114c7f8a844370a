package modeltest

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/store"
)

// A modelStore does what the model does, apart from its bug. It lives in a bubble.
type modelStore struct {
	bug

	mu      sync.Mutex
	records map[string]timedRecord
}

type timedRecord struct {
	record
	touched time.Time
}

// A bug changes what a modelStore does.
type bug struct {
	name string
	// before changes the question to the model, and after changes the answer.
	before func(q *question)
	after  func(q *question, e *ending)
	// race lets other calls in between looking and writing.
	race bool
}

// A question is what a store asks the model: how does this call end on this record?
type question struct {
	c call
	r record

	passed          time.Duration // since the record was touched
	lapsed, expired bool
}

// bugs are the bugs that the checker must see.
var bugs = []bug{
	{name: "all claims have the same owner", before: func(q *question) {
		q.c.owner = store.Owner{1}
		q.c.claim.Owner = q.c.owner
	}},
	{name: "a claim looks first and writes afterwards", race: true},
	{name: "a claim does not compare the fingerprint", before: func(q *question) {
		q.c.claim.Fingerprint = q.r.fingerprint
	}},
	{name: "a claim takes over before the lease has ended", before: func(q *question) {
		q.lapsed = q.lapsed || q.c.method == claim && q.passed > q.r.lease/2
	}},
	{name: "a repeated claim is refused", after: func(q *question, e *ending) {
		if e.mine && q.r.owner == q.c.owner {
			*e = ending{next: q.r, sees: true}
		}
	}},
	{name: "a repeated claim is the next attempt", after: func(q *question, e *ending) {
		if e.mine && q.r.owner == q.c.owner {
			e.next.attempt++
		}
	}},
	{name: "a repeated claim is not protected anew", after: func(q *question, e *ending) {
		if e.mine && q.r.owner == q.c.owner && !q.lapsed {
			e.touched = false
		}
	}},
	{name: "a repeated claim is held when its lease has ended", after: func(q *question, e *ending) {
		if e.mine && q.r.owner == q.c.owner && q.lapsed && q.r.hold {
			q.r.state = store.Held
			*e = ending{next: q.r, sees: true}
		}
	}},
	{name: "the attempt does not rise", after: func(q *question, e *ending) {
		if e.mine && q.r.attempt > 0 {
			e.next.attempt = q.r.attempt
		}
	}},
	{name: "a takeover forgets the steps", after: func(q *question, e *ending) {
		if e.mine && q.r.owner != q.c.owner {
			e.next.steps = steps{}
		}
	}},
	{name: "a takeover forgets the notes", after: func(q *question, e *ending) {
		if e.mine && q.r.attempt > 0 && q.r.owner != q.c.owner {
			e.next.notes = noteOf(q.c.owner)
		}
	}},
	{name: "a repeated claim leaves another note", after: func(q *question, e *ending) {
		if e.mine && q.r.attempt == e.next.attempt {
			e.next.notes += noteOf(q.c.owner)
		}
	}},
	{name: "a hold leaves the note", after: func(q *question, e *ending) {
		if q.c.method == hold {
			e.next.notes = q.r.notes
		}
	}},
	{name: "a takeover is not told", after: func(_ *question, e *ending) { e.next.tookOver = false }},
	{name: "a claim that is not granted leaves its label", after: func(q *question, e *ending) {
		if q.c.method == claim && !e.mine {
			e.next.label = labelOf(q.c.owner)
		}
	}},
	{name: "a lapsed claim is never held", before: func(q *question) {
		q.r.hold, q.c.claim.Hold = false, false
	}},
	{name: "a hold ends with the lease", before: func(q *question) {
		if q.c.method == claim && q.r.state == store.Held && q.passed > q.r.lease {
			q.r.state = store.Released
		}
	}},
	{name: "a release forgets the record", after: func(q *question, e *ending) {
		if q.c.method == release && e.err == nil {
			e.next = record{}
		}
	}},
	{name: "a release forgets the fingerprint", before: func(q *question) {
		if q.c.method == claim && q.r.state == store.Released {
			q.r.fingerprint = q.c.claim.Fingerprint
		}
	}},
	{name: "a release forgets the attempt", after: func(q *question, e *ending) {
		if e.mine && q.r.state == store.Released {
			e.next.attempt = 1
		}
	}},
	{name: "Keep is ignored", before: func(q *question) { q.c.release.Keep = 0 }},
	{name: "an unbound record stays bound", before: func(q *question) {
		if q.c.method == claim {
			q.r.unbound = false
		}
	}},
	{name: "a record is unbound whatever was done under it", before: func(q *question) {
		if q.c.method == release && q.c.release.Undone {
			q.r.blank = true
		}
	}},
	{name: "an unused claim binds an unbound record", before: func(q *question) {
		if q.c.method == release {
			q.c.release.Unused = false
		}
	}},
	{name: "an unused claim unbinds the record", before: func(q *question) {
		if q.c.method == release && q.c.release.Unused {
			q.c.release.Unbind = true
		}
	}},
	{name: "a run that has done nothing leaves an unbound record unbound", before: func(q *question) {
		if q.c.method == release {
			q.c.release.Unused = true
		}
	}},
	{name: "a run leaves an unbound record unbound", after: func(q *question, e *ending) {
		if q.c.method == release && e.err == nil {
			e.next.unbound = e.next.unbound || q.r.unbound && !q.c.release.Undone
		}
	}},
	{name: "one who waits is granted a released record", before: func(q *question) {
		q.c.claim.Watch = false
	}},
	{name: "a delayed claim revives what was released", before: func(q *question) {
		if q.c.method == claim && q.r.state == store.Released {
			q.r.owner = store.Owner{}
		}
	}},
	strangersMay(renew),
	strangersMay(complete),
	strangersMay(release),
	strangersMay(hold),
	strangersMay(saveStep),
	{name: "Complete is refused after the lease", after: func(q *question, e *ending) {
		if q.c.method == complete && q.lapsed {
			*e = ending{next: q.r, err: store.ErrNotOwner}
		}
	}},
	{name: "Complete is accepted after Release", before: func(q *question) {
		if q.c.method == complete && q.r.state == store.Released {
			q.r.state = store.Claimed
		}
	}},
	{name: "a second Complete overwrites the answer", after: func(q *question, e *ending) {
		if q.c.method == complete && e.err == nil {
			e.next.answer = q.c.answer
		}
	}},
	{name: "a repeated Release is refused", after: func(q *question, e *ending) {
		if q.c.method == release && q.r.state == store.Released {
			e.err = store.ErrNotOwner
		}
	}},
	{name: "Renew changes nothing", after: func(q *question, e *ending) {
		if q.c.method == renew {
			e.touched = false
		}
	}},
	{name: "an answer is served after its TTL", before: func(q *question) {
		q.expired = q.expired && (q.r.state != store.Completed || q.passed > 2*q.r.kept)
	}},
	{name: "reading an answer prolongs it", after: func(q *question, e *ending) {
		if e.sees && q.r.state == store.Completed {
			e.touched = true
		}
	}},
	{name: "Resolve does not compare the attempt", before: func(q *question) {
		if q.c.method == resolve {
			q.c.seen.Attempt = q.r.attempt
		}
	}},
	{name: "a lookup returns no answer", before: func(q *question) {
		if q.c.method == answer {
			q.c.method = get
		}
	}},
	{name: "every lookup returns the answer", before: func(q *question) {
		if q.c.method == get {
			q.c.method = answer
		}
	}},
	{name: "Resolve leaves the undone steps", after: func(q *question, e *ending) {
		if q.c.method == resolve {
			e.next.steps = q.r.steps
		}
	}},
	{name: "Resolve does not compare the undone steps", before: func(q *question) {
		if q.c.method == resolve {
			for i := range q.c.undone {
				if q.c.undone[i] != "" {
					q.c.undone[i] = q.r.steps[i]
				}
			}
		}
	}},
	{name: "Resolve takes the decision of somebody else for its own", before: func(q *question) {
		if q.c.method == resolve && q.r.byHand {
			q.c.note = ""
		}
	}},
	{name: "Resolve keeps no decision", after: func(q *question, e *ending) {
		if q.c.method == resolve {
			e.next.decisions = q.r.decisions
		}
	}},
	{name: "a claim drops the decisions", after: func(q *question, e *ending) {
		if q.c.method == claim && e.mine {
			e.next.decisions = ""
		}
	}},
	{name: "Forget does not compare the state", before: func(q *question) {
		if q.c.method == forget {
			q.c.seen.State = q.r.seen(q.lapsed).State
		}
	}},
	{name: "Forget does not compare the attempt", before: func(q *question) {
		if q.c.method == forget {
			q.c.seen.Attempt = q.r.attempt
		}
	}},
	{name: "Resolve does not compare the owner", before: func(q *question) {
		if q.c.method == resolve {
			q.c.seen.Owner = q.r.owner
		}
	}},
	{name: "Forget does not compare the owner", before: func(q *question) {
		if q.c.method == forget {
			q.c.seen.Owner = q.r.owner
		}
	}},
	{name: "Forget takes a live claim", before: func(q *question) {
		q.lapsed = q.lapsed || q.c.method == forget
	}},
}

// strangersMay is the bug that a method does not compare the owner.
func strangersMay(m method) bug {
	return bug{name: string(m) + " does not compare the owner", before: func(q *question) {
		if q.c.method == m {
			q.c.owner = q.r.owner
		}
	}}
}

func (s *modelStore) do(c call) reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.records[c.key]
	q := &question{c: c, r: r.record, passed: time.Since(r.touched)}
	for _, phase := range r.phases() {
		if phase.from <= q.passed && q.passed < phase.to {
			q.lapsed, q.expired = phase.lapsed, phase.expired
		}
	}
	if s.race && c.method == claim {
		s.mu.Unlock()
		time.Sleep(time.Nanosecond) // of the bubble: lets the others in
		s.mu.Lock()
	}
	if s.before != nil {
		s.before(q)
	}
	if q.expired {
		q.r = record{}
	}
	e := q.r.endings(q.c, q.lapsed)[0]
	if s.after != nil {
		s.after(q, &e)
	}
	if e.touched {
		r.touched = time.Now()
	}
	s.records[c.key] = timedRecord{e.next, r.touched}
	return e.reply(q.c, q.passed, q.lapsed)
}

// A checker that accepts everything is green too, so the checker must see each bug in each
// of ten tries. The rarest bug shows in one of six histories. A try has a hundred
// histories, and misses such a bug once in 10^7. The 10,000 calls of a test of a real
// store are as many as twenty histories.
func TestTheCheckerSeesEveryBug(t *testing.T) {
	for _, b := range bugs {
		t.Run(b.name, func(t *testing.T) {
			seed := newSeed(t)
			rng := rand.New(rand.NewPCG(seed, 0))
			for try := range 10 {
				require.True(t, caught(t, b, rng), "SEED=%d: not seen in try %d", seed, try)
			}
		})
	}
}

// The model explains the store without a bug. So what the checker sees is the bug.
func TestTheCheckerAcceptsTheModel(t *testing.T) {
	seed := newSeed(t)
	require.False(t, caught(t, bug{}, rand.New(rand.NewPCG(seed, 0))), "SEED=%d", seed)
}

// caught reports whether the checker rejects what clients of a store with that bug see.
func caught(t *testing.T, b bug, rng *rand.Rand) bool {
	t.Helper()
	for range 100 {
		h := runInBubble(t, rng.Uint64(), 500, func() func(call) reply {
			return (&modelStore{bug: b, records: make(map[string]timedRecord)}).do
		})
		if _, ok := h.linearizable(t); !ok {
			return true
		}
	}
	return false
}
