package simulation

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
)

// TestFaultMatrix lets each of the first calls of each kind that a process makes to its
// store fail in each way there is, alone and two at a time, under each conduct of the
// handler and each recovery policy. A pair is tried if its second fault can be met where
// there is the first.
//
// In each world the handler runs as often as its conduct calls for and not once more,
// never without a claim it was told of, each time with a higher attempt; all clients that
// retry come to an end before a lease is over and are told the same, which is recorded
// before it is shown; and no goroutine and no timer is left.
func TestFaultMatrix(t *testing.T) {
	t.Parallel()
	var worlds atomic.Int64
	t.Run("worlds", func(t *testing.T) {
		for _, c := range conducts {
			for _, recovery := range []idempotency.Recovery{idempotency.Rerun, idempotency.Hold} {
				t.Run(fmt.Sprintf("%s under %s", c.name, recovery), func(t *testing.T) {
					t.Parallel()
					m := matrix{c, recovery, &worlds}
					m.explore(t)
				})
			}
		}
	})
	if !t.Failed() {
		t.Logf("%d worlds", worlds.Load())
		require.Greater(t, worlds.Load(), int64(2000))
	}
}

// A matrix is the worlds of one conduct and one policy.
type matrix struct {
	conduct  conduct
	recovery idempotency.Recovery
	worlds   *atomic.Int64 // in which all mishaps were suffered
}

func (m *matrix) explore(t *testing.T) {
	t.Helper()
	done := map[[2]mishap]bool{}
	for _, first := range reachable(m.try(t)) {
		for _, second := range reachable(m.try(t, first)) {
			if done[[2]mishap{second, first}] || first.op == second.op && first.n == second.n {
				continue
			}
			done[[2]mishap{first, second}] = true
			m.try(t, first, second)
		}
	}
}

// try makes one world, in a bubble of its own, and returns how many calls of each kind
// were made in it.
func (m *matrix) try(t *testing.T, mishaps ...mishap) (calls map[string]int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		defer func() {
			if t.Failed() {
				t.Logf("%+v", mishaps)
			}
		}()
		w := newFaultWorld(t, m.conduct, m.recovery, mishaps)
		calls = w.run()
		if w.suffered == len(mishaps) {
			m.worlds.Add(1)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	return calls
}

// reachable are the mishaps that a world with these calls can suffer: the first or the
// second call of each kind fails.
func reachable(calls map[string]int) (all []mishap) {
	for _, op := range guardtest.StoreOps {
		for n := range min(calls[op], 2) {
			for _, kind := range slices.Sorted(maps.Keys(mishapKinds)) {
				all = append(all, mishap{op, n + 1, kind})
			}
		}
	}
	return all
}
