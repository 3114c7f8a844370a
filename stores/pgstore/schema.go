package pgstore

import (
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Schema is the SQL that creates the table of a [Store] with its indexes and its view, for teams that run
// their own migrations. The table is called idempotency_records. [MigrationSQL] is for a table that is there.
//
//go:embed schema.sql
var Schema string

// defaultTable and defaultView are the names in [Schema].
const (
	defaultTable = "idempotency_records"
	defaultView  = "idempotency_keys"
)

// steps are the parts of Schema. Each brings a table from the version before to that of its index.
var steps = regexp.MustCompile(`(?m)^-- Version \d+: `).Split(Schema, -1)

// version is that of a table as Schema makes it.
func version() int { return len(steps) - 1 }

// MigrationSQL returns the SQL that brings the table of a store from an earlier version of [Schema] to that
// of this package, for goose, Atlas or a DBA. Version 0 is no table. A comment on the table says which
// version it has; a table without one has version 1. Of the options only [WithTable] matters. It returns an
// error for a name that [New] refuses, and for a version that this package does not know.
//
// A step takes no lock that keeps a running program waiting, and a program of an earlier version goes on
// with the table unless the comment says otherwise. So run the steps before you deploy.
func MigrationSQL(from int, opts ...Option) (string, error) {
	table, err := tableOf(opts)
	if err != nil {
		return "", fmt.Errorf("pgstore: MigrationSQL: %w", err)
	}
	if from < 0 || from > version() {
		return "", fmt.Errorf("pgstore: MigrationSQL: there is no version %d: this package knows those up to %d", from, version())
	}
	var b strings.Builder
	for n := from + 1; n <= version(); n++ {
		fmt.Fprintf(&b, "-- Version %d: %s", n, stepFor(table, n))
	}
	return b.String(), nil
}

// tableOf returns the table that the options name.
func tableOf(opts []Option) (string, error) {
	c := config{table: defaultTable}
	for _, o := range opts {
		if o != nil {
			o(&c)
		}
	}
	return c.table, checkName(c.table)
}

// quoted returns the name of a table as SQL, with its schema if it has one.
func quoted(table string) string { return pgx.Identifier(strings.Split(table, ".")).Sanitize() }

// tagsOf returns the name of the table of tags that belongs to a table of records. It is in the same schema.
func tagsOf(table string) string { return table + "_tags" }

// stepFor is a step for a table of another name. Its indexes, its view and its tags are in the schema of the table.
func stepFor(table string, n int) string {
	parts := strings.Split(table, ".")
	name := parts[len(parts)-1]
	view := defaultView
	if name != defaultTable {
		view = name + "_keys"
	}
	tags := quoted(tagsOf(table))
	index := func(end string) string { return "INDEX " + pgx.Identifier{name + end}.Sanitize() }
	return strings.NewReplacer(
		"EXISTS "+tagsOf(defaultTable)+"_key", "EXISTS "+pgx.Identifier{tagsOf(name) + "_key"}.Sanitize(),
		"EXISTS "+tagsOf(defaultTable), "EXISTS "+tags, "ON "+tagsOf(defaultTable), "ON "+tags,
		"INDEX "+defaultTable+"_sweep", index("_sweep"), "INDEX "+defaultTable+"_in_doubt", index("_in_doubt"),
		"ON "+defaultTable, "ON "+quoted(table), "TABLE "+defaultTable, "TABLE "+quoted(table), "FROM "+defaultTable, "FROM "+quoted(table),
		"VIEW "+defaultView, "VIEW "+pgx.Identifier(append(parts[:len(parts)-1:len(parts)-1], view)).Sanitize(),
	).Replace(steps[n])
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
