package pgfaults

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/pgstore/internal/pgtest"
)

// This file crosses faults, round trips, isolation levels and ways to commit. By default it takes a
// sample: PG_EXHAUSTIVE=1 in the environment runs all worlds, and SEED=n repeats a sample.

// exhaustive reports whether all worlds are wanted.
func exhaustive() bool { return os.Getenv("PG_EXHAUSTIVE") != "" }

// Most of the time worlds wait, so many of them run at a time.
const (
	parallel     = 24
	crashServers = 4 // on each of which one world at a time may crash the server
)

// Whatever dies, and whenever it does: there is one row for the key, the answer tells of it, and
// nobody has to ask an operator.
func TestOneRowWhateverDies(t *testing.T) {
	s := newSite(t, pgtest.Shared(t), true)
	all := s.worldsOf(t, "InTx", "InSQLTx", "StepTx")
	crashes, others := divide(all, func(w world) bool { return w.mode.crash })
	var c tally
	start := time.Now()
	if exhaustive() {
		var ends [][]*end
		var sites sync.WaitGroup
		for part := range slices.Chunk(crashes, (len(crashes)+crashServers-1)/crashServers) {
			own := newSite(t, pgtest.Start(t), true)
			ends = append(ends, make([]*end, len(part)))
			into := ends[len(ends)-1]
			sites.Go(func() { own.runAll(t, part, 1, into) })
		}
		c.count(s.runAll(t, others, parallel, nil))
		sites.Wait()
		c.count(slices.Concat(ends...))
	} else {
		rng := newRand(t)
		c.count(s.runAll(t, sample(rng, others, 66), parallel, nil))
		c.count(s.runAll(t, sample(rng, crashes, 3), 1, nil))
	}
	t.Logf("%s in %s", &c, time.Since(start).Round(time.Second))
	require.Empty(t, c.wrong, strings.Join(c.wrong, "\n"))
	require.Zero(t, s.spared.events.Count(idempotency.EventHeld))
	require.Greater(t, c.worlds, 9*c.missed)
}

// The control: rows that are committed apart from the record. The worlds find the duplicates that
// this makes, so they would find others.
func TestRowsApartFromTheRecordAreDuplicated(t *testing.T) {
	s := newSite(t, pgtest.Shared(t), false)
	_, worlds := divide(s.worldsOf(t, "apart"), func(w world) bool {
		return w.mode.crash || !exhaustive() && (w.mode.process || w.level != "read-committed")
	})
	var c tally
	start := time.Now()
	c.count(s.runAll(t, worlds, parallel, nil))
	t.Logf("%s in %s", &c, time.Since(start).Round(time.Second))
	require.Positive(t, c.duplicates)
}

// worldsOf returns all worlds of the ways, by the round trips that each makes without a fault.
func (s *site) worldsOf(t *testing.T, ways ...string) (all []world) {
	t.Helper()
	var calm []world
	for _, way := range ways {
		for _, level := range slices.Sorted(maps.Keys(levels)) {
			calm = append(calm, world{way: way, level: level})
		}
	}
	for _, e := range s.runAll(t, calm, len(levels), nil) {
		for len(e.refusals) > 0 { // serializable transactions of other worlds may be in the way
			e = s.run(t.Context(), e.world)
		}
		require.Empty(t, e.wrong, "%s", e)
		t.Logf("%s %s: %d round trips", e.way, e.level, e.trips)
		for _, m := range modes {
			for trip := range e.trips {
				all = append(all, world{e.way, e.level, m, trip + 1})
			}
		}
	}
	return all
}

// runAll runs worlds, some at a time. It returns what they have come to, in a slice that it may be
// given.
func (s *site) runAll(t *testing.T, worlds []world, parallel int, ends []*end) []*end {
	t.Helper()
	if ends == nil {
		ends = make([]*end, len(worlds))
	}
	var all sync.WaitGroup
	room := make(chan struct{}, parallel)
	for i, w := range worlds {
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			for range 3 { // a renewal at another time moves the round trips
				if ends[i] = s.run(t.Context(), w); ends[i].fired || w.trip == 0 || w.mode.pipelines || len(ends[i].wrong) > 0 {
					return
				}
			}
		})
	}
	all.Wait()
	return ends
}

func divide(worlds []world, f func(world) bool) (yes, no []world) {
	for _, w := range worlds {
		if f(w) {
			yes = append(yes, w)
		} else {
			no = append(no, w)
		}
	}
	return yes, no
}

// newRand returns the choices of SEED, or others.
func newRand(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if set := os.Getenv("SEED"); set != "" {
		var err error
		seed, err = strconv.ParseUint(set, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// sample returns n of the worlds.
func sample(rng *rand.Rand, worlds []world, n int) []world {
	rng.Shuffle(len(worlds), func(i, j int) { worlds[i], worlds[j] = worlds[j], worlds[i] })
	return worlds[:min(n, len(worlds))]
}

// A tally counts what worlds have come to.
type tally struct {
	worlds, missed, duplicates int // missed are those without the round trip that was to fail
	refusals                   map[string]int
	byMode                     map[string]int
	wrong                      []string
}

func (c *tally) count(ends []*end) {
	if c.byMode == nil {
		c.byMode, c.refusals = make(map[string]int), make(map[string]int)
	}
	for _, e := range ends {
		if len(e.wrong) > 0 {
			c.wrong = append(c.wrong, e.String()+": "+strings.Join(e.wrong, "; "))
		}
		if !e.fired {
			if !e.mode.pipelines {
				c.missed++
			}
			continue
		}
		c.worlds++
		c.byMode[e.mode.name]++
		if e.inserted > 1 {
			c.duplicates++
		}
		for refusal, n := range e.refusals {
			c.refusals[refusal] += n
		}
	}
}

func (c *tally) String() string {
	return fmt.Sprintf("%d worlds %v, %d missed, %d with duplicates, replies %v", c.worlds, c.byMode, c.missed, c.duplicates, c.refusals)
}
