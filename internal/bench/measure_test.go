package bench_test

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"example.com/idempotency/internal/load"
)

// A row is one line of a table: a kind of request, and what was measured of it.
type row struct {
	name  string
	floor *row // what its time is divided by; nil if others are divided by its own
	bare  *row // what its allocations are counted above; nil likewise

	// prepare returns, for each worker, what makes request i of n and tells whether it
	// was answered as it must be. It runs outside of the measurement.
	prepare func(workers, n int) []func(i int) bool
	size    int // of a batch: the requests of one worker between two calls of prepare
	// workers do the work side by side, each with a core; 0 is one, with all cores. The time of
	// a row with one is the processor's, the garbage collector's part included: it does not
	// depend on what else the machine does.
	workers int
	// each tells to take the time of each request, and the median of them. Otherwise it
	// is that of the means of batches, for requests that are shorter than looking at the
	// clock.
	each bool

	// By round: the time of a request, that of one of the floor's meanwhile, and what a
	// request allocates.
	times, floors []time.Duration
	allocs, bytes []float64
}

// measure gives each row its share of time, in turn, as often as there are rounds.
func measure(rows []*row, rounds int, share time.Duration) error {
	for range rounds {
		for _, r := range rows {
			if err := r.round(share); err != nil {
				return err
			}
		}
	}
	return nil
}

// round makes requests until they have taken as long as is asked for. They take turns
// with those of the floor, request by request or batch by batch: what else happens on the
// machine, and how fast it is at the moment, is then the same for both.
func (r *row) round(share time.Duration) error {
	var times, floors []time.Duration
	for took := time.Duration(0); took < share; {
		mine, other := r.newBatch(), r.floor.newBatch()
		mine.cpu, other.cpu = r.workers == 1, r.workers == 1
		if r.each {
			for i := range r.size {
				other.one(i)
				mine.one(i)
			}
		} else {
			other.all()
			mine.all()
		}
		for _, b := range []*batch{mine, other} {
			if b.wrong > 0 {
				return fmt.Errorf("%s: %d requests were not answered as they must be", b.row.name, b.wrong)
			}
		}
		times, floors = append(times, mine.times...), append(floors, other.times...)
		took += mine.took
	}
	r.times = append(r.times, median(times))
	if r.floor != nil {
		r.floors = append(r.floors, median(floors))
	}
	r.count()
	return nil
}

// count takes what the requests of a batch allocate.
func (r *row) count() {
	b := r.newBatch()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	b.all()
	runtime.ReadMemStats(&after)
	n := float64(r.size * len(b.calls))
	r.allocs = append(r.allocs, float64(after.Mallocs-before.Mallocs)/n)
	r.bytes = append(r.bytes, float64(after.TotalAlloc-before.TotalAlloc)/n)
}

// A batch is a number of requests of one row, on a store of their own.
type batch struct {
	row   *row
	calls []func(i int) bool
	took  time.Duration
	times []time.Duration
	wrong int
	cpu   bool // tells to take the time of the processor
}

// newBatch returns a batch of r's requests; an empty one if r is nil.
func (r *row) newBatch() *batch {
	if r == nil {
		return &batch{row: new(row)}
	}
	return &batch{row: r, calls: r.prepare(max(1, r.workers), r.size)}
}

// one makes request i.
func (b *batch) one(i int) {
	if len(b.calls) == 0 {
		return
	}
	start := time.Now()
	if !b.calls[0](i) {
		b.wrong++
	}
	b.note(time.Since(start), 1)
}

// all makes all requests.
func (b *batch) all() {
	if len(b.calls) == 0 {
		return
	}
	if b.row.workers > 0 {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(b.row.workers))
	}
	n := b.row.size
	wrong := make([]int, len(b.calls))
	var others sync.WaitGroup
	elapsed := b.clock()
	for w, call := range b.calls[1:] {
		others.Go(func() { wrong[w+1] = run(call, n) })
	}
	wrong[0] = run(b.calls[0], n)
	others.Wait()
	b.note(elapsed(), n*len(b.calls))
	for _, n := range wrong {
		b.wrong += n
	}
}

// clock starts a clock, and returns what reads it.
func (b *batch) clock() func() time.Duration {
	if !b.cpu {
		start := time.Now()
		return func() time.Duration { return time.Since(start) }
	}
	start := load.CPUTime()
	return func() time.Duration { return load.CPUTime() - start }
}

// note notes how long n requests took.
func (b *batch) note(took time.Duration, n int) {
	b.took += took
	b.times = append(b.times, took/time.Duration(n))
}

// run makes n requests and returns how many were not answered as they must be.
func run(call func(i int) bool, n int) (wrong int) {
	for i := range n {
		if !call(i) {
			wrong++
		}
	}
	return wrong
}

// median is what a row shows: one round that was disturbed does not change it.
func median[T ~int64 | ~float64](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
