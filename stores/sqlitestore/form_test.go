package sqlitestore

import (
	"regexp"
	"testing"

	"example.com/idempotency/internal/formtest"
	"example.com/idempotency/internal/sqlrecord"
)

// What a table has in it changes with the version of its rows. Comments may change.
func TestStoredFormOfTheTable(t *testing.T) {
	t.Parallel()
	formtest.Check(t, "table", sqlrecord.Form, formtest.Case{
		Name: "schema", Text: true,
		Encode: func() []byte {
			code := regexp.MustCompile(`(?m)[ \t]*--.*$`).ReplaceAll([]byte(schema), nil)
			return regexp.MustCompile(`(?m)^\n`).ReplaceAll(code, nil)
		},
	})
}
