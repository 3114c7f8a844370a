package storetest

import (
	"fmt"
	"strings"
	"time"

	"example.com/idempotency/store"
)

// What an operator sees of a record. The cases of what an operator does are in
// cases_inspector.go, and those of many records in cases_list.go.

func lookupCases() []testCase {
	return []testCase{
		{"Get/of an absent record", getAbsent},
		{"Get/tells what a claim tells", getTells},
		{"Get/changes nothing", getChangesNothing},
		{"Get/a lapsed claim that says Hold is held", getLapsedHolding},
		{"Get/returns the steps", getSteps},
		{"Get/leaves out the answer", getAnswerless},
		{"Get/tells status and size of an answer by hand", getResolved},
		{"GetAnswer/returns the answer", getAnswer},
		{"GetAnswer/of an absent record", getAnswerAbsent},
	}
}

// get returns the record of the key. It fails the case if there is none.
func (e *env) get() store.Record {
	e.t.Helper()
	r, err := e.inspector().Get(e.ctx, key)
	e.ok("Get", err)
	return r
}

// about fails the case unless the record is completed and tells what an operator wants to
// know of the answer, but not the answer.
func (e *env) about(r store.Record, size int) {
	e.t.Helper()
	if r.State != store.Completed || r.Status != status || r.Size != int64(size) {
		e.t.Errorf("got %s with status %d and %d bytes, want completed, %d and %d", show(r), r.Status, r.Size, status, size)
	}
	if r.Answer != nil {
		e.t.Errorf("got the answer, which nobody has asked for: %d bytes", len(r.Answer))
	}
}

func getAbsent(e *env) {
	_, err := e.inspector().Get(e.ctx, key)
	e.refused("Get", err, store.ErrNotFound)
	e.completed("answer")
	e.advance(ttl + margin)
	_, err = e.inspector().Get(e.ctx, key)
	e.refused("Get of an expired record", err, store.ErrNotFound)
}

func getTells(e *env) {
	e.claimed()
	e.advance(10 * time.Second)
	r := e.get()
	e.notMine(r, store.Claimed, 1)
	e.bound(r)
	e.near("Lease", r.Lease, lease-10*time.Second)
	e.near("TTL", r.TTL, retention-10*time.Second)
	e.near("Age", r.Age, 10*time.Second)

	e.ok("Release", e.release(alice))
	e.notMine(e.get(), store.Released, 1)
	e.mine(e.claim(key, bob), 2)
	e.ok("Hold", e.store.Hold(e.ctx, key, bob))
	e.notMine(e.get(), store.Held, 2)
	e.ok("Complete", e.complete(bob, "answer"))
	r = e.get()
	e.about(r, len("answer"))
	e.bound(r)
	e.near("TTL", r.TTL, ttl)
}

// A dashboard that looks at a record runs nothing. Looking must not take the record over,
// hold it, or keep it alive.
func getChangesNothing(e *env) {
	e.claimed()
	e.advance(lease + margin)
	r := e.get()
	e.notMine(r, store.Claimed, 1)
	if r.Lease > 0 {
		e.t.Errorf("Lease: got %v of a lapsed claim", r.Lease)
	}
	e.ok("Renew", e.store.Renew(e.ctx, key, alice))
	e.advance(lease + margin)
	e.get()
	e.mine(e.claim(key, bob), 2)
	e.advance(retention - margin)
	e.get()
	e.advance(2 * margin)
	e.absent()
}

func getLapsedHolding(e *env) {
	e.claimed(holding)
	e.notMine(e.get(), store.Claimed, 1)
	e.advance(lease + margin)
	r := e.get()
	e.notMine(r, store.Held, 1)
	if r.Lease != 0 {
		e.t.Errorf("Lease: got %v of a held record, want 0", r.Lease)
	}
}

func getSteps(e *env) {
	e.inspector()
	e.claimed()
	e.ok("SaveStep", e.save(alice, "charge", "ch_1"))
	e.steps(e.get(), "charge", "ch_1")
	e.ok("SaveStep", e.save(alice, "mail", "sent"))
	e.ok("Hold", e.store.Hold(e.ctx, key, alice))
	e.steps(e.get(), "charge", "ch_1", "mail", "sent")
}

// A dashboard that looks at many records must not move all their answers.
func getAnswerless(e *env) {
	i := e.inspector()
	for _, size := range []int{0, 100, 20_000, 200_000} {
		key := keyOf(fmt.Sprint(size))
		e.mine(e.claim(key, alice), 1)
		r, err := i.Get(e.ctx, key)
		e.ok("Get", err)
		if r.Status != 0 || r.Size != 0 {
			e.t.Errorf("Get of a claimed record: status %d and %d bytes", r.Status, r.Size)
		}
		e.ok("Complete", e.store.Complete(e.ctx, key, alice, completion(strings.Repeat("x", size))))
		r, err = i.Get(e.ctx, key)
		e.ok("Get", err)
		e.about(r, size)
		r = e.claim(key, bob)
		e.answer(r, strings.Repeat("x", size))
		if r.Status != status || r.Size != int64(size) {
			e.t.Errorf("Claim: got status %d and %d bytes, want %d and %d", r.Status, r.Size, status, size)
		}
	}
}

func getResolved(e *env) {
	i := e.held()
	e.ok("Resolve", i.Resolve(e.ctx, key, heldBy(alice, 1), answered("resolved")))
	e.about(e.get(), len("resolved"))
}

func getAnswer(e *env) {
	i := e.inspector()
	for _, size := range []int{0, 100, 20_000, 200_000} {
		key, want := keyOf(fmt.Sprint(size)), strings.Repeat("x", size)
		e.mine(e.claim(key, alice), 1)
		r, err := i.GetAnswer(e.ctx, key)
		e.ok("GetAnswer of a claimed record", err)
		e.notMine(r, store.Claimed, 1)
		e.ok("Complete", e.store.Complete(e.ctx, key, alice, completion(want)))
		r, err = i.GetAnswer(e.ctx, key)
		e.ok("GetAnswer", err)
		e.answer(r, want)
		e.bound(r)
		r.Answer = nil
		e.about(r, size)
	}
}

func getAnswerAbsent(e *env) {
	_, err := e.inspector().GetAnswer(e.ctx, key)
	e.refused("GetAnswer", err, store.ErrNotFound)
}
