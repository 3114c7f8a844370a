package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// This file is about what a store demands of its database and its table, before it keeps a record there.

// checkSQL tells, in one row, how a connection sees the database and the table of the name $1.
const checkSQL = `SELECT
	pg_catalog.current_database() || ' ' || pg_catalog.pg_postmaster_start_time() || ' ' || coalesce(c.oid, 0),
	pg_catalog.pg_is_in_recovery(),
	pg_catalog.current_setting('default_transaction_read_only') = 'on',
	pg_catalog.current_setting('default_transaction_isolation'),
	coalesce(n.nspname::pg_catalog.text, ''), coalesce(c.relname::pg_catalog.text, ''), coalesce(c.relkind::pg_catalog.text, ''), coalesce(c.relpersistence::pg_catalog.text, ''),
	EXISTS (SELECT FROM pg_catalog.pg_rewrite WHERE ev_class = c.oid), coalesce(pg_catalog.row_security_active(c.oid), false),
	coalesce(pg_catalog.concat_ws(', ',
		CASE WHEN NOT pg_catalog.has_table_privilege(c.oid, 'SELECT') THEN 'SELECT' END,
		CASE WHEN NOT pg_catalog.has_table_privilege(c.oid, 'UPDATE') THEN 'UPDATE' END,
		CASE WHEN $2 AND NOT pg_catalog.has_table_privilege(c.oid, 'INSERT') THEN 'INSERT' END,
		CASE WHEN $2 AND NOT pg_catalog.has_table_privilege(c.oid, 'DELETE') THEN 'DELETE' END), ''),
	EXISTS (SELECT FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
		WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL AND i.indnkeyatts = 1
			AND a.attname = 'key'),
	coalesce((SELECT pg_catalog.string_agg(pg_catalog.concat_ws(' ', y.typname,
			CASE WHEN a.attcollation = '"C"'::pg_catalog.regcollation THEN 'C' ELSE '-' END,
			CASE WHEN a.attnotnull THEN 'filled' ELSE '-' END,
			CASE WHEN a.attgenerated <> '' THEN 'generated' WHEN a.atthasdef OR a.attidentity <> '' THEN 'default' ELSE '-' END,
			a.attname), E'\n')
		FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type y ON y.oid = a.atttypid
		WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped), ''),
	coalesce(pg_catalog.obj_description(c.oid, 'pg_class'), '')
FROM (SELECT pg_catalog.to_regclass($1) AS oid) named
LEFT JOIN pg_catalog.pg_class c ON c.oid = named.oid
LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace`

// A view is what a connection sees.
type view struct {
	place             string // tells the database and the table from any other
	standby, readOnly bool
	isolation         string
	schema, name      string // of the table; empty if it is not there
	kind, persistence string
	rules, hidesRows  bool
	lacks             string // rights
	unique            bool
	columns           map[string]string
	version, since    int // of the table, and the first one whose programs go on with it
}

// versions are in the comment on a table.
var versions = regexp.MustCompile(`idempotency: schema (\d{1,9}), for programs of schema (\d{1,9}) or later`)

// viewFrom looks at the table of a quoted name through a pool or a transaction, whose rows query returns. All
// rights are those of a store, and otherwise those of a transaction that is joined.
func viewFrom[R interface{ Scan(dest ...any) error }](
	ctx context.Context, query func(ctx context.Context, sql string, args ...any) R, table string, allRights bool,
) (v view, err error) {
	var columns, comment string
	err = query(ctx, checkSQL, table, allRights).Scan(
		&v.place, &v.standby, &v.readOnly, &v.isolation, &v.schema, &v.name, &v.kind, &v.persistence,
		&v.rules, &v.hidesRows, &v.lacks, &v.unique, &columns, &comment)
	if v.name != "" {
		v.version, v.since = 1, 1
	}
	if said := versions.FindStringSubmatch(comment); said != nil {
		v.version, _ = strconv.Atoi(said[1])
		v.since, _ = strconv.Atoi(said[2])
	}
	v.columns = map[string]string{}
	for line := range strings.Lines(columns) {
		if parts := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 5); len(parts) == 5 {
			v.columns[parts[4]] = strings.Join(parts[:4], " ")
		}
	}
	return v, err
}

// inSQL writes a column of a view as SQL does.
var inSQL = strings.NewReplacer(" -", "", " C", ` COLLATE "C"`, " filled", " NOT NULL", " generated", " GENERATED ALWAYS AS …")

// fits returns nil, or what is wrong with the table and how to mend it.
func (v *view) fits() error {
	switch {
	case v.name == "":
		return errors.New("it is not there, or not in the search_path: Migrate makes it")
	case v.since > version():
		return fmt.Errorf("it has version %d, with which programs go on that know version %d or later, and this one knows %d: update the program", v.version, v.since, version())
	case v.kind != "r":
		return errors.New("something else has its name, or it is partitioned: it must be an ordinary table; WithTable takes another name")
	case v.persistence != "p":
		return errors.New("it is unlogged, so a crash empties it: ALTER TABLE … SET LOGGED")
	case v.rules:
		return errors.New("it has rules, with which PostgreSQL takes no claim: DROP RULE, and make them triggers")
	case !v.unique:
		return errors.New("its column key has no primary key of its own: make the table as Schema does")
	}
	wanted := wantedColumns()
	for name, want := range wanted {
		if got, ok := v.columns[name]; !ok || got != want {
			return fmt.Errorf("its column %s is %q and must be %q: ALTER TABLE … ALTER COLUMN %s, or make the table as Schema does", name, inSQL.Replace(got), inSQL.Replace(want), name)
		}
	}
	for name, got := range v.columns {
		if _, ok := wanted[name]; !ok && strings.HasSuffix(got, "filled -") {
			return fmt.Errorf("the store does not fill the column %s: give it a default, or drop NOT NULL", name)
		}
	}
	return nil
}

// serves returns nil, or why the connection cannot keep records in the table.
func (v *view) serves() error {
	switch {
	case v.standby:
		return errors.New("the server is a standby, which does not write: connect to the primary")
	case v.readOnly:
		return errors.New("transactions only read: set default_transaction_read_only to off for the role, or in the connection string")
	case v.lacks != "":
		return fmt.Errorf("the role lacks rights: GRANT %s ON the table TO it", v.lacks)
	case v.hidesRows:
		return errors.New("row security hides records from the role: disable it for the table, or let the role bypass it")
	}
	return nil
}

// checkTagsSQL tells whether the table of the name $1 is there, and which rights the role lacks.
const checkTagsSQL = `SELECT oid IS NOT NULL, coalesce(pg_catalog.concat_ws(', ',
		CASE WHEN NOT pg_catalog.has_table_privilege(oid, 'SELECT') THEN 'SELECT' END,
		CASE WHEN NOT pg_catalog.has_table_privilege(oid, 'INSERT') THEN 'INSERT' END,
		CASE WHEN NOT pg_catalog.has_table_privilege(oid, 'UPDATE') THEN 'UPDATE' END,
		CASE WHEN NOT pg_catalog.has_table_privilege(oid, 'DELETE') THEN 'DELETE' END), '')
	FROM (SELECT pg_catalog.to_regclass($1) AS oid) AS named`

// checkTags returns the quoted name of the table of tags, or why a store cannot keep any. All pools write there.
func checkTags(ctx context.Context, schema, name string, pools ...*pgxpool.Pool) (table string, tagless, err error) {
	table = pgx.Identifier{schema, name}.Sanitize()
	for _, pool := range pools {
		var there bool
		var lacks string
		switch err := pool.QueryRow(ctx, checkTagsSQL, table).Scan(&there, &lacks); {
		case err != nil:
			return "", nil, err
		case !there:
			return "", fmt.Errorf("pgstore: there is no table of tags %s: Migrate makes it, as schema 3", table), nil
		case lacks != "":
			return "", fmt.Errorf("pgstore: the role lacks rights on the table of tags: GRANT %s ON %s TO it", lacks, table), nil
		}
	}
	return table, nil, nil
}

// columnLine is the definition of a column in [Schema].
var columnLine = regexp.MustCompile(`(?m)^\t(\w+) +(text|int8|bool|bytea)( COLLATE "C")?( PRIMARY KEY| NOT NULL)?( GENERATED ALWAYS AS)?`)

// wantedColumns are those of the table in [Schema], as a view has them. Of the collations only that of the key matters: it
// decides which keys are equal.
func wantedColumns() map[string]string {
	wanted := map[string]string{}
	either := func(is bool, word string) string {
		if is {
			return word
		}
		return "-"
	}
	for _, m := range columnLine.FindAllStringSubmatch(steps[1], -1) {
		wanted[m[1]] = strings.Join([]string{m[2], either(m[3] != "", "C"), either(m[4] != "", "filled"), either(m[5] != "", "generated")}, " ")
	}
	return wanted
}

// check looks at the table through the connections of the store and those of the program, and returns what
// both see.
func check(ctx context.Context, own, business *pgxpool.Pool, table string) (v, theirs view, err error) {
	if v, err = viewFrom(ctx, own.QueryRow, quoted(table), true); err == nil {
		err = cmp.Or(v.fits(), v.serves())
	}
	if err != nil {
		return v, theirs, fmt.Errorf("the table %s: %w", table, err)
	}
	theirs, err = viewFrom(ctx, business.QueryRow, quoted(table), false)
	switch {
	case err != nil:
	case theirs.place != v.place:
		err = errors.New("WithPoolConfig leads to another database, or another table by its search_path, so that no transaction could be joined: give both the same one, or WithTable a schema")
	default:
		err = theirs.serves()
	}
	if err != nil {
		err = fmt.Errorf("the table %s, through the pool of the program: %w", table, err)
	}
	return v, theirs, err
}
