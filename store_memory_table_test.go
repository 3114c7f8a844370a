package idempotency_test

import (
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
)

// Against a map: keys of all lengths, of which many have the same hash, come and go in
// any order, and the room of those that have gone is used again.
func TestMemoryTable(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	hash := func(key string) uint64 { return uint64(len(key) % 5) }
	table, model := idempotency.NewMemoryTable(), map[string]bool{}
	keys := []string{""}
	for n := 1; n < 100; n++ {
		keys = append(keys, strings.Repeat("k", n), strings.Repeat("x", n))
	}
	for range 20_000 {
		key := keys[random.IntN(len(keys))]
		if model[key] {
			table.Remove(hash(key), key)
			delete(model, key)
		} else {
			table.Insert(hash(key), key)
			model[key] = true
		}
		other := keys[random.IntN(len(keys))]
		found, ok := table.Find(hash(other), other)
		require.Equal(t, model[other], ok, "key %q, seed %d", other, seed)
		if ok {
			require.Equal(t, other, found, "seed %d", seed)
		}
	}
	require.LessOrEqual(t, table.Slots(), len(keys)+31, "free slots are not used again")
	for _, key := range slices.Collect(maps.Keys(model)) {
		table.Remove(hash(key), key)
	}
	for _, key := range keys {
		_, ok := table.Find(hash(key), key)
		require.False(t, ok, "key %q, seed %d", key, seed)
	}
}

// Not parallel: it measures the heap of the process. What a busy day has taken is given
// back when its records have expired.
func TestMemoryStoreGivesBackItsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 50_000
		keys := guardtest.MemoryKeys(n)
		s := idempotency.NewMemoryStore()
		before := heapBytes()
		for i, key := range keys {
			claimMemory(t, s, key, uint64(i))
		}
		used := heapBytes() - before
		time.Sleep(24 * time.Hour)
		for _, key := range keys {
			_, err := s.Get(t.Context(), key)
			require.ErrorIs(t, err, idempotency.ErrNotFound)
		}
		require.Zero(t, s.Len())
		left := int64(heapBytes()) - int64(before)
		require.Less(t, left, int64(used/10), "of %d bytes", used)
		runtime.KeepAlive(s)
	})
}
