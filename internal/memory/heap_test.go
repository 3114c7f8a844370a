package memory_test

// What the memory store takes of the heap, and of its limits.

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/memory"
	"example.com/idempotency/internal/race"
	"example.com/idempotency/store"
)

// Not parallel: it measures the heap of the process.
func TestMemoryStoreBytesPerRecord(t *testing.T) {
	if race.Enabled {
		t.Skip("it only computes: there is nothing to detect")
	}
	const n = 200_000
	keys := guardtest.MemoryKeys(n)
	label := "POST /charges"
	for note, limit := range map[int]float64{0: 200, 21: 240, 46: 260, 64: 280} { // guards make 21 and 46
		s := memory.New(memory.Config{})
		before := heapBytes()
		for i, key := range keys {
			c := guardtest.MemoryClaim(uint64(i))
			c.Note, c.Label = make([]byte, note), label
			guardtest.Claim(t, s, key, c)
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

// Not parallel: it measures the heap of the process. What a tag costs is counted, and given back.
func TestMemoryStoreBytesPerTag(t *testing.T) {
	if race.Enabled {
		t.Skip("it only computes: there is nothing to detect")
	}
	const n = 100_000
	keys := guardtest.MemoryKeys(n)
	s := memory.New(memory.Config{})
	before := heapBytes()
	for i, key := range keys {
		c := guardtest.MemoryClaim(uint64(i))
		c.Tags = []store.Tag{{1}, store.Tag([]byte(key)), {1}}
		guardtest.Claim(t, s, key, c)
	}
	perRecord, counted := float64(heapBytes()-before)/n, float64(s.Bytes())/n
	t.Logf("a tag of its own, and one that all have: %.0f bytes per record, counted %.0f", perRecord, counted)
	require.InDelta(t, perRecord, counted, 40)
	runtime.KeepAlive(s)
	for i, key := range keys {
		require.NoError(t, s.Complete(t.Context(), key, guardtest.MemoryClaim(uint64(i)).Owner, store.Completion{TTL: time.Hour}))
		r := guardtest.Get(t, s, key)
		require.NoError(t, s.Forget(t.Context(), key, r.Seen()))
	}
	require.Zero(t, s.Bytes())
	page, err := s.Find(t.Context(), store.Tag{1}, store.Query{})
	require.NoError(t, err)
	require.Empty(t, page.Entries)
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
	ctx, s, keys := t.Context(), memory.New(memory.Config{}), guardtest.MemoryKeys(n)
	answer := make([]byte, 512)
	i := 0
	require.LessOrEqual(t, testing.AllocsPerRun(n-1, func() {
		_, _ = s.Claim(ctx, keys[i], guardtest.MemoryClaim(uint64(i)))
		i++
	}), 0.0, "claim of a new key")
	i = 0
	require.Zero(t, testing.AllocsPerRun(n-1, func() {
		_ = s.Complete(ctx, keys[i], guardtest.MemoryClaim(uint64(i)).Owner, store.Completion{Answer: answer, TTL: time.Hour})
		i++
	}), "complete")
	i = 0
	require.Zero(t, testing.AllocsPerRun(n-1, func() {
		r, _ := s.Claim(ctx, keys[i], guardtest.MemoryClaim(n))
		if r.State != store.Completed {
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
		s := memory.New(memory.Config{})
		before := heapBytes()
		for i, key := range keys {
			claimMemory(t, s, key, uint64(i))
		}
		used := heapBytes() - before
		time.Sleep(24 * time.Hour)
		for _, key := range keys {
			_, err := s.Get(t.Context(), key)
			require.ErrorIs(t, err, store.ErrNotFound)
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
	race.SkipSequence(t)
	synctest.Test(t, func(t *testing.T) {
		const n, size, every = 20_000, 4 << 10, 20
		keys := guardtest.MemoryKeys(n)
		answer := func(key string) []byte { return []byte(strings.Repeat(key, 1+size/len(key))[:size]) }
		s := memory.New(memory.Config{})
		before := heapBytes()
		for i, key := range keys {
			c, ttl := guardtest.MemoryClaim(uint64(i)), time.Hour
			c.Note = []byte(key)
			guardtest.Claim(t, s, key, c)
			if i%every == 0 {
				ttl = 48 * time.Hour
			}
			require.NoError(t, s.Complete(t.Context(), key, c.Owner, store.Completion{Answer: answer(key), TTL: ttl}))
		}
		time.Sleep(24 * time.Hour)
		for i, key := range keys {
			r, err := s.GetAnswer(t.Context(), key)
			if i%every == 0 {
				require.NoError(t, err)
				require.Equal(t, answer(key), r.Answer)
				require.Contains(t, string(r.Notes), key)
			} else {
				require.ErrorIs(t, err, store.ErrNotFound)
			}
		}
		const slots, unwritten = n * 200, 64 * 64 << 10 // are kept for what comes
		used := int64(heapBytes()) - int64(before)
		t.Logf("%d bytes of heap for %d that count", used, s.Bytes())
		require.Less(t, used, 2*s.Bytes()+slots+unwritten)
		runtime.KeepAlive(s)
	})
}

// Small records whose attempts fail may fill the store. Then further attempts, which bring notes or
// answers, are refused like new keys. So the limit holds but for what one attempt brings, and a tenant
// that has its share leaves the last quarter to others.
func TestMemoryStoreBoundsFurtherAttempts(t *testing.T) {
	for _, tenant := range []uint64{0, 1} {
		for _, lapse := range []bool{true, false} {
			for _, answer := range []int{0, 8 << 10} {
				guardtest.Bubble(t, fmt.Sprintf("tenant %d, lapse %t, answer %d", tenant, lapse, answer), func(t *testing.T) { boundsFurtherAttempts(t, tenant, lapse, answer) })
			}
		}
	}
}

func boundsFurtherAttempts(t *testing.T, tenant uint64, lapse bool, answer int) {
	const limit, attempt = 1 << 20, 100 // what an attempt brings without an answer, at most
	ctx, s, n := t.Context(), memory.New(memory.Config{MaxBytes: limit}), uint64(0)
	claim := func(key string, tenant uint64) (store.Owner, error) {
		n++
		c := guardtest.MemoryClaim(n)
		c.Tenant, c.Note = tenant, make([]byte, 60)
		_, err := s.Claim(ctx, key, c)
		return c.Owner, err
	}
	// try makes an attempt for each of the keys, and returns how many of them began.
	try := func(keys []string, answer int) (begun int) {
		for _, key := range keys {
			owner, err := claim(key, tenant)
			switch {
			case err != nil:
				require.ErrorIs(t, err, store.ErrFull)
				continue
			case answer > 0:
				require.NoError(t, s.Complete(ctx, key, owner, store.Completion{Answer: make([]byte, answer), TTL: 24 * time.Hour}))
			case !lapse:
				require.NoError(t, s.Release(ctx, key, owner, store.Release{}))
			}
			begun++
			require.LessOrEqual(t, s.Bytes(), int64(limit+attempt+answer))
		}
		return begun
	}
	keys := guardtest.MemoryKeys(limit / 100)
	begun := try(keys, 0)
	require.Less(t, begun, len(keys))
	keys = keys[:begun]
	time.Sleep(time.Hour) // the leases end, of the bubble
	if answer > 0 {
		require.Positive(t, try(keys, answer)) // the first goes beyond the limit
	} else {
		for range 5 {
			begun = try(keys, 0)
			time.Sleep(time.Hour) // of the bubble
		}
		require.Zero(t, begun)
	}
	_, err := claim("another tenant's", 2)
	if tenant != 0 && err != nil { // one tenant of 1,024 is accounted with the first
		_, err = claim("another tenant's", 3)
	}
	if tenant == 0 {
		require.ErrorIs(t, err, store.ErrFull)
		return
	}
	require.NoError(t, err)
	require.LessOrEqual(t, s.Bytes(), int64(limit-limit/4+2*attempt+200+answer))
}
