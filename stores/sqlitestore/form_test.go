package sqlitestore

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/formtest/rows"
	"example.com/idempotency/internal/sqlrecord"
	"example.com/idempotency/store"
)

// What a table has in it changes with the version of its rows. Comments may change.
func TestStoredFormOfTheTable(t *testing.T) {
	t.Parallel()
	rows.CheckSchema(t, "table", sqlrecord.Form, schema)
	rows.CheckSchema(t, "tags", 1, tagsSchema)
}

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
	claim := store.Claim{Owner: store.Owner{1}, Lease: 30 * time.Second, Retention: time.Hour}
	rows.Check(t, s, claim, func(key, set string) error {
		_, err := s.write.ExecContext(t.Context(), "UPDATE idempotency_records SET "+set+" WHERE key = ?", key)
		return err
	}, row)
}

func TestStoredFormOfTags(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "records"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	rows.CheckTags(t, s, func() (all [][3]string) {
		r, err := s.read.QueryContext(t.Context(), "SELECT lower(hex(tag)), record, lower(hex(bound_to)) FROM idempotency_records_tags ORDER BY tag")
		require.NoError(t, err)
		defer func() { require.NoError(t, r.Close()) }()
		for r.Next() {
			var row [3]string
			require.NoError(t, r.Scan(&row[0], &row[1], &row[2]))
			all = append(all, row)
		}
		require.NoError(t, r.Err())
		return all
	}, func(tag, record, boundTo string) error {
		_, err := s.write.ExecContext(t.Context(), "INSERT INTO idempotency_records_tags VALUES (unhex(?), ?, unhex(?))", tag, record, boundTo)
		return err
	})
}
