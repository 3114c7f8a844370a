package simulation

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/race"
)

// TestFaultMatrix lets each of the first calls of each kind that a process makes to its
// store fail in each way there is, under each conduct of the handler and each recovery policy.
// With SIMULATION_EXHAUSTIVE=1 they fail two at a time as well: a pair is tried if its second fault
// can be met where there is the first.
//
// In each world the handler runs as often as its conduct calls for and not once more,
// never without a claim it was told of, each time with a higher attempt; all clients that
// retry come to an end before a lease is over and are told the same, which is recorded
// before it is shown; and no goroutine and no timer is left.
//
// The same worlds are tried in company: an operator decides, or the record is lost, before each
// of those calls; and with each fault there is another version of the service, or a guard in front
// of the guard. See [company].
func TestFaultMatrix(t *testing.T) {
	t.Parallel()
	worlds := make([]atomic.Int64, len(companies))
	t.Run("worlds", func(t *testing.T) {
		for i, company := range companies {
			for _, c := range conducts {
				for _, recovery := range []idempotency.Recovery{idempotency.Rerun, idempotency.Hold} {
					if !company.has(c) {
						continue
					}
					t.Run(fmt.Sprintf("%s %s under %s", c.name, company.name, recovery), func(t *testing.T) {
						m := matrix{company, c, recovery, &worlds[i]}
						m.explore(t)
					})
				}
			}
		}
	})
	if !t.Failed() {
		for i, company := range companies {
			t.Logf("%d worlds %s", worlds[i].Load(), company.name)
			if exhaustive {
				require.Greater(t, worlds[i].Load(), company.least)
			}
		}
	}
}

// A matrix is the worlds of one conduct and one policy, in one company.
type matrix struct {
	company  *company
	conduct  conduct
	recovery idempotency.Recovery
	worlds   *atomic.Int64 // in which all mishaps were suffered
}

var exhaustive = os.Getenv("SIMULATION_EXHAUSTIVE") != "" && !race.Enabled

// Only one world in so many is tried with the race detector, with which each takes ten times as long. What goes
// on beside something else is the same in all of them.
var share = map[bool]int{true: 5, false: 1}[race.Enabled]

func (m *matrix) explore(t *testing.T) {
	t.Helper()
	done := map[[2]mishap]bool{}
	var seconds []string
	if exhaustive {
		seconds = m.company.second
	}
	for _, first := range m.reachable(m.company.first, m.try(t)) {
		if rand.IntN(share) != 0 {
			continue
		}
		for _, second := range m.reachable(seconds, m.try(t, first)) {
			sameFault := isFault(first) && isFault(second) && first.op == second.op && first.n == second.n
			if done[[2]mishap{second, first}] || sameFault {
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
		w := newFaultWorld(t, m, mishaps)
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

// reachable are the mishaps of these kinds that a world with these calls can suffer: at the
// first or the second call of each kind.
func (m *matrix) reachable(kinds []string, calls map[string]int) (all []mishap) {
	for _, op := range guardtest.StoreOps {
		for n := range min(calls[op], 2) {
			for _, kind := range kinds {
				if m.recovery == idempotency.Hold || !isAboutHeld(kind) {
					all = append(all, mishap{op, n + 1, kind})
				}
			}
		}
	}
	return all
}

// A mishap is what happens at the nth call of one kind: a fault that it suffers, or an act of
// somebody else right before it.
type mishap struct {
	op   string
	n    int
	kind string
}

func isFault(m mishap) bool { return faults[m.kind] != nil }

// faults are the ways in which a call can fail, as its caller and its store see it.
var faults = map[string]guardtest.Fault{
	"refused":            guardtest.Refuse,
	"reply lost":         guardtest.LoseReply,
	"hangs":              guardtest.Hang,
	"executed and hangs": mute,
	"executed late":      guardtest.Late(5 * time.Second), // when nobody waits for it any more
}

var eachFault = slices.Sorted(maps.Keys(faults))

// mute executes the call and waits for the caller to give up.
func mute(ctx context.Context, proceed func() error) error {
	_ = proceed()
	<-ctx.Done()
	return ctx.Err()
}
