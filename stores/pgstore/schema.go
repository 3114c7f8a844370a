package pgstore

import (
	_ "embed"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Schema is the SQL that creates the table of a [Store] with its indexes, for teams that run
// their own migrations. The table is called idempotency_records.
//
//go:embed schema.sql
var Schema string

// defaultTable is the name in [Schema].
const defaultTable = "idempotency_records"

// quoted returns the name of a table as SQL, with its schema if it has one.
func quoted(table string) string { return pgx.Identifier(strings.Split(table, ".")).Sanitize() }

// schemaFor is Schema for a table of another name. Its indexes are in the schema of the table.
func schemaFor(table string) string {
	parts := strings.Split(table, ".")
	name := parts[len(parts)-1]
	sql := strings.ReplaceAll(Schema, "INDEX "+defaultTable+"_sweep", "INDEX "+pgx.Identifier{name + "_sweep"}.Sanitize())
	sql = strings.ReplaceAll(sql, "INDEX "+defaultTable+"_in_doubt", "INDEX "+pgx.Identifier{name + "_in_doubt"}.Sanitize())
	sql = strings.ReplaceAll(sql, "ON "+defaultTable, "ON "+quoted(table))
	return strings.ReplaceAll(sql, "TABLE "+defaultTable, "TABLE "+quoted(table))
}

// checkName refuses names that PostgreSQL would cut, also in the names of the indexes, or read as something else.
func checkName(table string) error {
	parts := strings.Split(table, ".")
	for _, part := range parts {
		if part == "" || strings.ContainsRune(part, 0) {
			return errors.New("a table needs a name")
		}
	}
	switch {
	case len(parts) > 2:
		return fmt.Errorf("%s has more than a schema and a name", table)
	case len(parts[0]) > maxName || len(parts[len(parts)-1]) > maxName-len("_in_doubt"):
		return fmt.Errorf("%s is too long: PostgreSQL cuts names after 63 bytes, and those of indexes have 9 more", table)
	}
	return nil
}

// maxName is the length after which PostgreSQL cuts a name.
const maxName = 63
