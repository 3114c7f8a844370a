package sqlitestore_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/store"
	"example.com/idempotency/stores/sqlitestore"
)

// A run that is one commit leaves its tags with its record, and otherwise none.
func TestOneCommitLeavesTags(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "records.db"), sqlitestore.WithOneCommit())
	s.SetJoinWithin(time.Hour)
	guardtest.RequireTagsOfCommits(t, s, mayBeLost)
}

// Tags go with their record, whoever removes it: a program of an earlier version knows of none.
func TestTagsGoWithTheirRecord(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "records.db")
	s := open(t, path)
	later := clock(t, path)
	for _, key := range []string{"expired", "stays", "deleted"} {
		if key == "stays" {
			later(3 * time.Hour) // the retention is one
		}
		c := newClaim()
		c.Tags = []store.Tag{{1}, {2}}
		guardtest.Claim(t, s, key, c)
	}
	removed, err := s.Sweep(t.Context(), 100)
	require.NoError(t, err)
	require.Equal(t, int64(1), removed)
	guardtest.ExecSQLite(t, path, "DELETE FROM idempotency_records WHERE key = 'deleted'")
	var left int
	require.NoError(t, s.Reader().QueryRow("SELECT count(*) FROM idempotency_records_tags").Scan(&left))
	require.Equal(t, 2, left)
	guardtest.RequireFound(t, s, store.Tag{2}, "stays")
}
