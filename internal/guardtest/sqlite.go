package guardtest

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"
)

// ExecSQLite executes a statement on the file of a store, as another program would. The test's program has the driver.
func ExecSQLite(t testing.TB, path, statement string, args ...any) {
	t.Helper()
	db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), statement, args...)
	require.NoError(t, err)
	require.NoError(t, db.Close())
}
