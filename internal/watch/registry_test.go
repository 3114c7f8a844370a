package watch

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func woken(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestRegistryWakesThoseWhoWait(t *testing.T) {
	var r Registry
	r.Wake("a") // nobody waits
	r.WakeAll()
	first, second, other := r.Add("a"), r.Add("a"), r.Add("b")
	require.Equal(t, 2, r.Len())

	r.Wake("a")
	r.Wake("a") // blocks nobody, although nobody has looked
	require.True(t, woken(first))
	require.False(t, woken(first), "two wakeups are merged")
	require.True(t, woken(second))
	require.False(t, woken(other))

	r.WakeAll()
	for _, c := range []chan struct{}{first, second, other} {
		require.True(t, woken(c))
	}
}

// One who stops does not end the wait of another, and leaves nothing behind.
func TestRegistryRemoves(t *testing.T) {
	var r Registry
	first, second := r.Add("a"), r.Add("a")
	r.Remove("a", first)
	r.Remove("a", first)
	r.Wake("a")
	require.False(t, woken(first))
	require.True(t, woken(second))
	r.Remove("a", second)
	r.Remove("a", second)
	require.Zero(t, r.Len())
}
