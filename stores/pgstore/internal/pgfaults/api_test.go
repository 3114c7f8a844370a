package pgfaults

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/race"
	"example.com/idempotency/stores/pgstore"
)

// This file is the API on which the faults fall: each of its charges is one business row.

// slower is how much more time everything gets, and how much less is done at a time.
var slower = map[bool]int{true: 3, false: 1}[race.Enabled]

const chargesTable = `CREATE TABLE IF NOT EXISTS charges (key text NOT NULL, id text NOT NULL, attempt int8 NOT NULL)`

// A charge is what a request asks for.
type charge struct {
	key     string
	attempt int
	level   pgx.TxIsoLevel
	sleep   time.Duration
	id      string // of the row that this run inserts
	try     func() // is called when the transaction of the run begins, once more after a conflict
	beside  func() // sends the request once more to another API, if the run is to have company
}

// errDeclined is why a function fails whose handler goes on.
var errDeclined = errors.New("declined")

// besideStatus says in an answer what came of the request beside the run.
const besideStatus = "Beside-Status"

// An api is one API process, or what would be one.
type api struct {
	pool   *pgxpool.Pool
	db     *sql.DB
	store  *pgstore.Store
	guard  *idempotency.Guard
	events guardtest.Events

	tries atomic.Int64 // of transactions

	// other, if it is not nil, makes the request of a first run beside that run.
	other func(ctx context.Context) (status int, err error)

	mu   sync.Mutex
	runs map[string][]string // the IDs that runs were to insert, by key
}

// A kind is what an API promises.
type kind string

const (
	joined kind = "joined" // its guard has WithTransaction
	async  kind = "async"  // the same, and a crash may lose its claims
	apart  kind = "apart"  // the control: its rows are committed apart from the record

	// whole begins the kinds whose claims are transactions, of the level that follows. Of mixed, only the API
	// is that the faults strike; the other one is joined.
	whole      = "whole "
	mixed kind = whole + "beside joined"
)

// level returns at which level the claims of an API are transactions, if they are.
func (k kind) level() (level string, ok bool) {
	if k == mixed {
		return "read-committed", true
	}
	return strings.CutPrefix(string(k), whole)
}

// newAPI returns an API on a database.
func newAPI(ctx context.Context, dsn string, k kind) (*api, error) {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return nil, err
	}
	a := &api{pool: pool, db: pgstore.OpenDB(pool), runs: make(map[string][]string)}
	opts := []idempotency.Option{
		idempotency.WithLogger(slog.New(slog.DiscardHandler)), idempotency.WithObserver(a.events.Observe),
	}
	if k != apart {
		opts = append(opts, idempotency.WithTransaction(true), idempotency.WithRecovery(idempotency.Hold))
	} else {
		opts = append(opts, idempotency.WithRecovery(idempotency.Rerun))
	}
	var of []pgstore.Option
	if k == async {
		of = append(of, pgstore.WithAsyncClaims())
	}
	if level, ok := k.level(); ok {
		of = append(of, pgstore.WithOneCommit(levels[level]))
	}
	if a.store, err = pgstore.New(ctx, pool, of...); err == nil {
		a.guard, err = idempotency.New(a.store, guardtest.TenantScope, opts...)
	}
	if err != nil {
		a.close(ctx)
		return nil, err
	}
	return a, nil
}

// close shuts the API down and closes its connections.
func (a *api) close(ctx context.Context) {
	if a.guard != nil {
		_ = a.guard.Shutdown(ctx) // what it says was reported as an event
	}
	if a.store != nil {
		a.store.Close()
	}
	_ = a.db.Close()
	a.pool.Close()
}

// handler serves POST /way/level, with a header that says how long the run takes. A run has a lease of
// that length.
func (a *api) handler(lease time.Duration) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{way}/{level}", func(w http.ResponseWriter, r *http.Request) {
		op, _ := idempotency.FromContext(r.Context())
		sleep, _ := time.ParseDuration(r.Header.Get("Length"))
		c := charge{key: op.Key().Value, attempt: op.Attempt(), level: levels[r.PathValue("level")], sleep: sleep, id: rand.Text(), try: func() { a.tries.Add(1) }}
		a.mu.Lock()
		a.runs[c.key] = append(a.runs[c.key], c.id)
		a.mu.Unlock()
		c.beside = func() { a.goBeside(w, r, sleep, lease) }
		ctx, cancel := context.WithTimeout(r.Context(), 2*lease) // a connection may be silent
		defer cancel()
		id, err := ways[r.PathValue("way")](ctx, a, c)
		switch {
		case errors.Is(err, errDeclined):
			op.SetOutcome(idempotency.NotExecuted)
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
			return
		case err != nil:
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(map[string]string{"id": id})
	})
	return a.guard.With(idempotency.WithLease(lease)).Handler(mux)
}

// goBeside makes the request of a long run once more, and says in its answer what came of that.
func (a *api) goBeside(w http.ResponseWriter, r *http.Request, length, lease time.Duration) {
	if a.other == nil || length <= shortRun {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 2*lease)
	defer cancel()
	if status, err := a.other(ctx); err == nil {
		w.Header().Set(besideStatus, strconv.Itoa(status))
	}
}

// inserted returns the IDs that the runs of a key were to insert.
func (a *api) inserted(key string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string(nil), a.runs[key]...)
}

// levels are the isolation levels of PostgreSQL, by their names in a path.
var levels = map[string]pgx.TxIsoLevel{
	"read-committed": pgx.ReadCommitted, "repeatable-read": pgx.RepeatableRead, "serializable": pgx.Serializable,
}

// A way is how a handler commits its row. It returns the ID of the row.
type way func(ctx context.Context, a *api, c charge) (id string, err error)

var ways = map[string]way{
	"InTx": func(ctx context.Context, a *api, c charge) (string, error) {
		return c.id, a.store.InTx(ctx, pgx.TxOptions{IsoLevel: c.level}, func(tx pgx.Tx) error { return c.insert(ctx, tx) })
	},
	"another InTx": func(ctx context.Context, a *api, c charge) (string, error) {
		opts := pgx.TxOptions{IsoLevel: c.level}
		if err := a.store.InTx(ctx, opts, func(pgx.Tx) error { return errDeclined }); !errors.Is(err, errDeclined) {
			return "", err
		}
		c.beside()
		return c.id, a.store.InTx(ctx, opts, func(tx pgx.Tx) error { return c.insert(ctx, tx) })
	},
	"InSQLTx": func(ctx context.Context, a *api, c charge) (string, error) {
		return c.id, a.store.InSQLTx(ctx, a.db, c.sqlOptions(), func(tx *sql.Tx) error { return c.insertSQL(ctx, tx) })
	},
	// A handler whose first try fails after its row, with whatever error; meanwhile there is a request beside it. Then
	// it says that nothing was done.
	"failed InTx": func(ctx context.Context, a *api, c charge) (string, error) {
		return c.unlessLong(a.store.InTx(ctx, pgx.TxOptions{IsoLevel: c.level}, func(tx pgx.Tx) error {
			return c.fail(c.insert(ctx, tx))
		}))
	},
	"failed InSQLTx": func(ctx context.Context, a *api, c charge) (string, error) {
		return c.unlessLong(a.store.InSQLTx(ctx, a.db, c.sqlOptions(), func(tx *sql.Tx) error {
			return c.fail(c.insertSQL(ctx, tx))
		}))
	},
	"StepTx": func(ctx context.Context, a *api, c charge) (string, error) {
		return pgstore.StepTx(ctx, a.store, "charge", pgx.TxOptions{IsoLevel: c.level}, func(ctx context.Context, tx pgx.Tx) (string, error) {
			return c.id, c.insert(ctx, tx)
		})
	},
	// The control: a transaction that does not know of the record.
	"apart": func(ctx context.Context, a *api, c charge) (string, error) {
		return c.id, pgx.BeginTxFunc(ctx, a.pool, pgx.TxOptions{IsoLevel: c.level}, func(tx pgx.Tx) error { return c.insert(ctx, tx) })
	},
}

type statement struct {
	sql  string
	args []any
}

func (c charge) statements() []statement {
	c.try()
	return []statement{
		{"INSERT INTO charges (key, id, attempt) VALUES ($1, $2, $3)", []any{c.key, c.id, int64(c.attempt)}},
		{"SELECT pg_sleep($1::text::float8)", []any{strconv.FormatFloat(c.sleep.Seconds(), 'f', -1, 64)}},
	}
}

// shortRun is the longest that a run sleeps which is not the first one.
const shortRun = time.Millisecond

// fail makes the function of a long run fail.
func (c charge) fail(err error) error {
	if err == nil && c.sleep > shortRun {
		return errDeclined
	}
	return err
}

// unlessLong is what a handler makes of its transaction: a long run has done nothing, whatever its error is.
func (c charge) unlessLong(err error) (string, error) {
	if c.sleep > shortRun {
		c.beside()
		return "", errDeclined
	}
	return c.id, err
}

func (c charge) sqlOptions() *sql.TxOptions {
	return &sql.TxOptions{Isolation: map[pgx.TxIsoLevel]sql.IsolationLevel{
		pgx.ReadCommitted: sql.LevelReadCommitted, pgx.RepeatableRead: sql.LevelRepeatableRead, pgx.Serializable: sql.LevelSerializable,
	}[c.level]}
}

func (c charge) insertSQL(ctx context.Context, tx *sql.Tx) error {
	for _, s := range c.statements() {
		if _, err := tx.ExecContext(ctx, s.sql, s.args...); err != nil {
			return err
		}
	}
	return nil
}

func (c charge) insert(ctx context.Context, tx pgx.Tx) error {
	for _, s := range c.statements() {
		if _, err := tx.Exec(ctx, s.sql, s.args...); err != nil {
			return err
		}
	}
	return nil
}
