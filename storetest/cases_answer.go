package storetest

// The cases of what a store does with bytes: answers come back as they were given, and what is given or
// handed out does not change because somebody uses its memory again.

import (
	"strings"

	"example.com/idempotency/store"
)

func answerCases() []testCase {
	const binary = "x\x00\xff\r\n\r\n$5\r\n\"'\\%s{}\x1b\u2028\xc3\x28\x00"
	return []testCase{
		{"Answer/empty", roundTrip("")},
		{"Answer/one byte", roundTrip("\x00")},
		{"Answer/binary", roundTrip(binary)},
		{"Answer/64 KiB", roundTrip(strings.Repeat(binary, 64<<10/len(binary)))},
		{"Answer/10 MiB", roundTrip(strings.Repeat("0123456789abcde\n", 10<<20/16))},
		{"Answer/every reader gets the same bytes", answerShared},
		{"Copy/of an answer", answerCopied},
		{"Copy/of an answer given by hand", resolutionCopied},
		{"Copy/of a step", stepCopied},
		{"Copy/of a note", noteCopied},
		{"Copy/of a sealed key", sealedKeyCopied},
	}
}

// roundTrip returns a case that fails unless the answer is replayed byte by byte. An answer
// is opaque. It may contain what ends a string or a line in some protocol, and an empty
// answer is not a missing one.
func roundTrip(answer string) func(*env) {
	return func(e *env) {
		e.claimed()
		e.ok("Complete", e.complete(alice, answer))
		e.answer(e.claim(key, bob), answer)
		e.ok("repeated Complete", e.complete(alice, answer))
		e.answer(e.claim(key, bob), answer)
	}
}

// A store may hand out an answer without copying it again. But the bytes that a reader has must
// not change when the record ends and its memory is used again.
func answerShared(e *env) {
	e.completed("answer")
	first, second := e.claim(key, bob), e.claim(key, carol)
	e.advance(ttl + margin)
	e.mine(e.claim(key, carol), 1)
	e.ok("Complete", e.complete(carol, "rewsna"))
	e.answer(first, "answer")
	e.answer(second, "answer")
	e.answer(e.claim(key, bob), "rewsna")
}

// reuse writes to memory that a call was given. The call has returned, so the memory is the caller's.
func reuse(given []byte) {
	for i := range given {
		given[i] = '!'
	}
}

func answerCopied(e *env) {
	for i, text := range []string{"a", "answer", strings.Repeat("answer", 10_000)} {
		k, given := keyOf(text[:i+1]), []byte(text)
		e.mine(e.claim(k, alice), 1)
		e.ok("Complete", e.store.Complete(e.ctx, k, alice, store.Completion{Answer: given, TTL: ttl}))
		reuse(given)
		e.answer(e.claim(k, bob), text)
	}
}

func resolutionCopied(e *env) {
	i, given := e.held(), []byte("resolved")
	e.ok("Resolve", i.Resolve(e.ctx, key, heldBy(alice, 1), store.Settlement{
		Completion: &store.Completion{Answer: given, TTL: ttl},
	}))
	reuse(given)
	e.answer(e.claim(key, bob), "resolved")
}

func stepCopied(e *env) {
	s, given := e.stepStore(), []byte("value")
	e.claimed()
	e.ok("SaveStep", s.SaveStep(e.ctx, key, alice, "step", given))
	reuse(given)
	e.advance(lease + margin)
	e.steps(e.claim(key, bob), "step", "value")
}

func noteCopied(e *env) {
	given := []byte("note")
	e.claimed(func(c *store.Claim) { c.Note = given })
	reuse(given)
	e.notes(e.claim(key, bob), "note")
}

func sealedKeyCopied(e *env) {
	given := []byte("sealed")
	e.claimed(func(c *store.Claim) { c.SealedKey = given })
	reuse(given)
	e.sealedKey(key, "sealed")
}
