package sqlitestore

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"example.com/idempotency/internal/sqlrecord"
	"example.com/idempotency/internal/watch"
	"example.com/idempotency/store"
)

//go:embed schema.sql
var schema string

//go:embed tags.sql
var tagsSchema string

// A Store is a [store.Store] in a file of SQLite. Its methods may be called concurrently, and
// any number of processes of one machine may open the same file. Do not put the file on a network
// file system. Make a Store with [Open].
//
// It is also a [store.Watcher], a [store.StepStore], a
// [store.Inspector], a [store.Lister], a [store.Finder] and a [store.Gauge].
//
// SQLite has one writer at a time. A claim, a completion and the other calls of a run write once
// each, and wait for each other and for the transactions of other programs until their context
// ends. Replays and conflicts only read, and wait for nobody.
//
// Time is that of the machine. A store whose disk is full refuses everything that writes. One whose path names
// another file, or none, refuses every call with [ErrMoved].
type Store struct {
	path  string      // absolute
	file  os.FileInfo // of the database
	write *sql.DB     // one connection
	read  *sql.DB
	// patience is how long Open and a transaction outside of a run wait for the writer.
	patience time.Duration

	oneCommit  bool
	joinWithin time.Duration // how long a claim is a transaction without a handler
	opened     sync.Map      // the claims that are transactions, by their keys

	locked sqlrecord.Locked // the records of the run of this process that has a transaction
	joined sync.Map         // its operation
	watch  *watch.Subscription
}

var (
	_ store.Store     = (*Store)(nil)
	_ store.Watcher   = (*Store)(nil)
	_ store.StepStore = (*Store)(nil)
	_ store.Inspector = (*Store)(nil)
	_ store.Lister    = (*Store)(nil)
	_ store.Finder    = (*Store)(nil)
	_ store.Gauge     = (*Store)(nil)
	_ store.TxStore   = (*Store)(nil)
	_ store.Comparer  = (*Store)(nil)
)

// An Option changes a setting of [Open].
type Option func(*config)

type config struct {
	synchronous string
	oneCommit   bool
	patience    time.Duration
}

// WithPowerLossSafety makes each write reach the disk before it is acknowledged
// (synchronous=FULL). Without it (NORMAL) what was acknowledged survives the death of the process
// at any moment, but the machine may forget the last moments before it loses power.
func WithPowerLossSafety() Option { return func(c *config) { c.synchronous = "FULL" } }

// WithOneCommit makes the claim of a new key the beginning of the run's own transaction, in runs under
// [idempotency.WithTransaction]: claim, rows and answer are one commit. A run whose process dies leaves
// nothing, and its key is free at once. Without the option, the claim is a commit of its own, and a run that
// dies blocks its key until its lease ends.
//
// Such a run has the one writer of the file from its claim to its end, and every other request that writes
// waits for it, in all processes. So the option is for short handlers whose only effects are rows of the file.
// A run that does not call [Store.InTx] within 20 ms gets a claim of the usual kind, and lets the
// others write; so does one that takes a step before InTx, or learns its [idempotency.Operation.ID] or an
// [idempotency.DeriveKey]. One whose function fails gets it in place of what the function has done, and keeps its key
// until the handler returns. In the open transaction a step is refused with [store.ErrTransactionOpen], and an
// ID does not make the claim durable: learn one that leaves the file before.
func WithOneCommit() Option { return func(c *config) { c.oneCommit = true } }

// readers is how many connections look at the same time.
const readers = 4

// writerPatience is how long Open and a transaction outside of a run wait for the writer.
const writerPatience = 10 * time.Second

// Open opens the database file at path, and makes it and its table if they are not there. A file that
// it makes has the mode 0600. One that is there keeps its mode. The files that SQLite puts beside it,
// with -wal and -shm at the end of their names, have the mode of the file. The file
// may have other tables: it is in WAL mode from then on. Close the store before the program ends.
//
// Where another process is in the way, Open waits until ctx ends, or for ten seconds if ctx has no deadline, and
// then says what was in the way: a transaction that does not end, for which it waits only to make the table, or
// a process under which the file was cut to nothing.
func Open(ctx context.Context, path string, opts ...Option) (*Store, error) {
	if path == "" || path == ":memory:" {
		return nil, errors.New("sqlitestore: Open: a store needs a file")
	}
	c := config{synchronous: "NORMAL", patience: writerPatience}
	for _, o := range opts {
		if o != nil {
			o(&c)
		}
	}
	path, err := filepath.Abs(path) // the program may change its folder, and connections are made later
	if err != nil {
		return nil, fmt.Errorf("sqlitestore: Open: %w", err)
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.patience)
		defer cancel()
	}
	s := &Store{path: path, patience: c.patience, oneCommit: c.oneCommit, joinWithin: joinWithin}
	blocked := false
	err = s.open(ctx, c, func(f func() error) error {
		return calls.Try(ctx, "Open", func() error {
			err := f()
			blocked = blocked || calls.InTheWay(err)
			return err
		})
	})
	if err != nil && blocked && ctx.Err() != nil {
		err = fmt.Errorf("%w: %s", err, obstacle(path))
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// open makes the connections. On failure it leaves none.
func (s *Store) open(ctx context.Context, c config, try func(func() error) error) (err error) {
	if err := try(func() error { return create(ctx, s.path) }); err != nil {
		return err
	}
	// Before the first connection, so that one to another file is noticed below.
	if s.file, err = identity(s.path); err != nil {
		return fmt.Errorf("sqlitestore: Open: %w", err)
	}
	// BEGIN takes the lock of the writer at once. A transaction that began to read and then
	// writes would fail if another one has written meanwhile. A busy database is asked again by
	// calls, which look at the context, and not by SQLite, which does not.
	query := url.Values{
		"_pragma": {"busy_timeout(0)", "journal_mode(WAL)", "synchronous(" + c.synchronous + ")"},
		"_txlock": {"immediate"},
	}
	if s.write, err = sql.Open(driverName, uri(s.path, query)); err != nil {
		return fmt.Errorf("sqlitestore: Open: %w", err)
	}
	s.write.SetMaxOpenConns(1)
	s.watch = pollOn(s.write)
	query["_pragma"] = []string{"busy_timeout(0)", "query_only(1)"}
	if s.read, err = sql.Open(driverName, uri(s.path, query)); err != nil {
		return errors.Join(fmt.Errorf("sqlitestore: Open: %w", err), s.write.Close())
	}
	s.read.SetMaxOpenConns(readers)
	err = try(func() error {
		if _, err := s.write.ExecContext(ctx, schema+tagsSchema); err != nil {
			return err
		}
		return s.inPlace()
	})
	if err != nil {
		return errors.Join(err, s.Close())
	}
	return nil
}

// SameAs implements [store.Comparer]. It reports whether other has opened the same file, by whatever
// path. Transactions and steps still have to be those of the value that the guard has: another one does
// not know them.
func (s *Store) SameAs(other store.Store) bool {
	o, ok := other.(*Store)
	return ok && os.SameFile(o.file, s.file)
}

// Close closes the file. Calls that are under way may fail. It may be called more than once.
func (s *Store) Close() error {
	s.opened.Range(func(key, open any) bool {
		s.endOpen(key.(string), open.(*openClaim).row.Owner)
		return true
	})
	s.watch.Close()
	return errors.Join(s.read.Close(), s.write.Close())
}

// try makes a call of the store. What it returns is of the file that the path names before and after: a
// connection that was made meanwhile has no other one, and nobody is told of a record that is gone.
func (s *Store) try(ctx context.Context, call string, f func() error) error {
	if err := s.inPlace(); err != nil {
		return calls.Wrap(call, err)
	}
	err := calls.Try(ctx, call, f)
	if moved := s.inPlace(); moved != nil {
		return calls.Wrap(call, moved)
	}
	return err
}

// now is the clock of the machine.
func now() sqlrecord.Moment { return sqlrecord.Moment(time.Now().UnixMicro()) }
