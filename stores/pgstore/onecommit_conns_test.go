package pgstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/store"
	"example.com/idempotency/stores/pgstore"
	"example.com/idempotency/stores/pgstore/internal/pgtest"
)

// poolOf returns a pool of that many connections.
func poolOf(t *testing.T, conns string) *pgxpool.Pool {
	server := *pgtest.Shared(t).Server
	server.DSN += "&pool_max_conns=" + conns
	return (&pgtest.Server{Server: &server}).Pool(t)
}

// A claim does not wait for a connection of a pool that others have taken.
func TestOneCommitOnAPoolThatIsTaken(t *testing.T) {
	t.Parallel()
	pool := poolOf(t, "2")
	s, _ := newStore(t, pool, pgstore.WithOneCommit(""))
	for range 2 {
		conn, err := pool.Acquire(t.Context())
		require.NoError(t, err)
		defer conn.Release()
	}
	claim := mayBeLost()
	r := guardtest.Claim(t, s, "k", claim)
	require.True(t, r.Mine && !r.MayBeLost)
	require.NoError(t, s.Complete(t.Context(), "k", claim.Owner, store.Completion{TTL: time.Hour}))
}

// Who closes the store and the pool does not wait for leases.
func TestOneCommitEndsWithItsStore(t *testing.T) {
	t.Parallel()
	pool := poolOf(t, "4")
	s, _ := newStore(t, pool, pgstore.WithOneCommit(""))
	guardtest.Claim(t, s, "k", mayBeLost())
	require.EqualValues(t, 1, pool.Stat().AcquiredConns())
	s.Close()
	free := func() bool { return pool.Stat().AcquiredConns() == 0 }
	require.Eventually(t, free, guardtest.Patience, time.Millisecond)
	guardtest.Claim(t, s, "late", mayBeLost())
	require.Eventually(t, free, guardtest.Patience, time.Millisecond)
}

// A claim of the usual kind, by a run that needs a record or finds no connection, is not granted beside a
// transaction that is one.
func TestOneCommitKeepsOthersAway(t *testing.T) {
	t.Parallel()
	for _, async := range []bool{false, true} {
		opts := []pgstore.Option{pgstore.WithOneCommit("")}
		other := newClaim()
		if async {
			opts = append(opts, pgstore.WithAsyncClaims())
		}
		pool := pgtest.Shared(t).Pool(t)
		s, _ := newStore(t, pool, opts...)
		claim := mayBeLost()
		r := guardtest.Claim(t, s, "k", claim)
		require.True(t, r.Mine)
		t.Cleanup(func() { _ = s.Release(context.Background(), "k", claim.Owner, store.Release{Undone: true}) }) // if the test fails
		if async {
			other = mayBeLost()
			for range pool.Config().MaxConns - 1 {
				conn, err := pool.Acquire(t.Context())
				require.NoError(t, err)
				t.Cleanup(conn.Release)
			}
		}
		r = guardtest.Claim(t, s, "k", other)
		require.False(t, r.Mine)
		require.Equal(t, store.Claimed, r.State)
		require.NoError(t, s.Release(t.Context(), "k", claim.Owner, store.Release{Undone: true}))
		r = guardtest.Claim(t, s, "k", other)
		require.True(t, r.Mine)
		require.Equal(t, 1, r.Attempt)
		require.NoError(t, s.Release(t.Context(), "k", other.Owner, store.Release{Undone: true}))
	}
}

// Who waits for the lock of a key does not take the last turn from the run that is to free it.
func TestOneCommitIsReleasedBesideWaiters(t *testing.T) {
	t.Parallel()
	pool := pgtest.Shared(t).Pool(t)
	s, _ := newStore(t, pool, pgstore.WithOneCommit(""), pgstore.WithConns(3)) // one turn
	claim := mayBeLost()
	r := guardtest.Claim(t, s, "k", claim)
	require.True(t, r.Mine && r.MayBeLost)
	waits := mayBeLost()
	waits.Watch = true
	guardtest.Claim(t, s, "k", waits)
	if s.Awaits("k") {
		require.Eventually(t, func() (waits bool) {
			err := pool.QueryRow(t.Context(), "SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted").Scan(&waits)
			return err == nil && waits
		}, guardtest.Patience, time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	require.NoError(t, s.Release(ctx, "k", claim.Owner, store.Release{}))
}

// One commit through database/sql, whose connections have a life of their own.

// A database that keeps connections of its own gets that of the claim all the same.
func TestOneCommitOnADatabaseThatKeepsConnections(t *testing.T) {
	t.Parallel()
	earlier := 0
	s := inOneCommit(t, "", func(s *shop, w http.ResponseWriter, r *http.Request) {
		require.NoError(t, ways["InSQLTx"](s, r.Context(), "read committed", func(exec execer) error {
			require.Equal(t, earlier, s.recorded(t))
			return s.insert(r.Context(), exec)
		}))
		w.WriteHeader(http.StatusCreated)
	})
	s.db.SetMaxIdleConns(3)
	for _, key := range keysOf(3) {
		var kept []*sql.Conn
		for range 2 {
			conn, err := s.db.Conn(t.Context())
			require.NoError(t, err)
			kept = append(kept, conn)
		}
		for _, conn := range kept {
			require.NoError(t, conn.Close())
		}
		require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: key}).Status)
		require.EqualValues(t, s.db.Stats().OpenConnections, s.pool.Stat().AcquiredConns(), "the database keeps them, and nobody else has them")
		require.True(t, s.Do(t, guardtest.Call{Key: key}).Replayed())
		require.Equal(t, 1, s.rows(t, key))
		earlier++
	}
}

// When a database gives other connections again and again, as under a limit of its own, the claim becomes a record.
func TestOneCommitWithoutItsConnection(t *testing.T) {
	t.Parallel()
	onEachLevel(t, func(t *testing.T, level string) {
		s := inOneCommit(t, level, func(s *shop, w http.ResponseWriter, r *http.Request) {
			charge(ways["InSQLTx"], level)(s, w, r)
			require.Equal(t, 1, s.recorded(t))
		})
		s.db = pgstore.OpenDeafDB(s.pool)
		t.Cleanup(func() { _ = s.db.Close() })
		require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
		require.True(t, s.Do(t, guardtest.Call{Key: "k"}).Replayed())
		require.Equal(t, 1, s.rows(t, "k"))
		require.Zero(t, s.pool.Stat().AcquiredConns())
	})
}

// A handler that waits in vain for a connection of the database may refuse, and that is recorded.
func TestOneCommitWaitsInVainForADatabase(t *testing.T) {
	t.Parallel()
	s := inOneCommit(t, "", func(s *shop, w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		time.AfterFunc(0, func() {
			for s.db.Stats().WaitCount == 0 {
				time.Sleep(time.Millisecond) // a poll
			}
			cancel()
		})
		err := s.store.InSQLTx(ctx, s.db, nil, func(*sql.Tx) error { return nil })
		require.ErrorIs(t, err, context.Canceled)
		w.WriteHeader(http.StatusConflict)
	})
	s.db.SetMaxOpenConns(1)
	conn, err := s.db.Conn(t.Context())
	require.NoError(t, err)
	require.Equal(t, http.StatusConflict, s.Do(t, guardtest.Call{Key: "k"}).Status)
	require.NoError(t, conn.Close())
	require.True(t, s.Do(t, guardtest.Call{Key: "k"}).Replayed())
	require.Zero(t, s.pool.Stat().AcquiredConns())
}

// A statement in the way of another transaction rolls back, and the function runs again. Its claim is a record then.
func TestOneCommitRunsAgain(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"InTx", "InSQLTx"} {
		tries := 0
		s := inOneCommit(t, "serializable", func(s *shop, w http.ResponseWriter, r *http.Request) {
			require.NoError(t, ways[name](s, r.Context(), "serializable", func(exec execer) error {
				require.Equal(t, tries, s.recorded(t))
				if err := s.insert(r.Context(), exec); err != nil || tries > 0 {
					return err
				}
				tries++
				return exec(r.Context(), "DO $$ BEGIN RAISE EXCEPTION 'in the way' USING ERRCODE = '40001'; END $$")
			}))
			w.WriteHeader(http.StatusCreated)
		}, idempotency.WithLease(time.Hour))
		require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
		require.Equal(t, 1, s.rows(t, "k"))
		require.Equal(t, 1, tries)
		require.Zero(t, s.pool.Stat().AcquiredConns())
	}
}

// This file is about functions of transactions that end when their run does, at the same moment, and about drivers that
// panic. No connection is lost by either.

func requireNoneLost(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	require.Eventually(t, func() bool { return pool.Stat().AcquiredConns() == 0 }, 10*time.Second, time.Millisecond)
}

func serveLate(h http.Handler, key string) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second) // a pool that has lost all lets nobody wait for ever
	defer cancel()
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil)
	r.Header.Set("Idempotency-Key", key)
	h.ServeHTTP(httptest.NewRecorder(), r)
}

// A function that gives up at its deadline rolls back in a goroutine, while its handler answers 504.
func TestRollbackBesideTheEndOfItsRun(t *testing.T) {
	t.Parallel()
	pool := poolOf(t, "4")
	s, _ := newStore(t, pool, pgstore.WithOneCommit(""))
	g := guardtest.NewGuard(t, s, idempotency.WithTransaction(true))
	var left sync.WaitGroup
	h := g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 2*time.Millisecond)
		defer cancel()
		done := make(chan error, 1)
		left.Go(func() {
			done <- s.InTx(ctx, pgx.TxOptions{}, func(tx pgx.Tx) error {
				_, _ = tx.Exec(ctx, "SELECT 1")
				<-ctx.Done()
				return ctx.Err()
			})
		})
		select {
		case <-done:
		case <-ctx.Done():
		}
		w.WriteHeader(http.StatusGatewayTimeout)
	}))
	guardtest.Together(4, func(client int) {
		for n := range 60 {
			serveLate(h, fmt.Sprint(client, "-", n))
		}
	})
	left.Wait()
	requireNoneLost(t, pool)
}

// A driver, or a tracer of the program, that panics in a transaction keeps no connection and no lock, and one commit
// goes on.
func TestStatementThatPanicsKeepsNoConnection(t *testing.T) {
	t.Parallel()
	guardtest.Each(t, map[string][]pgstore.Option{"rollback": {pgstore.WithOneCommit("")}, "begin": nil}, testStatementThatPanics)
}

func testStatementThatPanics(t *testing.T, with []pgstore.Option) {
	pool, panics := poolThatPanics(t, path.Base(t.Name()))
	s, _ := newStore(t, pool, with...)
	g := guardtest.NewGuard(t, s, idempotency.WithTransaction(true))
	h := g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if recover() != nil {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}()
		tx, err := s.Begin(r.Context(), pgx.TxOptions{})
		if err == nil {
			_, err = tx.Prepare(r.Context(), "", "SELECT 1")
		}
		assert.NoError(t, err)
		w.WriteHeader(http.StatusInternalServerError) // with the transaction open
	}))
	panics.Store(true)
	for n := range 2 { // which leaves connections for the others
		serveLate(h, fmt.Sprint(n))
	}
	panics.Store(false)
	requireNoneLost(t, pool)
}

// poolThatPanics returns a pool whose tracer panics, while it is told to, when a statement begins so.
func poolThatPanics(t *testing.T, statement string) (pool *pgxpool.Pool, panics *atomic.Bool) {
	t.Helper()
	panics = new(atomic.Bool)
	config, err := pgxpool.ParseConfig(pgtest.Shared(t).DSN)
	require.NoError(t, err)
	config.MaxConns = 8
	config.ConnConfig.Tracer = beforeQuery(func(sql string) {
		if strings.HasPrefix(strings.ToLower(sql), statement) && panics.Load() {
			panic("of a tracer")
		}
	})
	pool, err = pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() {
		if pool.Stat().AcquiredConns() == 0 { // it would wait for those that are lost
			pool.Close()
		}
	})
	return pool, panics
}

// In a goroutine of the store, nobody would catch a panic of the driver or of its tracer: the process would end.
func TestPanicOfTheDriverEndsNoProcess(t *testing.T) {
	t.Parallel()
	for statement, call := range map[string]func(t *testing.T, s *shop, panics *atomic.Bool){
		"commit": func(t *testing.T, s *shop, panics *atomic.Bool) {
			panics.Store(true)
			first := s.Do(t, guardtest.Call{Key: "k"})
			panics.Store(false)
			_, err := s.pool.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state LIKE 'idle in t%' AND position($1 IN query) > 0", s.records)
			require.NoError(t, err) // database/sql has lost the connection, and the transaction is open
			require.Eventually(t, func() bool { return s.Do(t, guardtest.Call{Key: "k"}).Status == http.StatusCreated }, guardtest.Patience, time.Millisecond)
			require.NotEqual(t, http.StatusCreated, first.Status)
			require.Equal(t, 1, s.rows(t, "k"))
		},
		"listen": func(t *testing.T, s *shop, panics *atomic.Bool) {
			panics.Store(true)
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			_, _, err := s.store.Watch(ctx, "k")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			panics.Store(false)
			_, stop, err := s.store.Watch(t.Context(), "k")
			require.NoError(t, err)
			stop()
		},
		"select pg_catalog.pg_advisory_xact_lock_shared": func(t *testing.T, s *shop, panics *atomic.Bool) {
			guardtest.Claim(t, s.store, "k", mayBeLost())
			panics.Store(true)
			waits := mayBeLost()
			waits.Watch = true
			guardtest.Claim(t, s.store, "k", waits)
			require.Eventually(t, func() bool { return !s.store.Awaits("k") }, guardtest.Patience, time.Millisecond)
		},
	} {
		t.Run(statement, func(t *testing.T) {
			pool, panics := poolThatPanics(t, statement)
			call(t, newShopOn(t, pool, charge(ways["InSQLTx stdlib"], "read committed"), []pgstore.Option{pgstore.WithOneCommit("")}), panics)
		})
	}
}
