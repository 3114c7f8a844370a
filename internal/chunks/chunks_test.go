package chunks

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Each element has a place of its own and keeps it, and little room is empty.
func TestSlice(t *testing.T) {
	const n = 50_000
	var s Slice[int]
	var places []*int
	for i := range n {
		require.Equal(t, i, s.Len())
		s.Append()
		require.Zero(t, *s.At(i))
		*s.At(i) = i
		places = append(places, s.At(i))
		if i%97 != 0 {
			continue
		}
		room := 0
		for _, chunk := range s.chunks {
			room += len(chunk)
		}
		spare := max(32, s.Len()/4)
		if s.Len() > 4000 {
			spare = s.Len() / 7
		}
		require.LessOrEqual(t, room-s.Len(), spare, "%d elements", s.Len())
	}
	require.LessOrEqual(t, len(s.chunks), 64)
	for i, place := range places {
		require.Same(t, place, s.At(i))
		require.Equal(t, i, *place)
	}
}
