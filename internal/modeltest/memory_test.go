package modeltest

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/idempotency"
)

// A history without a kind of reply proves nothing about that kind. Every history must have
// these kinds.
var common = []string{
	"Claim: mine", "Claim: mine again", "Claim: claimed", "Claim: completed", "Claim: held",
	"Claim: other fingerprint",
	"Renew: ok", "Renew: not the owner of the claim",
	"Complete: ok", "Complete: not the owner of the claim",
	"Release: ok", "Release: not the owner of the claim",
	"Hold: ok", "Hold: not the owner of the claim",
	"SaveStep: not the owner of the claim",
	"Get: ok", "Resolve: record has changed",
	"Forget: ok", "Forget: record has changed",
}

// everything adds the kinds that a long history must have.
var everything = append([]string{"Claim: released", "SaveStep: ok", "Get: no such record", "Resolve: ok"}, common...)

// The callers meet in the store, with the real clock.
func TestMemoryStoreIsLinearizable(t *testing.T) {
	s := idempotency.NewMemoryStore()
	setting{
		clients: 8, calls: 10_000, lease: 2 * time.Millisecond,
		clock: since(0), pause: time.Sleep,
		perform: func(_ int, _ *rand.Rand, c call) (reply, int) { return perform(t.Context(), s, c), 0 },
	}.run(newSeed(t)).requireLinearizable(t, everything...)
}

// Calls are lost or come late, in a bubble where leases end to the nanosecond.
func TestMemoryStoreIsLinearizableWhenCallsAreLost(t *testing.T) {
	runInBubble(t, newSeed(t), 10_000, func() func(call) reply {
		s := idempotency.NewMemoryStore()
		return func(c call) reply { return perform(context.Background(), s, c) }
	}).
		requireLinearizable(t, slices.Concat(everything, []string{"Claim: lost"})...)
}

// runInBubble returns the history of clients that cannot rely on their network. The
// clock stands still while they make their calls, so that it does not matter how busy
// the machine is.
func runInBubble(t *testing.T, seed uint64, calls int, newStore func() (perform func(call) reply)) *history {
	t.Helper()
	var h *history
	synctest.Test(t, func(*testing.T) {
		perform := newStore()
		var late sync.WaitGroup
		defer late.Wait()
		h = setting{
			clients: 6, calls: calls, lease: 100, clock: since(0), pause: time.Sleep,
			perform: func(_ int, rng *rand.Rand, c call) (reply, int) {
				switch rng.IntN(40) {
				case 0: // the request is lost
					return reply{lost: true}, 1
				case 1: // the reply is lost
					_ = perform(c)
					return reply{lost: true}, 1
				case 2: // the request is late
					delay := upTo(rng, 200)
					late.Go(func() {
						time.Sleep(delay)
						_ = perform(c)
					})
					return reply{lost: true}, 1
				}
				return perform(c), 0
			},
		}.run(seed)
	})
	return h
}
