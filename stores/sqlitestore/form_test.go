package sqlitestore

import (
	"testing"

	"example.com/idempotency/internal/formtest/rows"
	"example.com/idempotency/internal/sqlrecord"
)

// What a table has in it changes with the version of its rows. Comments may change.
func TestStoredFormOfTheTable(t *testing.T) {
	t.Parallel()
	rows.CheckSchema(t, sqlrecord.Form, schema)
}
