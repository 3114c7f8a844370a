package sqlitestore

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/store"
)

// A row of another version is neither read nor changed by any call.
func TestRowOfAnotherVersionIsLeftAlone(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "records"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	row := func(key string) (text string) {
		const columns = "version || state || attempt || hex(owner) || marks || touched || expires || hex(notes) || hex(steps)"
		require.NoError(t, s.read.QueryRowContext(t.Context(), "SELECT "+columns+" FROM idempotency_records WHERE key = ?", key).Scan(&text))
		return text
	}
	for name, change := range map[string]string{
		"version": "marks = marks | (1 << 8)", "mark": "marks = marks | 32", "state": "state = 'archived'",
	} {
		claim := store.Claim{Owner: store.Owner{1}, Lease: 30 * time.Second, Retention: time.Hour}
		key := "key-" + name
		_, err := s.Claim(t.Context(), key, claim)
		require.NoError(t, err)
		_, err = s.write.ExecContext(t.Context(), "UPDATE idempotency_records SET "+change+" WHERE key = ?", key)
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
