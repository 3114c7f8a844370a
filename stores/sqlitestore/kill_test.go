package sqlitestore_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"

	"example.com/idempotency"
	"example.com/idempotency/stores/sqlitestore"
)

// This file kills processes with SIGKILL, at every statement and at any moment. Whatever they were
// at, others that open the file find one business row for each key, and one answer.

// An errand is what a process does before it is killed.
type errand struct {
	Path string
	// Last is the moment at which the process kills itself; see killer. A negative one never comes.
	Last int
	// Apart says that rows are committed by themselves, and the record afterwards.
	Apart bool
	// Whole says that a run is one commit.
	Whole bool
	// Keys is how many keys it has.
	Keys int
}

// A mall is a process with a guard, whose runs insert a row in each of two tables.
type mall struct {
	errand
	store *sqlitestore.Store
	guard *idempotency.Guard
	db    *sql.DB // of those that commit by themselves
	tried map[int]bool
}

var errUnlucky = errors.New("unlucky")

func (e errand) open(ctx context.Context) (m *mall, err error) {
	m = &mall{errand: e, tried: map[int]bool{}}
	if m.store, err = sqlitestore.Open(ctx, e.Path, oneCommit(e.Whole)...); err != nil {
		return nil, err
	}
	m.store.SetJoinWithin(time.Hour) // on a busy machine, a claim may else become a record
	name := "sqlite"
	if e.Last >= 0 {
		name = killerName
	}
	if m.db, err = sql.Open(name, "file:"+e.Path+"?_pragma=busy_timeout(5000)&_txlock=immediate"); err != nil {
		return nil, err
	}
	recovery := idempotency.Hold
	if e.Apart {
		recovery = idempotency.Rerun
	}
	m.guard, err = idempotency.New(m.store, idempotency.SharedScope, idempotency.WithTransaction(!e.Apart),
		idempotency.WithRecovery(recovery), idempotency.WithLogger(slog.New(slog.DiscardHandler)))
	return m, err
}

func (m *mall) close(ctx context.Context) error {
	return errors.Join(m.guard.Shutdown(ctx), m.db.Close(), m.store.Close())
}

// buy makes one request. The first run of an odd key fails after it has inserted its rows.
func (m *mall) buy(ctx context.Context, k int) (answer string, r idempotency.Result, err error) {
	key := idempotency.Key{Scope: "mall", Value: strconv.Itoa(k)}
	return idempotency.Do(ctx, m.guard, key, func(ctx context.Context) (string, error) {
		op, _ := idempotency.FromContext(ctx)
		if !m.Whole {
			if _, err := idempotency.Step(ctx, "reserve", func(context.Context) (int, error) { return k, nil }); err != nil {
				return "", err
			}
		}
		receipt := fmt.Sprintf("%d-%d-%d", k, op.Attempt(), rand.Uint32())
		err := m.transact(ctx, func(tx *sql.Tx) error {
			for _, table := range []string{"orders", "outbox"} {
				if _, err := tx.ExecContext(ctx, "INSERT INTO "+table+" VALUES (?, ?)", k, receipt); err != nil {
					return err
				}
			}
			first := op.Attempt() == 1 && !m.tried[k] // a run that is one commit leaves no attempt
			if m.tried[k] = true; k%2 == 1 && first {
				return errUnlucky
			}
			return nil
		})
		return receipt, err
	})
}

func (m *mall) transact(ctx context.Context, f func(tx *sql.Tx) error) error {
	if !m.Apart {
		return m.store.InTx(ctx, f)
	}
	tx, err := m.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// buyAll buys until there is an answer for each key, and then once more.
func (m *mall) buyAll(ctx context.Context, told func(answer string)) error {
	for _, again := range []bool{false, true} {
		for k := range m.Keys {
			for {
				answer, r, err := m.buy(ctx, k)
				if errors.Is(err, errUnlucky) {
					continue
				}
				if err != nil {
					return fmt.Errorf("key %d: %w", k, err)
				}
				if again && !r.Replayed {
					return fmt.Errorf("key %d: it runs again", k)
				}
				told(answer)
				break
			}
		}
	}
	return nil
}

// A victim goes on an errand. Each answer that it gets is a line before its last one.
func victim(ctx context.Context) func(line []byte) (any, error) {
	return func(line []byte) (any, error) {
		var e errand
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, err
		}
		useKiller(e.Last)
		m, err := e.open(ctx)
		if err != nil {
			return nil, err
		}
		out := json.NewEncoder(os.Stdout)
		err = m.buyAll(ctx, func(answer string) {
			value, _ := json.Marshal([]string{answer})
			_ = out.Encode(reply{Value: value})
		})
		return theKiller.moments, errors.Join(err, m.close(ctx))
	}
}

// A scene is the file, and what is known of it.
type scene struct {
	errand
	witness *sqlitestore.Store // which has the file open all the time
	told    []string           // the answers that somebody got
}

func newScene(t testing.TB, e errand) *scene {
	t.Helper()
	e.Path = filepath.Join(t.TempDir(), "mall.db")
	s := &scene{errand: e, witness: open(t, e.Path)}
	require.NoError(t, s.witness.InTx(t.Context(), func(tx *sql.Tx) error {
		_, err := tx.Exec("CREATE TABLE orders (key, receipt); CREATE TABLE outbox (key, receipt)")
		return err
	}))
	return s
}

// send sends a process on the errand, and returns its moments if it comes to the end. It is killed
// after a while, if one is given.
func (s *scene) send(t testing.TB, while ...time.Duration) (moments []string) {
	t.Helper()
	p := start(t, "victim")
	p.tell(t, s.errand)
	for _, d := range while {
		time.AfterFunc(d, func() { _ = p.cmd.Process.Kill() })
	}
	for {
		var line []string
		err := p.hear(&line)
		if err != nil {
			require.ErrorContains(t, err, "is gone")
			break
		}
		if len(line) > 1 {
			return line
		}
		s.told = append(s.told, line...)
	}
	var exit *exec.ExitError
	require.ErrorAs(t, p.cmd.Wait(), &exit)
	require.Equal(t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal())
	return nil
}

// settle lets the leases of the dead lapse and another process retry until all keys have an answer.
// It returns how many rows are too many.
func (s *scene) settle(t testing.TB) (duplicates int) {
	t.Helper()
	if !s.Whole || s.Keys > 1 { // else no claim is left: the second key has a function that fails
		clock(t, s.Path)(time.Minute)
	}
	e := s.errand
	e.Last = -1
	m, err := e.open(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, m.close(context.Background())) }()
	require.NoError(t, m.buyAll(t.Context(), func(answer string) { s.told = append(s.told, answer) }))
	receipts := map[string]bool{}
	for _, table := range []string{"orders", "outbox"} {
		for k := range s.Keys {
			rows, err := m.db.Query("SELECT receipt FROM "+table+" WHERE key = ?", k)
			require.NoError(t, err)
			n := 0
			for ; rows.Next(); n++ {
				var receipt string
				require.NoError(t, rows.Scan(&receipt))
				receipts[receipt] = true
			}
			require.NoError(t, errors.Join(rows.Err(), rows.Close()))
			require.Positive(t, n, "%s has no row of key %d", table, k)
			duplicates += n - 1
		}
	}
	require.Len(t, receipts, s.Keys+duplicates/2, "the tables do not agree")
	for _, answer := range s.told {
		require.True(t, receipts[answer], "somebody was told %s, of which there is no row", answer)
	}
	require.Len(t, distinct(s.told), s.Keys, "a key has two answers")
	var check string
	require.NoError(t, m.db.QueryRow("PRAGMA integrity_check").Scan(&check))
	require.Equal(t, "ok", check)
	return duplicates
}

func distinct(all []string) map[string]bool {
	set := map[string]bool{}
	for _, s := range all {
		set[s] = true
	}
	return set
}

// A process is killed before and after each statement that it sends, and inside the COMMIT of its
// runs. A guard that holds what it does not know never holds a key, because there is nothing that it
// does not know.
func TestKilledAtEachStatement(t *testing.T) {
	t.Parallel()
	e := errand{Keys: 2}
	deaths, duplicates, seen := killAtEach(t, e)
	t.Logf("%d deaths at %d moments of a run that joins its transaction: %d duplicates", deaths, len(seen), duplicates)
	require.Zero(t, duplicates)
	require.Contains(t, seen, "inside COMMIT")
}

// A run that is one commit leaves no claim, unless its function fails: its key is free at once, and nobody waits for
// its lease.
func TestKilledAtEachStatementOfOneCommit(t *testing.T) {
	t.Parallel()
	for keys := range 2 {
		deaths, duplicates, seen := killAtEach(t, errand{Keys: keys + 1, Whole: true})
		t.Logf("%d deaths at %d moments of runs that are one commit: %d duplicates", deaths, len(seen), duplicates)
		require.Zero(t, duplicates)
		require.Contains(t, seen, "inside COMMIT")
	}
}

// What the joined transaction is good for: with a record of its own, rows come twice.
func TestKilledAtEachStatementWithASeparateRecord(t *testing.T) {
	t.Parallel()
	deaths, duplicates, _ := killAtEach(t, errand{Keys: 1, Apart: true})
	t.Logf("%d deaths of a run with a separate record: %d duplicate rows", deaths, duplicates)
	require.Positive(t, duplicates)
}

// killAtEach kills at each moment of an errand.
func killAtEach(t *testing.T, e errand) (deaths, duplicates int, seen []string) {
	e.Last = 1 << 30
	whole := newScene(t, e)
	seen = whole.send(t)
	require.Zero(t, whole.settle(t))
	var mu sync.Mutex
	t.Run(fmt.Sprint("killed with keys ", e.Keys), func(t *testing.T) {
		for last, moment := range seen {
			t.Run(fmt.Sprint(last, " ", moment), func(t *testing.T) {
				t.Parallel()
				e := e
				e.Last = last
				s := newScene(t, e)
				require.Nil(t, s.send(t), "the process lives on")
				n := s.settle(t)
				require.True(t, n == 0 || e.Apart, "%d rows too many", n)
				mu.Lock()
				defer mu.Unlock()
				deaths++
				duplicates += n
			})
		}
	})
	return deaths, duplicates, seen
}

// Processes are killed at any moment, one after the other on one file, while this one has it open.
// KILLS=n kills so many.
func TestKilledAtAnyMoment(t *testing.T) {
	for _, whole := range []bool{false, true} {
		t.Run(map[bool]string{false: "two commits", true: "one commit"}[whole], func(t *testing.T) {
			t.Parallel()
			killedAtAnyMoment(t, whole)
		})
	}
}

func killedAtAnyMoment(t *testing.T, whole bool) {
	kills := 10
	if n, err := strconv.Atoi(os.Getenv("KILLS")); err == nil {
		kills = n
	}
	s := newScene(t, errand{Last: 1 << 30, Keys: 400, Whole: whole})
	killed := 0
	for range kills {
		if s.send(t, 50*time.Millisecond+rand.N(100*time.Millisecond)) == nil {
			killed++
		}
		clock(t, s.Path)(time.Minute) // one commit has a record too, from the failure of its function to the end of the run
	}
	known := len(distinct(s.told))
	require.Zero(t, s.settle(t))
	t.Logf("%d of %d processes killed, after which somebody knew the answers of %d of %d keys", killed, kills, known, s.Keys)
	require.Positive(t, killed)
}

// This file is a driver that kills its own process before or after the nth statement, as kill -9 does.

// killerName is the name of the driver.
const killerName = "sqlite that kills"

// A killer counts the moments at which it may kill: before each statement and after it, and inside
// the COMMIT of a run's transaction.
type killer struct {
	mu      sync.Mutex
	moments []string
	last    int // the number of the moment that is the last one of the process, or negative
}

var theKiller = &killer{last: -1}

// useKiller lets all stores of this process use the driver.
func useKiller(last int) {
	theKiller.last = last
	sql.Register(killerName, killingDriver{&sqlite.Driver{}})
	sqlitestore.UseDriver(killerName)
}

// moment is a moment at which the process may be killed.
func (k *killer) moment(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.moments = append(k.moments, name)
	if len(k.moments)-1 != k.last {
		return
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// around makes a statement.
func (k *killer) around(statement string, send func()) {
	name := strings.Join(strings.Fields(statement), " ")
	name = name[:min(len(name), 40)]
	k.moment("before " + name)
	send()
	k.moment("after " + name)
}

type killingDriver struct{ driver.Driver }

func (d killingDriver) Open(name string) (c driver.Conn, err error) {
	theKiller.around("OPEN", func() { c, err = d.Driver.Open(name) })
	if err != nil {
		return nil, err
	}
	return &killingConn{c.(sqliteConn)}, nil
}

// A sqliteConn is what the driver's connections can do.
type sqliteConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.SessionResetter
	driver.Validator
	sqlite.HookRegisterer
}

type killingConn struct{ sqliteConn }

func (c *killingConn) BeginTx(ctx context.Context, opts driver.TxOptions) (tx driver.Tx, err error) {
	theKiller.around("BEGIN", func() { tx, err = c.sqliteConn.BeginTx(ctx, opts) })
	if err != nil {
		return nil, err
	}
	return killingTx{tx}, nil
}

func (c *killingConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (r driver.Result, err error) {
	theKiller.around(query, func() { r, err = c.sqliteConn.ExecContext(ctx, query, args) })
	return r, err
}

func (c *killingConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (r driver.Rows, err error) {
	theKiller.around(query, func() { r, err = c.sqliteConn.QueryContext(ctx, query, args) })
	return r, err
}

func (c *killingConn) RegisterCommitHook(f sqlite.CommitHookFn) {
	if f == nil {
		c.sqliteConn.RegisterCommitHook(nil)
		return
	}
	c.sqliteConn.RegisterCommitHook(func() int32 {
		theKiller.moment("inside COMMIT")
		return f()
	})
}

type killingTx struct{ driver.Tx }

func (t killingTx) Commit() (err error) {
	theKiller.around("COMMIT", func() { err = t.Tx.Commit() })
	return err
}

func (t killingTx) Rollback() (err error) {
	theKiller.around("ROLLBACK", func() { err = t.Tx.Rollback() })
	return err
}
