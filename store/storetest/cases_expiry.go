package storetest

import (
	"fmt"
	"time"

	"example.com/idempotency/store"
)

var expiryCases = []testCase{
	// Until the TTL ends there is one answer. After that the key is as good as new.
	{"Expiry/an answer is kept until its TTL ends", func(e *env) {
		e.completed("answer")
		e.advance(ttl - margin)
		e.claim(bob).answer("answer")
		e.advance(2 * margin)
		e.absent()
	}},
	// A run may take long. The TTL that the client was promised begins when there is an answer
	// to replay.
	{"Expiry/the TTL runs from Complete", func(e *env) {
		e.claimed()
		e.advance(retention - 10*time.Minute)
		e.complete(alice, "answer")
		e.claim(bob).ttl(ttl)
		e.advance(ttl - margin)
		e.claim(bob).answer("answer")
	}},
	{"Expiry/a short TTL ends before the retention", func(e *env) {
		e.claimed()
		e.completeWith(alice, store.Completion{Answer: []byte("answer"), TTL: 10 * time.Minute})
		e.claim(bob).ttl(10 * time.Minute)
		e.advance(10*time.Minute - margin)
		e.claim(bob).answer("answer")
		e.advance(2 * margin)
		e.absent()
	}},
	// A client that asks again and again must not keep its record for ever.
	{"Expiry/reading does not prolong it", func(e *env) {
		e.completed("answer")
		for range 4 {
			e.advance(ttl/4 - 10*time.Second)
			e.claim(bob).answer("answer")
		}
		e.advance(60 * time.Second)
		e.absent()
	}},
	// A run that nobody takes over and nobody ends must not block its key for ever. It also has
	// no right to a record that is gone.
	{"Expiry/a claimed record ends with its retention", func(e *env) {
		e.claimed()
		e.advance(retention - margin)
		e.mismatch(store.Claimed, 1)
		e.advance(2 * margin)
		e.refused(store.ErrNotOwner).complete(alice, "answer")
		e.refused(store.ErrNotOwner).renew(alice)
		e.absent()
	}},
	{"Expiry/a released record ends with its retention", func(e *env) {
		e.released()
		e.advance(retention + margin)
		e.absent()
	}},
	// Nobody may run until somebody has looked. Time alone tells nothing about the outcome.
	{"Expiry/a held record has no end", func(e *env) {
		e.held()
		e.advance(100 * retention)
		e.claim(bob).held(1).endless().age(100 * retention)
		e.complete(alice, "answer")
		e.claim(bob).ttl(ttl)
		e.advance(ttl + margin)
		e.absent()
	}},
	// The process died. Whether anybody asks for the key soon after makes no difference.
	{"Expiry/a claim that says Hold has no end", func(e *env) {
		e.claimed(holding)
		e.claim(bob).claimed(1).lease(lease).endless()
		e.advance(100 * retention)
		e.claim(bob).held(1)
		e.advance(100 * retention)
		e.claim(bob).held(1).endless().age(200 * retention)
	}},
	{"Expiry/a lapsed claim found by a Hold has no end", func(e *env) {
		e.lapsed()
		e.claim(bob, holding, holdEnding).held(1).age(lease + margin).endless() // only the record's own claim can set its end
		e.advance(100 * retention)
		e.claim(bob).held(1)
	}},
	// Once it is known that nothing has happened, the record is one like any other.
	{"Expiry/a claim that says Hold ends once it is released", func(e *env) {
		e.released(holding)
		e.claim(alice).released(1).ttl(retention)
		e.advance(retention + margin)
		e.absent()
	}},
	{"Expiry/a held record ends with its retention if its claim says so", func(e *env) {
		e.held(holdEnding)
		e.claim(bob).ttl(retention)
		e.advance(retention + margin)
		e.absent()

		other := e.on("other key")
		other.lapsed(holding, holdEnding)
		other.claim(bob).held(1).ttl(retention - lease - margin)
		e.advance(retention - lease)
		other.claim(bob).mine(1)
	}},
	// A store may remove expired records when it likes, but it must not serve them until then.
	{"Expiry/many records end at once", func(e *env) {
		const n = 1000
		for i := range n {
			e.on(fmt.Sprint(i)).completed("answer")
		}
		e.advance(ttl + margin)
		for i := range n {
			e.on(fmt.Sprint(i)).claim(bob).mine(1)
		}
	}},
	// The times of a record come from the store's clock, not from the caller's.
	{"Expiry/a record reports its times", func(e *env) {
		e.completed("answer")
		e.advance(200 * time.Minute)
		e.claim(bob).ttl(ttl - 200*time.Minute).age(200 * time.Minute)

		e.advance(ttl)
		e.released()
		e.advance(10 * time.Minute)
		e.claim(carol, mismatching).released(1).ttl(retention - 10*time.Minute).age(10 * time.Minute)
	}},
}
