package pgstore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/store"
	"example.com/idempotency/stores/pgstore/internal/pgtest"
)

// A row of another version is neither read nor changed by any call.
func TestRowOfAnotherVersionIsLeftAlone(t *testing.T) {
	t.Parallel()
	pool := pgtest.Shared(t).Pool(t)
	s, table := newStore(t, pool)
	row := func(key string) (text string) {
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT r::text FROM "+table+" r WHERE key = $1", key).Scan(&text))
		return text
	}
	for name, change := range map[string]string{
		"version": "marks = marks | (1 << 8)", "mark": "marks = marks | 32", "state": "state = 'archived'",
	} {
		claim := newClaim()
		key := "key-" + name
		_, err := s.Claim(t.Context(), key, claim)
		require.NoError(t, err)
		_, err = pool.Exec(t.Context(), "UPDATE "+table+" SET "+change+" WHERE key = $1", key)
		require.NoError(t, err)
		before := row(key)

		other := claim
		other.Owner[0]++
		_, err = s.Claim(t.Context(), key, other)
		require.ErrorIs(t, err, store.ErrUnreadableHere, name)
		_, err = s.Get(t.Context(), key)
		require.ErrorIs(t, err, store.ErrUnreadableHere, name)
		_, err = s.GetAnswer(t.Context(), key)
		require.ErrorIs(t, err, store.ErrUnreadableHere, name)
		for _, state := range []store.State{store.Claimed, store.Held, store.Corrupt} {
			seen := store.Seen{Owner: claim.Owner, Attempt: 1, State: state}
			require.ErrorIs(t, s.Resolve(t.Context(), key, seen, store.Settlement{}), store.ErrUnreadableHere, name)
			require.ErrorIs(t, s.Forget(t.Context(), key, seen), store.ErrUnreadableHere, name)
		}
		page, err := s.List(t.Context(), store.Query{})
		require.NoError(t, err)
		require.Empty(t, page.Entries, name)
		require.Equal(t, before, row(key), name)
	}
}
