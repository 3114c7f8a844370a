package pgstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"example.com/idempotency/internal/sqlrecord"
	"example.com/idempotency/store"
)

// defaultConns is how many connections a store has at most.
const defaultConns = 8

// othersConns is how many of them are left by calls that may wait for a locked row.
const othersConns = 2

// A Store is a [store.Store] in a table of PostgreSQL 14 or later. Its methods may be
// called concurrently, and any number of processes may share a table. Make one with [New].
//
// It is also a [store.ContextStore], a [store.Watcher], a
// [store.StepStore], a [store.Inspector], a [store.Lister], a [store.Finder] and a [store.Gauge].
//
// # What it costs
//
// A claim takes one round trip, and a second one if the key has a record that the claim changes, or had one
// that this process has seen and that was removed since.
// Completing, releasing and replaying take one each. A run that joins a transaction takes as many round
// trips as the transaction alone: the claim is one more, and BEGIN goes with the first statement. At
// REPEATABLE READ and above it takes one more, because the record is locked first. With [WithOneCommit] the
// claim is that of BEGIN. Expired records are not seen any more, and stay in
// the table until [Store.Sweep] removes them.
type Store struct {
	pool     *pgxpool.Pool          // the store's own
	turns    chan struct{}          // of calls that may wait for a locked row
	business *pgxpool.Pool          // the program's, for joined transactions
	connects driver.Connector       // to business, by database/sql's driver
	strict   bool                   // transactions of business see the past unless they say otherwise
	locked   sqlrecord.Locked       // the records that joined transactions keep locked
	known    atomic.Pointer[sql.DB] // one whose transactions may be joined
	fence    *fence                 // against a primary that was replaced
	met      *met                   // keys whose records claims have lately found, or made
	sweeper  sweeper
	table    string // its quoted name, with the schema
	tags     string // that of its tags; empty if it keeps none
	tagless  error  // why it does not, or nil
	sql      statements
	channel  string
	listens  bool
	async    bool // claims are not durable at once

	usual     pgx.TxIsoLevel // of transactions of business that do not say otherwise
	oneCommit pgx.TxIsoLevel // of claims that are open transactions; empty for none
	opened    sync.Map       // those, by their runs
	held      atomic.Int32   // the connections of business that they hold
	maxHeld   int32
	awaited   sync.Map        // the keys whose locks are waited for
	waits     atomic.Int64    // how many they are
	life      context.Context // of what nobody waits for
	endLife   context.CancelFunc

	listener *listener
}

var (
	_ store.Store        = (*Store)(nil)
	_ store.ContextStore = (*Store)(nil)
	_ store.Watcher      = (*Store)(nil)
	_ store.StepStore    = (*Store)(nil)
	_ store.Inspector    = (*Store)(nil)
	_ store.Lister       = (*Store)(nil)
	_ store.Finder       = (*Store)(nil)
	_ store.Gauge        = (*Store)(nil)
	_ store.TxStore      = (*Store)(nil)
	_ store.Comparer     = (*Store)(nil)
)

// An Option changes a setting of [New].
type Option func(*config)

type config struct {
	table   string
	conns   int32
	pool    *pgxpool.Config // nil for that of the program's pool
	listens bool
	async   bool

	oneCommit *pgx.TxIsoLevel
}

// WithTable sets the name of the table. The default is idempotency_records. A name with a dot
// names a schema, too. New refuses an empty name, and one of more than 54 bytes.
func WithTable(name string) Option { return func(c *config) { c.table = name } }

// WithConns sets how many connections the store has at most. The default is 8. New refuses less
// than one. With more than two, calls that wait for a locked record leave two of them to others.
func WithConns(n int) Option { return func(c *config) { c.conns = int32(min(n, 1<<15)) } }

// WithPoolConfig sets how the store makes its own connections, for example past a pooler or by a
// user of their own. It must have been made by [pgxpool.ParseConfig] and lead to the same database.
// The default, and nil, stand for the configuration of the pool that New gets. The size of
// the pool is that of [WithConns] all the same.
func WithPoolConfig(cfg *pgxpool.Config) Option { return func(c *config) { c.pool = cfg } }

// WithoutListen makes the store work without LISTEN, for a pooler that gives each transaction
// another connection, such as PgBouncer's transaction pooling. A request that waits for another
// one then asks the database at growing intervals, from 50 ms to 1 s. Without this option the store finds
// out that LISTEN hears nothing, reports it once, and asks, too.
func WithoutListen() Option { return func(c *config) { c.listens = false } }

// WithAsyncClaims makes the store acknowledge the first claim of a key before it is on the disk, or on a
// synchronous standby, where the guard allows that: in runs under [idempotency.WithTransaction]. All
// else is committed as the database is configured. It saves the time of one flush to the disk.
//
// When the server crashes, such a claim may be lost. Its transaction is rolled back then, and the next
// request with the key runs: there is one row for a key all the same. Before the run begins a step or
// learns its [idempotency.Operation.ID] or an [idempotency.DeriveKey], the claim is made durable, which
// costs another round trip.
func WithAsyncClaims() Option { return func(c *config) { c.async = true } }

// New returns a store in the database of pool. It connects with a small pool of its own, made
// from the configuration of pool: a lease must be renewed even while the handlers wait for each
// other's connections. Close the store to close its connections; pool stays open.
//
// New refuses what could not keep records: a table that is not there or not as [Schema] has it, a
// server or a role that cannot write, and a pool that does not see the table of the store. [Migrate]
// makes the table. Behind a pooler that gives each transaction another connection, it names the modes of
// the driver that go with that. The store uses the table that it has found, whatever the search_path of a later
// transaction.
func New(ctx context.Context, pool *pgxpool.Pool, opts ...Option) (*Store, error) {
	if pool == nil {
		return nil, errors.New("pgstore: New: pool is nil")
	}
	c := config{table: defaultTable, conns: defaultConns, listens: true}
	for _, o := range opts {
		if o != nil {
			o(&c)
		}
	}
	if c.conns < 1 {
		return nil, errors.New("pgstore: New: a store needs at least one connection")
	}
	if err := checkName(c.table); err != nil {
		return nil, fmt.Errorf("pgstore: New: %w", err)
	}
	own := pool.Config()
	if c.pool != nil {
		own = c.pool.Copy()
	}
	own.MaxConns, own.MinConns, own.MinIdleConns = c.conns, 0, min(own.MinIdleConns, c.conns)
	if own.ConnConfig.DefaultQueryExecMode == pgx.QueryExecModeDescribeExec {
		// Behind a pooler, what describes a statement and what executes it may be two connections.
		own.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	fence := newFence()
	fence.watch(own)
	p, err := pgxpool.NewWithConfig(ctx, own)
	if err != nil {
		return nil, fmt.Errorf("pgstore: New: %w", err)
	}
	v, theirs, err := check(ctx, p, pool, c.table)
	if err != nil {
		p.Close()
		return nil, calls.Wrap("New", err)
	}
	level, err := oneCommitLevel(&c, theirs.isolation, pool.Config().MaxConns)
	if err != nil {
		p.Close()
		return nil, fmt.Errorf("pgstore: New: %w", err)
	}
	s := &Store{
		pool: p, turns: make(chan struct{}, max(1, c.conns-othersConns)), business: pool, connects: stdlib.GetPoolConnector(pool), fence: fence, met: newMet(),
		strict:  theirs.isolation != "read committed" && theirs.isolation != "read uncommitted",
		table:   pgx.Identifier{v.schema, v.name}.Sanitize(),
		channel: channelFor(v.schema + "." + v.name), listens: c.listens, async: c.async,
		usual: pgx.TxIsoLevel(theirs.isolation), oneCommit: level, maxHeld: pool.Config().MaxConns * 3 / 4,
	}
	s.life, s.endLife = context.WithCancel(context.Background())
	writers := []*pgxpool.Pool{p}
	if level != "" {
		writers = append(writers, pool)
	}
	if s.tags, s.tagless, err = checkTags(ctx, v.schema, tagsOf(v.name), writers...); err != nil {
		p.Close()
		return nil, calls.Wrap("New", err)
	}
	s.sql, s.listener = statementsFor(s.table, s.tags, fence.isOffered(ctx, pool)), listenOn(p, s.channel)
	return s, nil
}

// connect takes a connection of the program's pool. Its Close gives it back.
func (s *Store) connect(ctx context.Context) (*stdlib.Conn, error) {
	conn, err := s.connects.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return conn.(*stdlib.Conn), nil
}

// ObeysContext implements [store.ContextStore]. It returns true: the driver ends a call,
// and the wait for a connection, with the context.
func (s *Store) ObeysContext() bool { return true }

// SameAs implements [store.Comparer]. It reports whether other was made with the same pool and has the
// same table. Transactions and steps still have to be those of the value that the guard has: another
// one does not know which records they lock.
func (s *Store) SameAs(other store.Store) bool {
	o, ok := other.(*Store)
	return ok && o.business == s.business && o.table == s.table
}

// Close closes the connections of the store, and ends the runs that are open transactions and have not joined
// them. It may be called more than once.
func (s *Store) Close() {
	s.endLife()
	for _, c := range s.opened.Range {
		go c.(interface{ abandon() }).abandon()
	}
	s.listener.watch.Close()
	s.pool.Close()
}
