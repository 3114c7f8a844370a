package storetest

// The cases of what a store does with bytes: answers come back as they were given, and what is given or
// handed out does not change because somebody uses its memory again.

import (
	"strings"

	"example.com/idempotency/store"
)

const binary = "x\x00\xff\r\n\r\n$5\r\n\"'\\%s{}\x1b\u2028\xc3\x28\x00"

var answerCases = []testCase{
	{"Answer/empty", roundTrip("", 1)},
	{"Answer/one byte", roundTrip("\x00", 1)},
	{"Answer/binary", roundTrip(binary, 1)},
	{"Answer/64 KiB", roundTrip(binary, 64<<10/len(binary))},
	{"Answer/10 MiB", roundTrip("0123456789abcde\n", 10<<20/16)},
	// A store may hand out an answer without copying it again. But the bytes that a reader has must
	// not change when the record ends and its memory is used again.
	{"Answer/every reader gets the same bytes", func(e *env) {
		e.completed("answer")
		first, second := e.claim(bob), e.claim(carol)
		e.advance(ttl + margin)
		e.claim(carol).mine(1)
		e.complete(carol, "rewsna")
		first.answer("answer")
		second.answer("answer")
		e.claim(bob).answer("rewsna")
	}},
	{"Copy/of an answer", func(e *env) {
		for i, text := range []string{"a", "answer", strings.Repeat("answer", 10_000)} {
			e, given := e.on(text[:i+1]), []byte(text)
			e.claimed()
			e.completeWith(alice, store.Completion{Answer: given, TTL: ttl})
			reuse(given)
			e.claim(bob).answer(text)
		}
	}},
	{"Copy/of an answer given by hand", func(e *env) {
		e.held()
		by := answered("resolved")
		e.resolve(heldBy(alice, 1), by)
		reuse(by.Completion.Answer)
		e.claim(bob).answer("resolved")
	}},
	{"Copy/of a step", func(e *env) {
		given := []byte("value")
		e.claimed()
		e.returned("SaveStep", optional[store.StepStore](e).SaveStep(e.ctx, e.key, alice, "step", given))
		reuse(given)
		e.advance(lease + margin)
		e.claim(bob).steps("step", "value")
	}},
	{"Copy/of a note", func(e *env) {
		given := []byte("note")
		e.claimed(func(c *store.Claim) { c.Note = given })
		reuse(given)
		e.claim(bob).notes("note")
	}},
	{"Copy/of a sealed key", func(e *env) {
		given := []byte("sealed")
		e.claimed(func(c *store.Claim) { c.SealedKey = given })
		reuse(given)
		e.sealedKey("sealed")
	}},
}

// roundTrip returns a case that fails unless the answer, n times the part, is replayed byte by byte. An
// answer is opaque. It may contain what ends a string or a line in some protocol, and an empty
// answer is not a missing one.
func roundTrip(part string, n int) func(*env) {
	return func(e *env) {
		answer := strings.Repeat(part, n)
		e.completed(answer)
		e.claim(bob).answer(answer)
		e.complete(alice, answer)
		e.claim(bob).answer(answer)
	}
}

// reuse writes to memory that a call was given. The call has returned, so the memory is the caller's.
func reuse(given []byte) {
	for i := range given {
		given[i] = '!'
	}
}
