package expiry

import (
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// Against a map: records come, get another end, and go, and their slots are used again.
// What the queue calls expired is always a record that expires first.
func TestQueue(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	var q Queue
	ends, free, slots := map[int32]int64{}, []int32(nil), int32(0)
	for range 20_000 {
		end := random.Int64N(1000)
		switch slot, ok := anySlot(ends); {
		case !ok || random.IntN(3) == 0 && len(ends) < 500:
			if n := len(free); n > 0 {
				slot, free = free[n-1], free[:n-1]
			} else {
				slot, slots = slots, slots+1
			}
			q.Push(slot, end)
			ends[slot] = end
		case random.IntN(2) == 0:
			q.Move(slot, end)
			ends[slot] = end
		default:
			if first, ok := q.Expired(1000); random.IntN(2) == 0 && ok {
				slot = first
			}
			q.Remove(slot)
			delete(ends, slot)
			free = append(free, slot)
		}
		requireSound(t, &q, seed)
		require.Equal(t, ends, maps.Collect(q.All()), "seed %d", seed)
		require.Equal(t, len(ends), q.Len(), "seed %d", seed)
	}
	require.LessOrEqual(t, len(q.places), 500, "places are used again")
}

// requireSound checks that every record knows its place, and that none stands before one
// that expires earlier. So the first is one that expires first.
func requireSound(t *testing.T, q *Queue, seed uint64) {
	t.Helper()
	for i, e := range q.entries {
		if q.places[e.slot] != int32(i) || q.entries[max(i-1, 0)/branches].expires > e.expires {
			t.Fatalf("entry %d of %d is out of place, seed %d", i, len(q.entries), seed)
		}
	}
	if len(q.entries) == 0 {
		_, ok := q.Expired(1 << 62)
		require.False(t, ok)
		return
	}
	first := q.entries[0]
	slot, ok := q.Expired(first.expires)
	require.True(t, ok)
	require.Equal(t, first.slot, slot)
	_, ok = q.Expired(first.expires - 1)
	require.False(t, ok)
}

func anySlot(ends map[int32]int64) (int32, bool) {
	for slot := range ends {
		return slot, true
	}
	return 0, false
}
