package sqlitestore

import (
	"testing"

	"example.com/idempotency/internal/formtest/rows"
	"example.com/idempotency/internal/sqlrecord"
)

// What a table has in it changes with the version of its rows. Comments may change.
func TestStoredFormOfTheTable(t *testing.T) {
	t.Parallel()
	rows.CheckSchema(t, "table", sqlrecord.Form, schema)
	rows.CheckSchema(t, "tags", 1, tagsSchema)
}
