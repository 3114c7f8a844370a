package idempotency_test

// What the memory store takes of the heap.

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"github.com/stretchr/testify/require"
)

// Not parallel: it measures the heap of the process.
func TestMemoryStoreBytesPerRecord(t *testing.T) {
	const n = 200_000
	keys := guardtest.MemoryKeys(n)
	label := "POST /charges"
	for note, limit := range map[int]float64{0: 190, 17: 240, 42: 260, 64: 280} { // guards make 17 and 42
		s := idempotency.NewMemoryStore()
		before := heapBytes()
		for i, key := range keys {
			c := guardtest.MemoryClaim(uint64(i))
			c.Note, c.Label = make([]byte, note), label
			_, err := s.Claim(t.Context(), key, c)
			require.NoError(t, err)
		}
		perRecord := float64(heapBytes()-before)/n - float64(len(keys[0])) // a copy of which it has
		t.Logf("a note of %d bytes: %.0f bytes per record, besides its key", note, perRecord)
		require.Less(t, perRecord, limit)
		runtime.KeepAlive(s)

		// What the store counts is what it uses, or its limit of bytes would mean nothing.
		counted := float64(s.Bytes())/n - float64(len(keys[0]))
		require.InDelta(t, perRecord, counted, 40)
	}
}

func heapBytes() uint64 {
	runtime.GC()
	runtime.GC() // The second one frees what the first one has finalised.
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Not parallel: it counts the allocations of the process.
func TestMemoryStoreAllocations(t *testing.T) {
	const n = 10_000
	ctx, s, keys := t.Context(), idempotency.NewMemoryStore(), guardtest.MemoryKeys(n)
	answer := make([]byte, 512)
	i := 0
	require.LessOrEqual(t, testing.AllocsPerRun(n-1, func() {
		_, _ = s.Claim(ctx, keys[i], guardtest.MemoryClaim(uint64(i)))
		i++
	}), 0.0, "claim of a new key")
	i = 0
	require.Zero(t, testing.AllocsPerRun(n-1, func() {
		_ = s.Complete(ctx, keys[i], guardtest.MemoryClaim(uint64(i)).Owner, idempotency.Completion{Answer: answer, TTL: time.Hour})
		i++
	}), "complete")
	i = 0
	require.Zero(t, testing.AllocsPerRun(n-1, func() {
		r, _ := s.Claim(ctx, keys[i], guardtest.MemoryClaim(n))
		if r.State != idempotency.StateCompleted {
			t.Error("not completed")
		}
		i++
	}), "claim of a completed key")
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

// Not parallel: it measures the heap of the process. Answers that are kept for long lie among many
// that are not, and keep little memory but their own.
func TestMemoryStoreIsNotPinnedByLongTTLs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, size, every = 20_000, 4 << 10, 20
		keys, answer := guardtest.MemoryKeys(n), make([]byte, size)
		s := idempotency.NewMemoryStore()
		before := heapBytes()
		for i, key := range keys {
			owner, ttl := claimMemory(t, s, key, uint64(i)), time.Hour
			if i%every == 0 {
				ttl = 48 * time.Hour
			}
			require.NoError(t, s.Complete(t.Context(), key, owner, idempotency.Completion{Answer: answer, TTL: ttl}))
		}
		time.Sleep(24 * time.Hour)
		for i, key := range keys {
			r, err := s.GetAnswer(t.Context(), key)
			if i%every == 0 {
				require.NoError(t, err)
				require.Equal(t, answer, r.Answer)
			} else {
				require.ErrorIs(t, err, idempotency.ErrNotFound)
			}
		}
		const slots, unwritten = n * 200, 64 * 64 << 10 // are kept for what comes
		used := int64(heapBytes()) - int64(before)
		t.Logf("%d bytes of heap for %d that count", used, s.Bytes())
		require.Less(t, used, 2*s.Bytes()+slots+unwritten)
		runtime.KeepAlive(s)
	})
}
