package memory_test

import (
	"context"
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/memory"
	"example.com/idempotency/internal/race"
	"example.com/idempotency/store"
)

// claimMemory claims the key as the nth owner, who must get it.
func claimMemory(t testing.TB, s *memory.Store, key string, n uint64) store.Owner {
	t.Helper()
	c := guardtest.MemoryClaim(n)
	r := guardtest.Claim(t, s, key, c)
	require.True(t, r.Mine)
	return c.Owner
}

// completedBy is what somebody has seen of a completed record.
func completedBy(o store.Owner, attempt int) store.Seen {
	return store.Seen{Owner: o, Attempt: attempt, State: store.Completed}
}

// refuseMemory claims a new key, which must be refused.
func refuseMemory(t testing.TB, s *memory.Store, key string) {
	t.Helper()
	_, err := s.Claim(t.Context(), key, guardtest.MemoryClaim(1<<40))
	require.ErrorIs(t, err, store.ErrFull)
}

// What a full store holds can still be run to its end, because giving up on it would
// be a second effect.
func TestMemoryStoreFullRefusesOnlyNewKeys(t *testing.T) {
	limits := map[string]memory.Config{
		"entries": {MaxEntries: 6},
		"bytes":   {MaxBytes: 6 * 250},
	}
	for name, limit := range limits {
		t.Run(name, func(t *testing.T) {
			ctx, s := t.Context(), memory.New(limit)
			keys := guardtest.MemoryKeys(7)
			var owners []store.Owner
			for i, key := range keys[:6] {
				owners = append(owners, claimMemory(t, s, key, uint64(i)))
			}
			refuseMemory(t, s, keys[6])
			require.Equal(t, 6, s.Len())

			require.NoError(t, s.Renew(ctx, keys[0], owners[0]))
			require.NoError(t, s.SaveStep(ctx, keys[0], owners[0], "step", make([]byte, 1<<10)))
			require.NoError(t, s.Complete(ctx, keys[0], owners[0], store.Completion{Answer: make([]byte, 1<<10), TTL: time.Hour}))
			require.NoError(t, s.Release(ctx, keys[1], owners[1], store.Release{}))
			require.NoError(t, s.Hold(ctx, keys[2], owners[2], nil))
			require.NoError(t, s.Resolve(ctx, keys[2], guardtest.HeldBy(owners[2], 1), guardtest.Answered("answer")))
			if name == "bytes" { // another attempt would bring more
				refuseMemory(t, s, keys[1])
				again := guardtest.Get(t, s, keys[1])
				require.Equal(t, store.Released, again.State)
				require.Equal(t, owners[1], again.Owner)
				require.Equal(t, 1, again.Attempt)
			} else {
				claimMemory(t, s, keys[1], 10)
			}
			for _, key := range keys[:6] {
				_, err := s.Get(ctx, key)
				require.NoError(t, err, "a live record is gone")
			}
			refuseMemory(t, s, keys[6])

			require.NoError(t, s.Forget(ctx, keys[0], completedBy(owners[0], 1)))
			claimMemory(t, s, keys[6], 7)
		})
	}
}

func TestMemoryStoreFullOfExpiredTakesNewKeysAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 1000
		s := memory.New(memory.Config{MaxEntries: n})
		keys := guardtest.MemoryKeys(2*n + 1)
		for i, key := range keys[:n] {
			claimMemory(t, s, key, uint64(i))
		}
		refuseMemory(t, s, keys[n])
		full, err := s.Health(t.Context())
		require.NoError(t, err)
		require.Equal(t, []error{store.ErrFull}, full)
		time.Sleep(24 * time.Hour)
		room, err := s.Health(t.Context())
		require.NoError(t, err)
		require.Empty(t, room)
		for i, key := range keys[n : 2*n] {
			claimMemory(t, s, key, uint64(i))
		}
		refuseMemory(t, s, keys[2*n])
		usage, err := s.Usage(t.Context())
		require.NoError(t, err)
		require.Equal(t, store.Figure{Name: "records", Used: n, Limit: n}, usage[0])
		require.Equal(t, int64(1<<30), usage[1].Limit)
		require.Greater(t, usage[1].Used, int64(100*n))
	})
}

// Nobody sweeps: the calls that come in remove what has expired, each of them a
// little, so that none of them has to wait for the removal of all.
func TestMemoryStoreRemovesExpiredInPassing(t *testing.T) {
	race.SkipSequence(t)
	synctest.Test(t, func(t *testing.T) {
		const n = 50_000
		s := memory.New(memory.Config{})
		keys := guardtest.MemoryKeys(2 * n)
		for i, key := range keys[:n] {
			claimMemory(t, s, key, uint64(i))
		}
		time.Sleep(24 * time.Hour)
		for i, key := range keys[n:] {
			before := s.Len()
			claimMemory(t, s, key, uint64(i))
			require.LessOrEqual(t, before-s.Len(), 1, "one call has removed many records")
		}
		require.InDelta(t, n, s.Len(), n/100)
	})
}

// What has expired also goes when all calls are for one key: they are all in one part of the store, and
// the records are in the others.
func TestMemoryStoreRemovesExpiredWhileOneKeyIsBusy(t *testing.T) {
	race.SkipSequence(t)
	synctest.Test(t, func(t *testing.T) {
		const n = 50_000
		s := memory.New(memory.Config{})
		for i, key := range guardtest.MemoryKeys(n) {
			claimMemory(t, s, key, uint64(i))
		}
		time.Sleep(24 * time.Hour)
		for calls := 0; s.Len() > 0; calls++ {
			require.Less(t, calls, n, "%d expired records stay", s.Len())
			before := s.Len()
			_, err := s.Get(t.Context(), "busy")
			require.ErrorIs(t, err, store.ErrNotFound)
			require.LessOrEqual(t, before-s.Len(), 2, "one call has removed many records")
		}
		require.Zero(t, s.Bytes())
	})
}

// An expiry queue that loses its order keeps some records for too long, or looks at
// the wrong one and finds nothing to remove.
func TestMemoryStoreRemovesInOrderOfExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 500
		s := memory.New(memory.Config{MaxEntries: n})
		random := rand.New(rand.NewPCG(1, 2))
		keys := guardtest.MemoryKeys(20 * n)
		keys, others := keys[:n], keys[n:]
		for i, key := range keys {
			owner := claimMemory(t, s, key, uint64(i))
			require.NoError(t, s.Complete(t.Context(), key, owner, store.Completion{TTL: time.Duration(1+random.IntN(n)) * time.Minute}))
		}
		for _, i := range random.Perm(n)[:n/2] {
			require.NoError(t, s.Forget(t.Context(), keys[i], completedBy(guardtest.MemoryClaim(uint64(i)).Owner, 1)))
		}
		kept := 0
		for range n {
			time.Sleep(time.Minute)
			alive := len(guardtest.List(t, s, store.Query{}))
			// Calls for other keys, because a call for an expired key removes it anyway.
			for i := 0; s.Len() > alive; i++ {
				require.Less(t, i, len(others), "%d expired records stay", s.Len()-alive)
				_, err := s.Get(t.Context(), others[i])
				require.ErrorIs(t, err, store.ErrNotFound)
			}
			kept += alive
		}
		require.Positive(t, kept)
		require.Zero(t, s.Len())
		require.Zero(t, s.Bytes())
	})
}

// Records leave the queue from anywhere in it, and their ends move both ways.
func TestMemoryStoreKeepsItsQueuesInOrder(t *testing.T) {
	s, keys := memory.New(memory.Config{}), guardtest.MemoryKeys(10_000)
	random := rand.New(rand.NewPCG(1, 2))
	for i, key := range keys {
		owner := claimMemory(t, s, key, uint64(i))
		require.NoError(t, s.Complete(t.Context(), key, owner, store.Completion{TTL: time.Duration(1+random.IntN(48)) * time.Hour}))
	}
	require.True(t, s.QueuesInOrder())
	for _, i := range random.Perm(len(keys))[:len(keys)/2] {
		require.NoError(t, s.Forget(t.Context(), keys[i], completedBy(guardtest.MemoryClaim(uint64(i)).Owner, 1)))
	}
	require.True(t, s.QueuesInOrder())
}

// Room that is not given back is a store that is full for ever.
func TestMemoryStoreGivesBackItsBytes(t *testing.T) {
	ctx, s := t.Context(), memory.New(memory.Config{})
	owner := claimMemory(t, s, "key", 1)
	empty := s.Bytes()
	require.NoError(t, s.SaveStep(ctx, "key", owner, "step", make([]byte, 100)))
	withStep := s.Bytes()
	require.GreaterOrEqual(t, withStep-empty, int64(104))
	require.NoError(t, s.SaveStep(ctx, "key", owner, "step", make([]byte, 50)))
	require.Equal(t, int64(50), withStep-s.Bytes())
	require.NoError(t, s.SaveStep(ctx, "key", owner, "undone", []byte("begun")))
	require.NoError(t, s.Hold(ctx, "key", owner, nil))
	require.NoError(t, s.Resolve(ctx, "key", guardtest.HeldBy(owner, 1), store.Settlement{Undone: map[string][]byte{"undone": []byte("begun")}}))
	require.Equal(t, int64(50), withStep-s.Bytes())
	owner = claimMemory(t, s, "key", 2)
	require.NoError(t, s.Complete(ctx, "key", owner, store.Completion{Answer: make([]byte, 1000), TTL: time.Hour}))
	require.Equal(t, int64(1000), s.Bytes()-withStep+50)
	require.NoError(t, s.Complete(ctx, "key", owner, store.Completion{Answer: make([]byte, 5000), TTL: time.Hour}))
	require.NoError(t, s.Forget(ctx, "key", completedBy(owner, 2)))
	require.Zero(t, s.Bytes())
	require.Zero(t, s.Len())
}

// Under concurrent calls of all kinds the counters still agree with the records.
func TestMemoryStoreConcurrentCalls(t *testing.T) {
	const limit = 20
	ctx, s := t.Context(), memory.New(memory.Config{MaxEntries: limit})
	keys := guardtest.MemoryKeys(2 * limit)
	guardtest.Together(8, func(i int) {
		worker := uint64(i)
		random := rand.New(rand.NewPCG(1, worker))
		for range 5000 {
			key, c := keys[random.IntN(len(keys))], guardtest.MemoryClaim(worker)
			c.Hold = random.IntN(2) == 0
			c.Lease, c.Retention = time.Millisecond, 10*time.Millisecond
			_, err := s.Claim(ctx, key, c)
			assert.False(t, err != nil && !errors.Is(err, store.ErrFull), "Claim: %v", err)
			switch random.IntN(9) {
			case 0:
				_ = s.Release(ctx, key, c.Owner, store.Release{})
			case 1:
				_ = s.Hold(ctx, key, c.Owner, nil)
			case 2:
				_ = s.Complete(ctx, key, c.Owner, store.Completion{Answer: make([]byte, random.IntN(100)), TTL: time.Millisecond})
			case 3:
				_ = s.SaveStep(ctx, key, c.Owner, "step", make([]byte, random.IntN(100)))
			case 4:
				_ = s.Renew(ctx, key, c.Owner)
			case 5:
				_ = s.Forget(ctx, key, store.Seen{Owner: c.Owner, Attempt: random.IntN(3), State: store.State(random.IntN(5))})
			case 6:
				q := store.Query{Holding: random.IntN(2) == 0, Limit: random.IntN(limit)}
				for {
					page, err := s.List(ctx, q)
					if err != nil {
						t.Error(err)
					}
					if q.Cursor = page.Next; q.Cursor == "" || random.IntN(5) == 0 {
						break
					}
				}
			case 7:
				_, stop, err := s.Watch(ctx, key)
				if err != nil {
					t.Errorf("Watch: %v", err)
					return
				}
				stop()
			case 8:
				_ = s.Resolve(ctx, key, guardtest.HeldBy(c.Owner, random.IntN(3)), store.Settlement{})
			}
			if n := s.Len(); n > limit+8 {
				t.Errorf("%d records, the limit is %d", n, limit)
			}
		}
	})
	for s.Len() > 0 {
		for _, e := range guardtest.List(t, s, store.Query{}) {
			_ = s.Forget(ctx, e.Key, e.Record.Seen())
		}
		for _, key := range keys {
			_, _ = s.Get(ctx, key)
		}
	}
	require.Zero(t, s.Bytes())
	require.Zero(t, s.Watched())
}

// A replay copies nothing, however large the answer is.
func TestMemoryStoreSharesAnswers(t *testing.T) {
	for _, size := range []int{1 << 10, 8 << 10, 8<<10 + 1, 1 << 20} {
		s, key := memory.New(memory.Config{}), guardtest.MemoryKeys(1)[0]
		owner := claimMemory(t, s, key, 1)
		require.NoError(t, s.Complete(t.Context(), key, owner, store.Completion{Answer: make([]byte, size), TTL: time.Hour}))
		first := guardtest.Claim(t, s, key, guardtest.MemoryClaim(2))
		second := guardtest.Claim(t, s, key, guardtest.MemoryClaim(2))
		require.Len(t, second.Answer, size)
		require.Same(t, unsafe.SliceData(first.Answer), unsafe.SliceData(second.Answer))
	}
}

// A caller that breaks the contract with a long note gets the beginning of it.
func TestMemoryStoreCutsNotes(t *testing.T) {
	s, c := memory.New(memory.Config{}), guardtest.MemoryClaim(1)
	c.Note = make([]byte, 1<<20)
	r := guardtest.Claim(t, s, "key", c)
	require.Equal(t, store.AppendNote(nil, c.Note[:64]), r.Notes)
	require.NoError(t, s.Complete(t.Context(), "key", c.Owner, store.Completion{TTL: time.Hour}))
	r = guardtest.Get(t, s, "key")
	require.NoError(t, s.Forget(t.Context(), "key", r.Seen()))
	require.Zero(t, s.Bytes())
}

// An answer that was cut out of a large buffer must not keep the buffer alive: the
// limit of bytes would say nothing.
func TestMemoryStoreKeepsNoSpareRoom(t *testing.T) {
	s := memory.New(memory.Config{})
	owner := claimMemory(t, s, "key", 1)
	require.NoError(t, s.Complete(t.Context(), "key", owner, store.Completion{Answer: make([]byte, 10, 1<<20), TTL: time.Hour}))
	r, err := s.GetAnswer(t.Context(), "key")
	require.NoError(t, err)
	require.LessOrEqual(t, cap(r.Answer), 16)
}

// What is forgotten or expired is not kept alive by some corner of the store.
func TestMemoryStoreLetsGoOfAnswers(t *testing.T) {
	s := memory.New(memory.Config{})
	owner := claimMemory(t, s, "key", 1)
	require.NoError(t, s.Complete(t.Context(), "key", owner, store.Completion{Answer: make([]byte, 64<<10), TTL: time.Hour}))
	r, err := s.GetAnswer(t.Context(), "key")
	require.NoError(t, err)
	kept := weak.Make(&r.Answer[0])
	runtime.GC()
	require.NotNil(t, kept.Value())
	require.NoError(t, s.Forget(t.Context(), "key", completedBy(owner, 1)))
	runtime.GC()
	require.Nil(t, kept.Value())
	runtime.KeepAlive(s)
}

func TestMemoryStoreListObeysItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := memory.New(memory.Config{}).List(ctx, store.Query{})
	require.ErrorIs(t, err, context.Canceled)
}

func TestMemoryStoreForgetsStoppedWatchers(t *testing.T) {
	s := memory.New(memory.Config{})
	_, stopFirst, err := s.Watch(t.Context(), "key")
	require.NoError(t, err)
	_, stopSecond, err := s.Watch(t.Context(), "key")
	require.NoError(t, err)
	stopFirst()
	require.Equal(t, 1, s.Watched())
	stopSecond()
	require.Zero(t, s.Watched())
}

// "For ever" is a duration that people write as the largest there is.
func TestMemoryStoreKeepsForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(memory.Config{})
		time.Sleep(time.Hour)
		owner := claimMemory(t, s, "key", 1)
		require.NoError(t, s.Complete(t.Context(), "key", owner, store.Completion{TTL: math.MaxInt64}))
		time.Sleep(time.Hour)
		r := guardtest.Get(t, s, "key")
		require.Equal(t, store.Completed, r.State)
	})
}

// However many runs a record has had, what its notes took is free when it is gone.
func TestMemoryStoreGivesBackTheBytesOfNotes(t *testing.T) {
	s := memory.New(memory.Config{})
	most := int64(0)
	for n := range uint64(40) {
		c := guardtest.MemoryClaim(n)
		c.Note = make([]byte, n)
		r := guardtest.Claim(t, s, "key", c)
		require.True(t, r.Mine)
		require.NoError(t, s.Release(t.Context(), "key", c.Owner, store.Release{}))
		most = max(most, s.Bytes())
	}
	require.Greater(t, most, int64(16*40), "notes count")
	r := guardtest.Get(t, s, "key")
	require.NoError(t, s.Forget(t.Context(), "key", r.Seen()))
	require.Zero(t, s.Bytes())
}

// Against a map: keys of all lengths, of which many have the same hash, come and go in
// any order, and the room of those that have gone is used again.
func TestMemoryTable(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	hash := func(key string) uint64 { return uint64(len(key) % 5) }
	table, model := memory.NewTable(), map[string]bool{}
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
	require.LessOrEqual(t, table.Slots(), len(keys), "free slots are not used again")
	for _, key := range slices.Collect(maps.Keys(model)) {
		table.Remove(hash(key), key)
	}
	for _, key := range keys {
		_, ok := table.Find(hash(key), key)
		require.False(t, ok, "key %q, seed %d", key, seed)
	}
}
