package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// This file keeps a process from a primary that a standby has replaced, and that runs again: it would take
// records, and its successor does not have them.

// An origin is whose commits a server makes: the database system, and its timeline, which PostgreSQL counts up
// when it promotes a standby. What a server does not tell is empty.
type origin struct {
	system   string
	timeline string // eight hexadecimal digits, which sort as numbers do; empty for a standby
}

// isBehind reports whether a standby of the server has been promoted, if newest has been met. Timelines of two
// systems cannot be compared: such a database has moved to a server that was made otherwise.
func (o origin) isBehind(newest origin) bool {
	same := o.system == newest.system || o.system == "" || newest.system == ""
	return same && o.timeline != "" && o.timeline < newest.timeline
}

// after returns the newest origin when o has been met, too.
func (o origin) after(newest origin) origin {
	if o.timeline == "" || o.isBehind(newest) {
		return newest
	}
	return origin{cmp.Or(o.system, newest.system), o.timeline}
}

// errBehind says that a server must not keep records any more.
var errBehind = errors.New("pgstore: the server is on an older timeline of its database than one that this process has met, " +
	"so it is a primary that a standby has replaced: stop it, or make it a standby; if it was put back on purpose, restart this process")

const (
	// timeline is that of a server. It says nothing on a standby, where the functions fail. The position is asked for,
	// although it does not matter: with a constant one, PostgreSQL takes the name of the file for a constant, too.
	timeline = `CASE WHEN pg_catalog.pg_is_in_recovery() THEN '' ELSE pg_catalog."left"(` + walFile + `, 8) END`

	// walFile begins with the timeline.
	walFile = `pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn())`

	// inRecovery is what a standby tells in place of a file.
	inRecovery = "standby"

	askTimeline = `SELECT ` + timeline + `, ''`
	askOrigin   = `SELECT ` + timeline + `, (SELECT system_identifier FROM pg_catalog.pg_control_system())`
)

// originKey is where a connection keeps what its server has told.
const originKey = "idempotency: origin"

// A fence remembers the newest origin that a store has met, and refuses connections to older ones.
type fence struct {
	mu        sync.Mutex
	newest    origin
	questions []string // what connections ask; a service may not offer it
}

func newFence() *fence { return &fence{questions: []string{askOrigin, askTimeline}} }

// timeline returns the newest timeline, or "" if none was told.
func (f *fence) timeline() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.newest.timeline
}

// judge returns an error if a server is behind, and remembers the others.
func (f *fence) judge(o origin) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if o.isBehind(f.newest) {
		return fmt.Errorf("%w (timeline %s; met %s)", errBehind, o.timeline, f.newest.timeline)
	}
	f.newest = o.after(f.newest)
	return nil
}

// admit asks the server of a connection, and returns an error if it is behind.
func (f *fence) admit(ctx context.Context, conn *pgconn.PgConn) error {
	o, err := f.ask(ctx, conn)
	if err != nil {
		return err
	}
	conn.CustomData()[originKey] = o
	return f.judge(o)
}

// ask asks the server of a connection. Where a service does not offer the question, it tells nothing.
func (f *fence) ask(ctx context.Context, conn *pgconn.PgConn) (o origin, err error) {
	f.mu.Lock()
	questions := f.questions
	f.mu.Unlock()
	for _, question := range questions {
		var results []*pgconn.Result
		results, err = conn.Exec(ctx, question).ReadAll()
		switch c := code(err); {
		case err == nil:
			row := results[0].Rows[0]
			return origin{timeline: string(row[0]), system: string(row[1])}, nil
		case len(c) != 5 || !slices.Contains([]string{"0A", "42", "55", "XX"}, c[:2]):
			return origin{}, err
		case c[:2] == "0A" || c[:2] == "42": // it will say so each time
			f.mu.Lock()
			f.questions = slices.DeleteFunc(slices.Clone(f.questions), func(q string) bool { return q == question })
			f.mu.Unlock()
		}
	}
	return origin{}, nil
}

// watch makes the connections of a pool pass the fence. One that is refused when it is made lets the driver try the
// next host of the connection string. One that was made before a newer origin was met is closed when it is next used.
func (f *fence) watch(cfg *pgxpool.Config) {
	valid, prepare := cfg.ConnConfig.ValidateConnect, cfg.PrepareConn
	before := cfg.BeforeAcquire //nolint:staticcheck // a program may set it still, and PrepareConn would hide it
	cfg.ConnConfig.ValidateConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		if err := f.admit(ctx, conn); err != nil || valid == nil {
			return err
		}
		return valid(ctx, conn)
	}
	cfg.PrepareConn = func(ctx context.Context, conn *pgx.Conn) (bool, error) {
		o, _ := conn.PgConn().CustomData()[originKey].(origin)
		switch {
		case f.judge(o) != nil:
			return false, nil
		case prepare != nil:
			return prepare(ctx, conn)
		default:
			return before == nil || before(ctx, conn), nil
		}
	}
}

// isOffered reports whether the statements of a transaction can ask for the timeline through a pool. If not, they do
// not ask.
func (f *fence) isOffered(ctx context.Context, pool *pgxpool.Pool) bool {
	var told string
	return f.timeline() != "" && pool.QueryRow(ctx, "SELECT "+timeline).Scan(&told) == nil
}
