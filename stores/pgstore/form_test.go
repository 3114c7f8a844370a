package pgstore

import (
	"strings"
	"testing"

	"example.com/idempotency/internal/formtest/rows"
	"example.com/idempotency/internal/sqlrecord"
)

// What a table has in it changes with the version of its rows. Comments may change.
func TestStoredFormOfTheTable(t *testing.T) {
	t.Parallel()
	_, first, _ := strings.Cut(steps[1], "\n") // the rest of its heading
	rows.CheckSchema(t, "table", sqlrecord.Form, strings.TrimRight(first, "\n")+"\n")
}
