package microbench

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/race"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/store"
)

// A listedStore is one whose records can be listed.
type listedStore interface {
	idempotency.Store
	store.Lister
}

// oldest asks for what somebody should look at first.
var oldest = store.Query{Holding: true, Limit: 50}

// claimRecords makes n records, of which each that is a multiple of every says Hold.
func claimRecords(tb testing.TB, s idempotency.Store, n, every int) {
	tb.Helper()
	for i, key := range guardtest.MemoryKeys(n) {
		c := guardtest.MemoryClaim(uint64(i))
		c.Hold = i%every == 0
		if _, err := s.Claim(tb.Context(), key, c); err != nil {
			tb.Fatal(err)
		}
	}
}

// Not parallel: it measures time, in the quietest of many moments.
func TestOldestOfManyHeldRecordsAreFoundAtOnce(t *testing.T) {
	for name, s := range map[string]listedStore{
		"memory": idempotency.NewMemoryStore(),
		"redis":  guardtest.RedisStore(t, guardtest.RedisClient(t, redistest.Start(t).Addr)),
	} {
		claimRecords(t, s, 10_000, 1)
		best := time.Hour
		for range 200 {
			start := time.Now()
			page, err := s.List(t.Context(), oldest)
			best = min(best, time.Since(start))
			require.NoError(t, err)
			require.Len(t, page.Entries, oldest.Limit)
		}
		t.Logf("%s: %v", name, best)
		if !race.Enabled {
			require.Less(t, best, time.Millisecond, name)
		}
	}
}

// BenchmarkList measures one page: of the index, and of all records. While it is made, no claim
// waits for more than a part of it.
func BenchmarkList(b *testing.B) {
	memory := idempotency.NewMemoryStore()
	claimRecords(b, memory, 1_000_000, 100)
	server := guardtest.RedisStore(b, guardtest.RedisClient(b, redistest.Start(b).Addr))
	claimRecords(b, server, 10_000, 1)
	for name, s := range map[string]listedStore{"memory, 1,000,000 records": memory, "redis, 10,000 records": server} {
		for what, q := range map[string]store.Query{
			"oldest 50":            oldest,
			"page of 100":          {},
			"page of 1000":         {Limit: 1000},
			"page without a match": {States: []store.State{store.Held}},
		} {
			b.Run(name+"/"+what, func(b *testing.B) {
				for b.Loop() {
					page, err := s.List(b.Context(), q)
					if err != nil {
						b.Fatal(err)
					}
					if q.Cursor = page.Next; q.Holding {
						q.Cursor = ""
					}
				}
			})
		}
	}
}
