package pgstore_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/idempotency/store"
	"example.com/idempotency/stores/pgstore/internal/pgtest"
)

// The view says what a record is, to a role that may not read the table, and shows nothing that is secret.
func TestViewOfTheKeys(t *testing.T) {
	t.Parallel()
	admin := pgtest.Shared(t).Pool(t)
	s, table := newStore(t, admin)
	later := clock(t, admin, table)
	claim := func(key string, lease time.Duration, hold bool) store.Claim {
		c := newClaim()
		c.Lease, c.Hold, c.HoldEnds, c.Label, c.SealedKey = lease, hold, true, "POST /orders", []byte("secret")
		_, err := s.Claim(t.Context(), key, c)
		require.NoError(t, err)
		return c
	}
	claim("expired", time.Minute, false)
	later(2 * time.Hour) // the retention is one
	claim("lapsed", time.Minute, false)
	claim("held by lapse", time.Minute, true)
	require.NoError(t, s.Hold(t.Context(), "held", claim("held", time.Minute, true).Owner))
	later(2 * time.Minute)
	claim("running", time.Hour, false)
	claim("running long", 1<<62, false)
	require.NoError(t, s.Complete(t.Context(), "completed", claim("completed", time.Minute, false).Owner,
		store.Completion{Status: 201, Answer: []byte("answer"), TTL: time.Hour}))
	require.NoError(t, s.Release(t.Context(), "released", claim("released", time.Minute, false).Owner, store.Release{}))

	_, err := admin.Exec(t.Context(), "CREATE ROLE support_"+table+" LOGIN; GRANT SELECT ON "+table+"_keys TO support_"+table)
	require.NoError(t, err)
	config := admin.Config()
	config.ConnConfig.User = "support_" + table
	support, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(support.Close)
	_, err = support.Exec(t.Context(), "SELECT FROM "+table)
	require.ErrorContains(t, err, "permission denied")

	rows, err := support.Query(t.Context(), "SELECT * FROM "+table+"_keys")
	require.NoError(t, err)
	keys, err := pgx.CollectRows(rows, pgx.RowToMap)
	require.NoError(t, err)
	want := map[string]string{
		"expired": "expired", "lapsed": "lapsed", "held by lapse": "held", "held": "held", "running": "running", "running long": "running",
		"completed": "completed", "released": "released",
	}
	require.Len(t, keys, len(want))
	for _, k := range keys {
		key := k["key"].(string)
		require.Equal(t, want[key], k["state"], key)
		require.Equal(t, "POST /orders", k["route"])
		require.NotNil(t, k["expires"])
		require.Positive(t, k["stored_bytes"])
		require.Equal(t, key == "completed", k["answer_bytes"] != nil, key)
		for _, secret := range []string{"owner", "fingerprint", "answer", "sealed_key", "steps", "notes"} {
			require.NotContains(t, k, secret)
		}
	}
}
