package bench_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/load"
)

// What module fiberidempotency allocates beyond a guard on net/http: a request, and the map of its header. Blocks of
// which strings are cut make a few hundredths more.
func TestAllocationsOfFiber(t *testing.T) {
	limits := map[string]float64{"fiber: no key": 0.1, "fiber: first run": 3.9, "fiber: replay": 3.4}
	for _, r := range moduleRows(load.Small) {
		limit, ok := limits[r.name]
		if !ok {
			continue
		}
		delete(limits, r.name)
		for range 3 {
			r.count()
			r.floor.count()
		}
		require.LessOrEqual(t, median(r.allocs)-median(r.floor.allocs), limit, r.name)
	}
	require.Empty(t, limits)
}
