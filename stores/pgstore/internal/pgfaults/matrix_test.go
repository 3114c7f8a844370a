package pgfaults

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/race"
	"example.com/idempotency/stores/pgstore/internal/pgtest"
)

// This file crosses faults, round trips, isolation levels and ways to commit. By default it takes a
// sample: PG_EXHAUSTIVE=1 in the environment runs all worlds, and PG_BUDGET=2m beside it those for which there
// is time. SEED=n repeats a choice, and PG_WORLDS=regexp chooses from all by what a failure calls them.

// exhaustive reports whether all worlds are wanted.
func exhaustive() bool { return os.Getenv("PG_EXHAUSTIVE") != "" }

// parallel is how many worlds run at a time. Most of the time they wait.
var parallel = 24 / slower

// crashServers is on how many servers worlds run that crash their server.
const crashServers = 3

// Whatever dies, and whenever it does: there is one row for the key, the answer tells of it, and
// nobody has to ask an operator.
func TestOneRowWhateverDies(t *testing.T) {
	if exhaustive() { // and nothing crashes the shared server
		t.Parallel()
	}
	for i, k := range kinds() {
		t.Run(string(k), func(t *testing.T) {
			s := newSite(t, pgtest.Shared(t), k)
			crashes, others := divide(s.worldsOf(t, promising...), func(w world) bool { return w.mode.crash })
			var c tally
			start, rng := time.Now(), newRand(t)
			if exhaustive() {
				end := within(t, func(_, left time.Duration) time.Duration { return left / time.Duration(len(kinds())-i) })
				c.count(s.runAll(t, sample(rng, others, len(others)), parallel, end))
			} else {
				share := 1
				if k != joined {
					share = len(kinds()) - 1
				}
				c.count(s.runAll(t, sample(rng, others, 66/slower/share), parallel, deadline{}))
				c.count(s.runAll(t, sample(rng, crashes, 3/share), 1, deadline{}))
			}
			c.check(t, start, s)
		})
	}
}

// kinds are those that promise one row, but for asynchronous claims, which differ from joined only when the
// server dies. The last one has the most worlds, and what is left of a budget.
// With the race detector, one level stands for all.
func kinds() (all []kind) {
	if race.Enabled {
		return []kind{whole + "read-committed", joined}
	}
	for _, level := range slices.Sorted(maps.Keys(levels)) {
		all = append(all, kind(whole+level))
	}
	return append(all, mixed, joined)
}

// promising are the ways that promise one row.
var promising = []string{"InTx", "another InTx", "failed InTx", "InSQLTx", "failed InSQLTx", "StepTx"}

// The same, if the server dies. It makes its log durable only when a commit waits for that, so a crash
// loses claims that are asynchronous.
func TestOneRowWhateverCrashes(t *testing.T) {
	if !exhaustive() {
		t.Skip("PG_EXHAUSTIVE is not set")
	}
	t.Parallel()
	for _, k := range append(kinds(), async) {
		t.Run(string(k), func(t *testing.T) {
			t.Parallel()
			crashes, _ := divide(newSite(t, pgtest.Shared(t), k).worldsOf(t, promising...), func(w world) bool { return w.mode.crash })
			crashes = sample(newRand(t), crashes, len(crashes))
			start := time.Now()
			// Of these kinds, three run at a time.
			end := within(t, func(whole, _ time.Duration) time.Duration { return whole / 3 })
			var sites []*site
			var c tally
			var counting sync.Mutex
			var all sync.WaitGroup
			for part := range slices.Chunk(crashes, (len(crashes)+crashServers-1)/crashServers) {
				s := newSite(t, pgtest.Start(t, "wal_writer_delay=10s"), k)
				sites = append(sites, s)
				all.Go(func() {
					played := s.runAll(t, part, 1, end)
					counting.Lock()
					defer counting.Unlock()
					c.count(played)
				})
			}
			all.Wait()
			c.check(t, start, sites...)
		})
	}
}

// The control: rows that are committed apart from the record. The worlds find the duplicates that
// this makes, so they would find others.
func TestRowsApartFromTheRecordAreDuplicated(t *testing.T) {
	server := pgtest.Shared(t)
	if exhaustive() {
		t.Parallel()
		server = pgtest.Start(t) // for so many connections
	}
	s := newSite(t, server, apart)
	_, worlds := divide(s.worldsOf(t, "apart"), func(w world) bool {
		return w.mode.crash || !exhaustive() && (w.mode.process || w.level != "read-committed")
	})
	var c tally
	start := time.Now()
	c.count(s.runAll(t, worlds, parallel, deadline{}))
	t.Logf("%s in %s", &c, time.Since(start).Round(time.Second))
	require.Positive(t, c.duplicates)
}

// worldsOf returns all worlds of the ways, by the round trips that each makes without a fault.
func (s *site) worldsOf(t *testing.T, ways ...string) (all []world) {
	t.Helper()
	var calm []world
	for _, way := range ways {
		for _, level := range slices.Sorted(maps.Keys(levels)) {
			if of, ok := s.kind.level(); !ok || of == level {
				calm = append(calm, world{way: way, level: level})
			}
		}
	}
	chosen, err := regexp.Compile(os.Getenv("PG_WORLDS"))
	require.NoError(t, err)
	for _, e := range s.runAll(t, calm, len(levels), deadline{}) {
		for len(e.wrong) == 0 && (len(e.refusals) > 0 || e.tries != 1) { // serializable transactions of other worlds may be in the way
			e = s.run(t.Context(), e.world)
		}
		require.Empty(t, e.wrong, "%s", e)
		for range 3 { // a renewal, or another world in the way, makes more of them
			if alone := s.run(t.Context(), e.world); len(alone.wrong) == 0 && len(alone.refusals) == 0 && alone.tries == 1 {
				e.trips = min(e.trips, alone.trips)
			}
		}
		t.Logf("%s %s: %d round trips", e.way, e.level, e.trips)
		for _, m := range modes {
			for trip := range e.trips {
				if w := (world{e.way, e.level, m, trip + 1}); chosen.MatchString(w.String()) {
					all = append(all, w)
				}
			}
		}
	}
	return all
}

// runAll runs worlds, some at a time, and returns what they have come to: those that begin before the deadline,
// and the first ones in any case.
func (s *site) runAll(t *testing.T, worlds []world, parallel int, until deadline) []*end {
	t.Helper()
	ends, n := make([]*end, len(worlds)), len(worlds)
	var all sync.WaitGroup
	room := make(chan struct{}, parallel)
	for i, w := range worlds {
		room <- struct{}{}
		if i >= parallel && until.over() {
			n = i
			break
		}
		all.Go(func() {
			defer func() { <-room }()
			for range 3 { // a renewal at another time moves the round trips
				if ends[i] = s.run(t.Context(), w); ends[i].final() {
					return
				}
			}
		})
	}
	all.Wait()
	return ends[:n]
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
	worlds, duplicates int
	refusals, byMode   map[string]int
	missed             []string // worlds without the round trip that was to fail, or without a verdict
	wrong              []string
}

func (c *tally) count(ends []*end) {
	if c.byMode == nil {
		c.byMode, c.refusals = make(map[string]int), make(map[string]int)
	}
	for _, e := range ends {
		if len(e.wrong) > 0 {
			c.wrong = append(c.wrong, e.String()+": "+strings.Join(e.wrong, "; "))
		}
		if !e.fired || e.unseen != "" {
			if !e.mode.pipelines || e.unseen != "" {
				c.missed = append(c.missed, fmt.Sprintf("%s: %s %v", e, e.unseen, e.refusals))
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

// check demands that nothing was wrong in the worlds of the sites.
func (c *tally) check(t *testing.T, start time.Time, sites ...*site) {
	t.Helper()
	t.Logf("%s in %s", c, time.Since(start).Round(time.Second))
	require.Empty(t, c.wrong, strings.Join(c.wrong, "\n"))
	require.Greater(t, c.worlds, 9*len(c.missed), "%v", c.missed)
	for _, s := range sites {
		require.Zero(t, s.spared.events.Count(event.Held))
	}
}

func (c *tally) String() string {
	return fmt.Sprintf("%d worlds %v, %d missed, %d with duplicates, replies %v", c.worlds, c.byMode, len(c.missed), c.duplicates, c.refusals)
}
