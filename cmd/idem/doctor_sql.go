package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/stores/pgstore"
)

// sweepLate is how long an expired record may stay in a table.
const sweepLate = 3 * time.Hour

// sweep says how long the oldest expired record has been waiting for its removal.
func (d *doctor) sweep(expired time.Duration) {
	found := "nothing has waited"
	if expired > 0 {
		found = "the oldest expired record has waited for " + inspect.Span(expired)
	}
	d.say("sweep", worse(expired, sweepLate, time.Duration(1<<63-1)), found, "call Sweep of the store every few minutes: the table grows")
}

func (d *doctor) examinePostgres(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	if err := d.source.pool.Ping(ctx); err != nil {
		return err
	}
	switch err := d.source.open(ctx); {
	case err != nil && isAway(err):
		return err
	case err != nil:
		d.say("table", fail, err.Error(), "docs/how-to/postgres-schema.md")
		return nil
	}
	d.say("table", ok, "keeps records", "")
	var comment, isolation, sync, fsync string
	var server time.Time
	var late float64
	before := d.app.now()
	table := d.table()
	err := d.source.pool.QueryRow(ctx, `SELECT clock_timestamp(), coalesce(obj_description(to_regclass($1), 'pg_class'), ''),
		current_setting('default_transaction_isolation'), current_setting('synchronous_commit'), current_setting('fsync'),
		coalesce(extract(epoch FROM clock_timestamp()) - 3600 * (SELECT min(sweep_hour) FROM `+table+`), 0)::float8`, table).
		Scan(&server, &comment, &isolation, &sync, &fsync, &late)
	if err != nil {
		return err
	}
	d.clock(server, before, d.app.now())
	d.schema(comment)
	if err := errors.Join(d.health(ctx, "server", "a primary with connections and transaction IDs left", "docs/how-to/postgres-operations.md"), d.role(ctx)); err != nil {
		return err
	}
	if isolation == "read committed" {
		d.say("isolation", ok, isolation, "")
	} else {
		d.say("isolation", warn, isolation+" by default: calls may meet conflicts and are repeated", "ALTER ROLE … SET default_transaction_isolation = 'read committed'")
	}
	switch {
	case fsync != "on":
		d.say("durability", fail, "fsync is off", "set fsync to on: a crash may lose or damage every record")
	case sync == "off":
		d.say("durability", fail, "synchronous_commit is off", "set it to on for the role: after a crash, requests whose record is lost run again")
	default:
		d.say("durability", ok, "what is committed is on the disk", "")
	}
	d.sweep(max(0, time.Duration(late*float64(time.Second))))
	if err := d.lookIntoTable(ctx, table); err != nil {
		return err
	}
	return d.echo(ctx)
}

// table is the quoted name of the table.
func (d *doctor) table() string {
	return pgx.Identifier(strings.Split(d.source.target.table, ".")).Sanitize()
}

// health says what a store finds wrong with itself, or that it is well.
func (d *doctor) health(ctx context.Context, name, well, remedy string) error {
	st, _ := d.source.records.(interface {
		Health(context.Context) ([]error, error)
	})
	faults, err := st.Health(ctx)
	for _, fault := range faults {
		_, says, _ := strings.Cut(fault.Error(), ": ")
		d.say(name, fail, says, remedy)
	}
	if err == nil && faults == nil {
		d.say(name, ok, well, "")
	}
	return err
}

var schemaVersion = regexp.MustCompile(`idempotency: schema (\d{1,9})`)

// schema compares the version of the table with that of this program.
func (d *doctor) schema(comment string) {
	version := 1
	if said := schemaVersion.FindStringSubmatch(comment); said != nil {
		version, _ = strconv.Atoi(said[1])
	}
	switch steps, err := pgstore.MigrationSQL(version, pgstore.WithTable(d.source.target.table)); {
	case err != nil:
		d.say("schema", warn, fmt.Sprintf("version %d, which is later than this program", version), "use the idem of the newer version")
	case steps != "":
		d.say("schema", warn, fmt.Sprintf("version %d, which is not the newest", version), "call pgstore.Migrate, or run what pgstore.MigrationSQL returns")
	default:
		d.say("schema", ok, fmt.Sprintf("version %d", version), "")
	}
}

// echo listens for what it says itself.
func (d *doctor) echo(ctx context.Context) error {
	conn, err := d.source.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if _, err := conn.Exec(ctx, "LISTEN idem_doctor", pgx.QueryExecModeExec); err != nil {
		return err
	}
	defer func() { _, _ = conn.Exec(ctx, "UNLISTEN idem_doctor", pgx.QueryExecModeExec) }()
	if _, err := d.source.pool.Exec(ctx, "NOTIFY idem_doctor", pgx.QueryExecModeExec); err != nil {
		return err
	}
	heard, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, err = conn.Conn().WaitForNotification(heard)
	switch {
	case err == nil:
		d.say("listen", ok, "hears its own NOTIFY", "")
	case errors.Is(err, context.DeadlineExceeded):
		d.say("listen", warn, "hears no NOTIFY, as behind a pooler: requests that wait ask at intervals", "give pgstore.New a direct connection by WithPoolConfig, or WithoutListen")
	default:
		return err
	}
	return nil
}

func (d *doctor) examineSQLite(ctx context.Context) error {
	file, err := os.Stat(d.source.target.sqlite)
	if err != nil {
		return err
	}
	if mode := file.Mode().Perm(); mode&0o077 != 0 {
		d.say("file", warn, fmt.Sprintf("others may open it (%v)", mode), "chmod 600: who can write it can make up answers")
	} else {
		d.say("file", ok, fmt.Sprintf("only its owner may open it (%v)", mode), "")
	}
	var late float64
	err = d.source.file.QueryRowContext(ctx, `SELECT coalesce(unixepoch('subsec') - min(expires) / 1e6, 0) FROM idempotency_records`).Scan(&late)
	if err != nil {
		return err
	}
	d.sweep(max(0, time.Duration(late*float64(time.Second))))
	if err := d.source.open(ctx); err != nil {
		return err
	}
	if err := d.health(ctx, "disk", "it has room, and the log beside the file does not wait", "docs/how-to/sqlite.md"); err != nil {
		return err
	}
	rows, err := d.source.file.QueryContext(ctx, "SELECT key FROM idempotency_records LIMIT ?", mostRead)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	var names []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return err
		}
		names = append(names, name)
	}
	return errors.Join(rows.Err(), d.readable(ctx, names))
}
