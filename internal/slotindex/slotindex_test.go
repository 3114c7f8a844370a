package slotindex_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/slotindex"
)

// An index has the same records as a map, with what it keeps of each, whatever comes and goes. The hashes are so few that many
// records share one, and so much alike that they stand in each other's way, across the end too.
func TestIndexIsAMap(t *testing.T) {
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 0))
		var x slotindex.Index[int32]
		hashes := map[int32]uint32{} // by slot
		for range 500 {
			slot := int32(random.IntN(40))
			if hash, ok := hashes[slot]; ok {
				x.Remove(hash, slot)
				delete(hashes, slot)
			} else {
				hashes[slot] = uint32(random.IntN(12)) - 6
				*x.Add(hashes[slot], slot) = -slot
			}
			require.Equal(t, len(hashes), x.Len())
			for slot := range int32(40) {
				is := func(found int32) bool { return found == slot }
				hash, want := hashes[slot]
				found, value := x.Find(hash, is)
				require.Equal(t, want, value != nil, "seed %d", seed)
				if want {
					require.Equal(t, slot, found)
					require.Equal(t, -slot, *value, "seed %d", seed)
				}
			}
		}
	}
}

// Only records with the hash are asked about, and no lookup allocates. Not parallel: it counts the
// allocations of the process.
func TestFindAsksAboutTheHash(t *testing.T) {
	var x slotindex.Index[int32]
	_, none := x.Find(1, func(int32) bool { return true })
	require.Nil(t, none)
	const n = 10_000
	hash := func(slot int32) uint32 { return uint32(slot) * 2_654_435_761 }
	for i := range int32(n) {
		x.Add(hash(i), i)
	}
	for i := range int32(n) {
		var asked []int32
		_, value := x.Find(hash(i), func(slot int32) bool {
			asked = append(asked, slot)
			return slot == i
		})
		require.NotNil(t, value)
		require.Equal(t, []int32{i}, asked)
	}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		x.Find(hash(7), func(slot int32) bool { return slot == 7 })
	}))
}
