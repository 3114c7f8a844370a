package oldest

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Against a list that is searched: records enter and leave in any order, at moments that may be
// the same or lie before the last one.
func TestIndex(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	var x Index
	var want []int32
	now := int64(0)
	for step := range 20_000 {
		if step == 10_000 { // all leave, and the next ones come after them all the same
			for _, slot := range want {
				x.Leave(slot)
			}
			want = nil
			require.Zero(t, cap(x.order), "the memory was not given back")
		}
		now += random.Int64N(3) - 1
		slot := int32(random.IntN(500))
		if i := slices.Index(want, slot); i >= 0 {
			want = slices.Delete(want, i, i+1)
			x.Leave(slot)
		} else if random.IntN(4) > 0 {
			want = append(want, slot)
			x.Enter(slot, now)
		} else {
			x.Leave(slot) // which is not there
		}
		require.Equal(t, len(want), x.Len(), "seed %d", seed)
		require.LessOrEqual(t, len(x.order), max(fewEntries, 2*len(want)), "seed %d", seed)
		if step%100 == 0 {
			require.Equal(t, want, slotsOf(t, &x, 1+random.IntN(20)), "seed %d", seed)
		}
	}
}

// slotsOf walks through the index in pages of n.
func slotsOf(t *testing.T, x *Index, n int) (slots []int32) {
	t.Helper()
	for at, more := int64(-1), true; more; {
		var page []Entry
		page, at, more = x.After(at, n, nil)
		require.LessOrEqual(t, len(page), n)
		for _, e := range page {
			require.True(t, x.Has(e))
			slots = append(slots, e.Slot)
		}
	}
	return slots
}

// Where many records have left, a call looks at few of them and still gets on.
func TestIndexPassesOverWhatHasLeft(t *testing.T) {
	var x Index
	const n = 1000
	for slot := range int32(n) {
		x.Enter(slot, 0)
	}
	for slot := range int32(n/2 - 1) {
		x.Leave(slot)
	}
	page, seen, more := x.After(0, 10, nil)
	require.Empty(t, page)
	require.Equal(t, int64(10*left), seen)
	require.True(t, more)
	require.Len(t, slotsOf(t, &x, 10), n/2+1)
}
