package storetest

import "strings"

func answerCases() []testCase {
	const binary = "x\x00\xff\r\n\r\n$5\r\n\"'\\%s{}\x1b\u2028\xc3\x28\x00"
	return []testCase{
		{"Answer/empty", roundTrip("")},
		{"Answer/one byte", roundTrip("\x00")},
		{"Answer/binary", roundTrip(binary)},
		{"Answer/64 KiB", roundTrip(strings.Repeat(binary, 64<<10/len(binary)))},
		{"Answer/10 MiB", roundTrip(strings.Repeat("0123456789abcde\n", 10<<20/16))},
		{"Answer/every reader gets the same bytes", answerShared},
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

// A store may hand out an answer without copying it. But the bytes that a reader has must
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
