package bench_test

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
)

// A row is one line of a table: a kind of request, and what was measured of it.
type row struct {
	name  string
	floor *row // what its time is divided by; nil if others are divided by its own
	bare  *row // what its allocations are counted above; nil likewise

	// prepare returns, for each worker, what makes request i of n and tells whether it
	// was answered as it must be. It runs outside of the measurement.
	prepare func(workers, n int) []func(i int) bool
	batch   int // the requests of one worker between two calls of prepare
	// workers do the work side by side, each with a core; 0 is one, with all cores.
	workers int
	// each tells to take the time of each request, and the median of them. Otherwise
	// it is the mean, for requests that are shorter than looking at the clock.
	each bool

	// By round: the time of a request, and what it allocates.
	times         []time.Duration
	allocs, bytes []float64
}

// measure gives each row its share of time, in turn, as often as there are rounds: what
// else happens on the machine then happens to all of them.
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

// round makes batches of requests until they have taken as long as is asked for.
func (r *row) round(share time.Duration) error {
	if r.workers > 0 {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(r.workers))
	}
	var (
		took            time.Duration
		each            []time.Duration
		requests        int
		allocs, bytes   uint64
		before, after   runtime.MemStats
		workers         = max(1, r.workers)
		wrong, finished = make([]int, workers), sync.WaitGroup{}
	)
	for took < share {
		calls := r.prepare(workers, r.batch)
		latencies := make([]time.Duration, r.batch)
		runtime.ReadMemStats(&before)
		start := time.Now()
		switch {
		case r.each:
			for i := range r.batch {
				begin := time.Now()
				if !calls[0](i) {
					wrong[0]++
				}
				latencies[i] = time.Since(begin)
			}
		case workers == 1:
			wrong[0] += run(calls[0], r.batch)
		default:
			for w, call := range calls {
				finished.Go(func() { wrong[w] += run(call, r.batch) })
			}
			finished.Wait()
		}
		took += time.Since(start)
		runtime.ReadMemStats(&after)
		requests += r.batch * workers
		allocs += after.Mallocs - before.Mallocs
		bytes += after.TotalAlloc - before.TotalAlloc
		each = append(each, latencies...)
	}
	for _, n := range wrong {
		if n > 0 {
			return fmt.Errorf("%s: %d of %d requests were not answered as they must be", r.name, n, requests)
		}
	}
	if r.each {
		r.times = append(r.times, median(each))
	} else {
		r.times = append(r.times, took/time.Duration(requests))
	}
	r.allocs = append(r.allocs, float64(allocs)/float64(requests))
	r.bytes = append(r.bytes, float64(bytes)/float64(requests))
	return nil
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
