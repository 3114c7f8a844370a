package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// This file asks PostgreSQL what the role of the service may not do. What the store itself finds out with the role of this
// command is another check.

// A need is what a role must be able to do, and what fails without.
type need struct {
	without, result, remedy string
	rights                  []right
}

// A right is the name of one, and a condition of SQL: with the role r, the table t in the schema n, the table of tags g, the
// settings s that the role begins with, and whether --table names a schema. One that is NULL is met.
type right struct{ name, met string }

func onTable(alias, ending string, names ...string) (all []right) {
	for _, name := range names {
		all = append(all, right{name + ending, "has_table_privilege(r.oid, " + alias + ".oid, '" + name + "')"})
	}
	return all
}

func calling(function string) right {
	name, _, _ := strings.Cut(function, "(")
	return right{"EXECUTE " + name, "has_function_privilege(r.oid, 'pg_catalog." + function + "', 'EXECUTE')"}
}

const (
	grant    = "GRANT it: docs/how-to/postgres-schema.md, Rights"
	setting  = "ALTER ROLE … SET, or RESET: docs/reference/postgres.md"
	with503  = "requests with a key get 503"
	nothing  = "the service does not start"
	executes = "GRANT EXECUTE ON FUNCTION … TO it, which PUBLIC has unless it was revoked"
)

// needs are those of pgstore.
var needs = []need{
	{nothing, fail, "ALTER ROLE … LOGIN, or name the role that the service connects as", []right{{"LOGIN", "r.rolcanlogin"}}},
	{nothing, fail, grant, []right{
		{"CONNECT to the database", "has_database_privilege(r.oid, current_database(), 'CONNECT')"}, {"USAGE of the schema", "has_schema_privilege(r.oid, n.oid, 'USAGE')"},
	}},
	{nothing, fail, setting, []right{{
		"find the table, by its search_path",
		`$4 OR s.path IS NULL OR n.nspname = ANY (string_to_array(replace(translate(s.path, '" ', ''), '$user', r.rolname), ','))`,
	}}},
	{with503, fail, grant, onTable("t", "", "SELECT", "INSERT", "UPDATE")},
	{"Sweep and Forget fail, and the table grows", fail, grant, onTable("t", "", "DELETE")},
	{"routes with WithReference or WithFindableScope are refused", warn, grant, onTable("g", " tags", "SELECT", "INSERT", "UPDATE", "DELETE")},
	{with503, fail, "disable row security for the table, or let the role bypass it", []right{{
		"see all rows, because of row security",
		"NOT t.relrowsecurity OR r.rolsuper OR r.rolbypassrls OR NOT t.relforcerowsecurity AND pg_has_role(r.oid, t.relowner, 'USAGE')",
	}}},
	{with503, fail, setting, []right{{"write, by default_transaction_read_only", "coalesce(s.read_only, 'off') NOT IN ('on', 'true', 'yes', '1')"}}},
	{"after a crash, requests whose record is lost run again", fail, setting, []right{{"count on commits, by synchronous_commit", "coalesce(s.commits, 'on') <> 'off'"}}},
	{"no answer is recorded", fail, executes, []right{calling("pg_notify(text, text)")}},
	{"requests get 503 under WithAsyncClaims, and where commits wait for a standby", warn, executes, []right{calling("pg_logical_emit_message(boolean, text, text)")}},
	{"requests get 503 under WithOneCommit", warn, executes, []right{calling("pg_try_advisory_xact_lock(bigint)"), calling("pg_advisory_xact_lock_shared(bigint)")}},
}

// roleSQL returns what of all needs the role $1 lacks with the table $2, whose tags are in $3. Of two settings, that of the role
// counts before that for all, and that for the database before that for all.
func roleSQL() string {
	var conditions []string
	for _, n := range needs {
		for _, r := range n.rights {
			conditions = append(conditions, "coalesce("+r.met+", true)")
		}
	}
	begins := func(name string) string {
		return `(SELECT split_part(c, '=', 2) FROM pg_db_role_setting, unnest(setconfig) AS c
			WHERE setrole IN (0, r.oid) AND setdatabase IN (0, d.oid) AND c LIKE '` + name + `=%' ORDER BY setrole = 0, setdatabase = 0 LIMIT 1)`
	}
	return `SELECT r.rolname, ARRAY[` + strings.Join(conditions, ", ") + `]
		FROM pg_roles AS r JOIN pg_database AS d ON d.datname = current_database()
		LEFT JOIN pg_class AS t ON t.oid = to_regclass($2) LEFT JOIN pg_namespace AS n ON n.oid = t.relnamespace
		LEFT JOIN pg_class AS g ON g.oid = to_regclass($3)
		CROSS JOIN LATERAL (SELECT ` + begins("default_transaction_read_only") + ` AS read_only, ` + begins("synchronous_commit") + ` AS commits,
			` + begins("search_path") + ` AS path) AS s
		WHERE r.rolname = coalesce(nullif($1, ''), current_user)`
}

// role asks what the role of the service may not do.
func (d *doctor) role(ctx context.Context) error {
	schema, name, qualified := strings.Cut(d.source.target.table, ".")
	tags := pgx.Identifier{schema + "_tags"}
	if qualified {
		tags = pgx.Identifier{schema, name + "_tags"}
	}
	var who string
	var met []bool
	err := d.source.pool.QueryRow(ctx, roleSQL(), d.account, d.table(), tags.Sanitize(), qualified).Scan(&who, &met)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		d.say("rights", fail, "there is no role "+d.account, "name the role that the service connects as, by --account")
		return nil
	case err != nil:
		return err
	}
	well := true
	for _, n := range needs {
		var lacks []string
		for i, r := range n.rights {
			if !met[i] {
				lacks = append(lacks, r.name)
			}
		}
		met = met[len(n.rights):]
		if lacks != nil {
			well = false
			d.say("rights", n.result, fmt.Sprintf("%s may not %s: %s", who, strings.Join(lacks, ", "), n.without), n.remedy)
		}
	}
	if well {
		d.say("rights", ok, who+" may do all that the service does", "")
	}
	return nil
}
