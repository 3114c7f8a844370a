package storetest

import (
	"context"
	"strings"

	"example.com/idempotency"
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
	}
}

// roundTrip returns a case that fails unless the answer is replayed byte by byte. An
// answer is opaque: it may look like the end of a string or of a line to whatever
// carries it, and it may be empty without being missing.
func roundTrip(answer string) func(*env) {
	return func(e *env) {
		e.claimed()
		e.ok("Complete", e.complete(alice, answer))
		e.answer(e.claim(key, bob), answer)
		e.ok("repeated Complete", e.complete(alice, answer))
		e.answer(e.claim(key, bob), answer)
	}
}

// A store may hand out what it keeps without copying, but what one reader holds must
// not change when the record ends and its memory is used for another.
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

func contextCases() []testCase {
	return []testCase{
		{"Context/a cancelled Claim can be repeated", contextClaim},
		{"Context/a cancelled Complete can be repeated", contextComplete},
		{"Context/a cancelled Release can be repeated", contextRelease},
	}
}

// cancelled returns a context that is already over.
func (e *env) cancelled() context.Context {
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	return ctx
}

// unknown fails the case if err is nil: a caller whose context is over must not go on
// as if nothing had happened. Whether the call took effect is left open, as it is when
// a server is cut off in the middle of it.
func (e *env) unknown(call string, err error) {
	e.t.Helper()
	if err == nil {
		e.t.Fatalf("%s with a cancelled context: got no error", call)
	}
}

func contextClaim(e *env) {
	_, err := e.store.Claim(e.cancelled(), key, idempotency.Claim{
		Owner: alice, Fingerprint: payload, Lease: lease, Retention: retention,
	})
	e.unknown("Claim", err)
	e.mine(e.claim(key, alice), 1)
	e.notMine(e.claim(key, bob), idempotency.StateClaimed, 1)
}

func contextComplete(e *env) {
	e.claimed()
	e.unknown("Renew", e.store.Renew(e.cancelled(), key, alice))
	e.unknown("Complete", e.store.Complete(e.cancelled(), key, alice, []byte("answer"), ttl))
	e.ok("repeated Complete", e.complete(alice, "answer"))
	e.answer(e.claim(key, bob), "answer")
}

func contextRelease(e *env) {
	e.claimed()
	e.unknown("Release", e.store.Release(e.cancelled(), key, alice))
	e.ok("repeated Release", e.store.Release(e.ctx, key, alice))
	e.mine(e.claim(key, bob), 2)
	e.unknown("Hold", e.store.Hold(e.cancelled(), key, bob))
	e.ok("repeated Hold", e.store.Hold(e.ctx, key, bob))
	e.notMine(e.claim(key, carol), idempotency.StateHeld, 2)
}
