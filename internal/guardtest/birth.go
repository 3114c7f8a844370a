package guardtest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/store"
)

// RequireBirth lets two processes look at an empty store, which is emptied then, and once more. Each tells what it finds.
func RequireBirth(t testing.TB, st idempotency.Store, empty func()) {
	t.Helper()
	process := func() (*idempotency.Guard, *Events) {
		events := new(Events)
		return NewGuard(t, st, idempotency.WithObserver(events.Observe)), events
	}
	one, heardByOne := process()
	two, heardByTwo := process()
	born, err := inspect.BirthOf(t.Context(), one)
	require.NoError(t, err)
	require.Equal(t, inspect.Unmarked, born.Says, "who only looks marks nothing")

	for _, g := range []*idempotency.Guard{one, two, one} {
		require.NoError(t, g.Check(t.Context()))
	}
	born, err = inspect.BirthOf(t.Context(), two)
	require.NoError(t, err)
	at, err := time.Parse(time.RFC3339, born.Born)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), at, time.Hour)
	marks := List(t, st.(store.Lister), store.Query{})
	require.Len(t, marks, 1)
	require.True(t, store.IsOwn(marks[0].Key))
	require.Greater(t, marks[0].Record.TTL, 29*365*24*time.Hour)
	require.Empty(t, store.Page{Entries: marks}.OfKeys().Entries)

	for range 2 {
		empty()
		require.ErrorContains(t, one.Check(t.Context()), "the store was empty at")
		require.ErrorContains(t, two.Check(t.Context()), "the store was empty at")
		for _, g := range []*idempotency.Guard{one, two} {
			require.NoError(t, g.Check(t.Context()), "told once")
		}
	}
	late, heardByLate := process()
	require.NoError(t, late.Check(t.Context()), "a process that begins knows nothing")
	require.Equal(t, []int{2, 2, 0}, []int{heardByOne.Count(event.StoreReset), heardByTwo.Count(event.StoreReset), heardByLate.Count(event.StoreReset)})
}
