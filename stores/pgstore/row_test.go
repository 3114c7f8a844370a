package pgstore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/formtest/rows"
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
	rows.Check(t, s, newClaim(), func(key, set string) error {
		_, err := pool.Exec(t.Context(), "UPDATE "+table+" SET "+set+" WHERE key = $1", key)
		return err
	}, row)
}
