package simulation

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSimulation runs random worlds: several processes with their own guards share a
// store and serve clients that retry, while processes crash and are paused, the store is
// away, and calls of the store are refused, lost, delayed and delivered twice. A ledger
// at the store and at each handler checks what the library promises, at every step.
//
// In the first mode the faults never end, and nothing wrong may happen. In the second
// they end, and from then on every client has to get its last word in time.
//
// A world is determined by its seed. SEED=n repeats one, SEEDS=n tries so many: 200 unless it says
// otherwise, or 1000 with SIMULATION_EXHAUSTIVE=1. Half of the worlds are new at each run. The others are always the same, and they decide whether
// enough happens: the choice of a random seed must not.
func TestSimulation(t *testing.T) {
	t.Parallel()
	usual := uint64(200 / share)
	if exhaustive {
		usual = 1000
	}
	first, seeds := simSeeds(t, usual)
	for _, mode := range []simMode{safety, liveness} {
		t.Run(string(mode), func(t *testing.T) {
			var seen, always simTotals
			for seed := range seeds / 2 {
				always.add(simulate(t, seed, mode).seen)
			}
			for seed := first; seed < first+(seeds+1)/2; seed++ {
				seen.add(simulate(t, seed, mode).seen)
			}
			t.Logf("the worlds that are always the same: %v", always)
			t.Logf("SEED=%d SEEDS=%d: %v", first, seeds, seen)
			for what, n := range always { // a world in which nothing happens proves nothing
				floor := int(seeds) / 200
				switch what {
				case simGaveWay, simSupplanted:
					floor = 0 // it takes three coincidences
				case simEnded, simFenced:
					floor = 1 // nobody may ask for two leases, or a commit must be late
				}
				require.True(t, seeds < 1000 || n >= floor, "only %d %s", n, simNames[what])
			}
		})
	}
}

// TestSimulationIsDeterministic is what a seed in a failure report is worth. One world in some thousands can go two
// ways: two calls of it get their slots at the same instant.
func TestSimulationIsDeterministic(t *testing.T) {
	t.Parallel()
	first, seeds := simSeeds(t, uint64(25/share))
	forks := 0
	for seed := first; seed < first+seeds; seed++ {
		for _, mode := range []simMode{safety, liveness} {
			once := simulate(t, seed, mode).story(everyKey)
			again := simulate(t, seed, mode).story(everyKey)
			require.Greater(t, strings.Count(once, "\n"), 20)
			if once != again {
				forks++
				require.Less(t, forks, 2, "SEED=%d\n%s\n%s", seed, once, again)
			}
		}
	}
}

// simSeeds returns the first seed, and how many to try: as many as usual, unless the
// environment says otherwise.
func simSeeds(t *testing.T, usual uint64) (first, seeds uint64) {
	t.Helper()
	from := func(name string, otherwise uint64) (n uint64, given bool) {
		s, given := os.LookupEnv(name)
		if !given {
			return otherwise, false
		}
		n, err := strconv.ParseUint(s, 10, 64)
		require.NoError(t, err, name)
		return n, true
	}
	first, given := from("SEED", rand.Uint64N(1e12))
	if given {
		usual = 1
	}
	seeds, _ = from("SEEDS", usual)
	return first, seeds
}

// simulate runs one world in a bubble, whose end proves that no goroutine is left. If one of its
// goroutines panics or hangs, the whole binary ends, and the labels in the traceback tell the seed.
func simulate(t *testing.T, seed uint64, mode simMode) (w *simulation) {
	t.Helper()
	world := pprof.Labels("SEED", strconv.FormatUint(seed, 10), "mode", string(mode))
	pprof.Do(t.Context(), world, func(context.Context) { w = runWorld(t, seed, mode) })
	return w
}

func runWorld(t *testing.T, seed uint64, mode simMode) (w *simulation) {
	t.Helper()
	defer func() {
		require.Nil(t, recover(), "SEED=%d %v", seed, mode)
	}()
	synctest.Test(t, func(t *testing.T) {
		defer func() { // also if a check has ended the world
			if t.Failed() {
				t.Logf("%s\n%v: SEED=%d", w.story(w.suspect), mode, seed)
			}
		}()
		w = newSimulation(t, seed, mode)
		w.run()
	})
	return w
}

type simMode string

const (
	safety   simMode = "safety"   // faults all the way
	liveness simMode = "liveness" // faults end
)

// simTotals count what happens in a world.
type simTotals [len(simNames)]int

const (
	simRuns = iota
	simReplays
	simTakeovers
	simHeld
	simReused
	simGhosts
	simCrashes
	simPending
	simStale
	simLost
	simSteps
	simGaveWay
	simVanished
	simRecognised
	simUnprotected
	simDecided
	simPassedOn
	simForeign
	simHeldForever
	simBulky
	simRebound
	simEnded
	simInDoubt
	simSevered
	simCommitted
	simRolledBack
	simLookedUp
	simFenced
	simSupplanted
)

var simNames = [...]string{
	"runs", "replays", "takeovers", "told that the outcome is unknown", "told that the key is another's",
	"claims given back", "crashes", "answers shown before they are recorded", "completions refused", "leases lost",
	"steps found", "refusals that gave way",
	"records that vanished", "effects that came again and were recognised", "unprotected runs", "decisions", "requests passed on",
	"records of another version", "keys held for a year", "answers too bulky to keep",
	"keys bound anew", "records that ended with nothing done",
	"answers to runs of unknown outcome", "connections severed",
	"transactions committed", "clients told of a rollback", "commits of unknown fate", "commits of others' claims refused",
	"answers beside another payload's record",
}

func (s *simTotals) add(o simTotals) {
	for i := range s {
		s[i] += o[i]
	}
}

func (s simTotals) String() string {
	var b strings.Builder
	for i, n := range s {
		fmt.Fprintf(&b, ", %d %s", n, simNames[i])
	}
	return b.String()[2:]
}

// A simEvent is a line of a world's story.
type simEvent struct {
	at      time.Duration
	key     int
	request string
	what    string
	attempt int
	note    string
}

const everyKey = -1

// story tells what has happened to a key, or to all. What happens at the same instant
// does not depend on each other, and is put in order here.
func (w *simulation) story(key int) string {
	slices.SortStableFunc(w.events, func(a, b simEvent) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.key, b.key), cmp.Compare(a.request, b.request), cmp.Compare(a.what, b.what))
	})
	var b strings.Builder
	v := w.versions[0]
	fmt.Fprintf(&b, "%s, lease %v, %v, wait %v, calm after %v\n", w.kind, v.lease, v.recovery, v.wait, w.calm)
	for _, e := range w.events {
		if key == everyKey || e.key == everyKey || e.key == key {
			fmt.Fprintf(&b, "%14v  key %d  %-12s %s", e.at, e.key, e.request, e.what)
			if e.attempt > 0 {
				fmt.Fprintf(&b, " as attempt %d", e.attempt)
			}
			fmt.Fprintf(&b, "  %s\n", e.note)
		}
	}
	return b.String()
}
