package storetest

import (
	"fmt"
	"strings"
	"time"

	"example.com/idempotency/store"
)

// What an operator sees of a record. The cases of what an operator does are in
// cases_inspector.go, and those of many records in cases_list.go.

var lookupCases = []testCase{
	{"Get/of an absent record", func(e *env) {
		e.refused(store.ErrNotFound).get()
		e.completed("answer")
		e.advance(ttl + margin)
		e.refused(store.ErrNotFound).get()
	}},
	// What a guard keeps of its own in a store has a name that no key has, and is a record like any other.
	{"Get/of a record of the library itself", func(e *env) {
		own := *e
		own.key = "." + e.key[1:]
		own.completed("mark")
		own.advance(ttl / 2)
		own.get().about(len("mark")).age(ttl / 2)
		e.absent()
		own.claim(bob).answer("mark")
		own.forget(own.get().Seen())
		own.refused(store.ErrNotFound).get()
	}},
	{"Get/tells what a claim tells", func(e *env) {
		e.claimed()
		e.advance(100 * time.Second)
		e.get().claimed(1).bound().lease(lease - 100*time.Second).ttl(retention - 100*time.Second).age(100 * time.Second)

		e.release(alice)
		e.get().released(1)
		e.claim(bob).mine(2)
		e.hold(bob)
		e.get().held(2)
		e.complete(bob, "answer")
		e.get().about(len("answer")).answerless().bound().ttl(ttl)
	}},
	// A dashboard that looks at a record runs nothing. Looking must not take the record over,
	// hold it, or keep it alive.
	{"Get/changes nothing", func(e *env) {
		e.lapsed()
		e.get().claimed(1).unprotected()
		e.renew(alice)
		e.advance(lease + margin)
		e.get()
		e.claim(bob).mine(2)
		e.advance(retention - margin)
		e.get()
		e.advance(2 * margin)
		e.absent()
	}},
	{"Get/a lapsed claim that says Hold is held", func(e *env) {
		e.claimed(holding)
		e.get().claimed(1)
		e.advance(lease + margin)
		e.get().held(1).unprotected()
	}},
	{"Get/returns the steps", func(e *env) {
		e.claimed()
		e.save(alice, "charge", "ch_1")
		e.get().steps("charge", "ch_1")
		e.save(alice, "mail", "sent")
		e.hold(alice)
		e.get().steps("charge", "ch_1", "mail", "sent")
	}},
	// A dashboard that looks at many records must not move all their answers.
	{"Get/leaves out the answer", func(e *env) {
		for _, size := range []int{0, 100, 20_000, 200_000} {
			e := e.on(fmt.Sprint(size))
			e.claimed()
			if r := e.get(); r.Status != 0 || r.Size != 0 {
				e.t.Errorf("Get of a claimed record: status %d and %d bytes", r.Status, r.Size)
			}
			e.complete(alice, strings.Repeat("x", size))
			e.get().about(size).answerless()
			e.claim(bob).answer(strings.Repeat("x", size)).about(size)
		}
	}},
	{"Get/tells status and size of an answer by hand", func(e *env) {
		e.held()
		e.resolve(heldBy(alice, 1), answered("resolved"))
		e.get().about(len("resolved")).answerless()
	}},
	{"GetAnswer/returns the answer", func(e *env) {
		for _, size := range []int{0, 100, 20_000, 200_000} {
			e, want := e.on(fmt.Sprint(size)), strings.Repeat("x", size)
			e.claimed()
			e.getAnswer().claimed(1)
			e.complete(alice, want)
			e.getAnswer().answer(want).bound().about(size)
		}
	}},
	{"GetAnswer/of an absent record", func(e *env) {
		e.refused(store.ErrNotFound).getAnswer()
	}},
}
