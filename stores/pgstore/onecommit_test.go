package pgstore_test

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/pgserver"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
	"example.com/idempotency/stores/pgstore"
	"example.com/idempotency/stores/pgstore/internal/pgproxy"
	"example.com/idempotency/stores/pgstore/internal/pgtest"
)

// Runs whose claim, rows and answer are one commit.

// inOneCommit returns a shop whose claims are transactions at the level.
func inOneCommit(t *testing.T, level string, h func(s *shop, w http.ResponseWriter, r *http.Request), opts ...idempotency.Option) *shop {
	opts = append([]idempotency.Option{idempotency.WithRecovery(idempotency.Hold), idempotency.WithLease(time.Hour)}, opts...)
	return newShopOn(t, pgtest.Shared(t).Pool(t), h, []pgstore.Option{pgstore.WithOneCommit(pgx.TxIsoLevel(level))}, opts...)
}

// onEachLevel runs the test for each isolation level.
func onEachLevel(t *testing.T, f func(t *testing.T, level string)) {
	for _, level := range levels {
		t.Run(strings.ReplaceAll(level, " ", "-"), func(t *testing.T) {
			t.Parallel()
			f(t, level)
		})
	}
}

// onEachWholeWay runs the test for each way in which a run takes the transaction that is its claim, and for each
// isolation level.
func onEachWholeWay(t *testing.T, f func(t *testing.T, inTx way, level string)) {
	onEachWay(t, func(t *testing.T, inTx way, level string) {
		if !strings.Contains(t.Name(), "stdlib") {
			f(t, inTx, level)
		}
	})
}

// atLevel returns the level as the option of a transaction.
func atLevel(level string) pgx.TxOptions { return pgx.TxOptions{IsoLevel: pgx.TxIsoLevel(level)} }

// endBackend ends the connection of the transaction that has inserted a row into the table of charges.
func (s *shop) endBackend(t *testing.T) {
	pgtest.Exec(t, s.pool, "SELECT pg_terminate_backend(pid, 5000) FROM pg_locks WHERE mode = 'RowExclusiveLock' AND relation = $1::text::regclass", s.table)
}

// However a run ends that has committed nothing, it leaves nothing, and the next one is the first.
func TestOneCommitLeavesNothing(t *testing.T) {
	t.Parallel()
	ends := map[string]func(s *shop, inTx way, level string, r *http.Request){
		"no transaction": func(*shop, way, string, *http.Request) {},
		"panic":          func(*shop, way, string, *http.Request) { panic(guardtest.Boom) },
		"ready": func(s *shop, inTx way, level string, r *http.Request) {
			require.NoError(t, inTx(s, r.Context(), level, func(exec execer) error { return s.insert(r.Context(), exec) }))
		},
		"connection": func(s *shop, inTx way, level string, r *http.Request) {
			require.NoError(t, inTx(s, r.Context(), level, func(exec execer) error {
				defer s.endBackend(t)
				return s.insert(r.Context(), exec)
			}))
		},
	}
	for name, end := range ends {
		onEachWholeWay(t, func(t *testing.T, inTx way, level string) {
			var attempts []int
			s := inOneCommit(t, level, func(s *shop, w http.ResponseWriter, r *http.Request) {
				if attempts = append(attempts, guardtest.Op(r.Context()).Attempt()); len(attempts) == 1 {
					end(s, inTx, level, r)
					w.WriteHeader(http.StatusInternalServerError)
					return
				}
				charge(inTx, level)(s, w, r)
			})
			_, _ = s.TryAlone(t.Context(), guardtest.Call{Key: "k"})
			require.Zero(t, s.recorded(t)+s.rows(t, "k"), name)
			require.Equal(t, http.StatusCreated, s.settled(t, "k").Status, name)
			require.True(t, s.Do(t, guardtest.Call{Key: "k"}).Replayed(), name)
			require.Equal(t, []int{1, 1}, attempts, name)
			require.Equal(t, 1, s.rows(t, "k"), name)
		})
	}
}

// While a run is its transaction, there is no record, and nobody else gets the key: in this process or in another
// one, with the option or without. An answer without a transaction is a record, too.
func TestOneCommitIsInFlight(t *testing.T) {
	onEachWholeWay(t, func(t *testing.T, inTx way, level string) {
		began, goOn := make(chan struct{}), make(chan struct{})
		release := sync.OnceFunc(func() { close(goOn) })
		var runs atomic.Int64
		s := inOneCommit(t, level, func(s *shop, w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Refused") != "" {
				w.WriteHeader(http.StatusPaymentRequired)
				return
			}
			if runs.Add(1) > 1 {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			require.NoError(t, inTx(s, r.Context(), level, func(exec execer) error {
				close(began)
				<-goOn
				return s.insert(r.Context(), exec)
			}))
			w.WriteHeader(http.StatusCreated)
		})
		waits := guardtest.ServeRecorder(nil, guardtest.NewGuard(t, s.another(t, pgstore.WithOneCommit("")), idempotency.WithTransaction(true),
			idempotency.WithWait(time.Minute)).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it runs again") })))
		first, other := make(chan guardtest.Reply, 1), make(chan guardtest.Reply, 1)
		go func() { first <- s.Do(t, guardtest.Call{Key: "k"}) }()
		<-began
		defer release()
		require.Zero(t, s.recorded(t))
		guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k"}), http.StatusConflict, problem.InFlight)
		go func() { other <- waits.Do(t, guardtest.Call{Key: "k"}) }()
		require.Eventually(t, func() bool { // it waits for the lock
			var waiting bool
			err := s.pool.QueryRow(t.Context(), "SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted").Scan(&waiting)
			return err == nil && waiting
		}, 30*time.Second, time.Millisecond)
		release()
		require.Equal(t, http.StatusCreated, (<-first).Status)
		require.True(t, (<-other).Replayed())
		refused := guardtest.Call{Key: "refused", Header: http.Header{"Refused": {"yes"}}}
		require.Equal(t, http.StatusPaymentRequired, s.Do(t, refused).Status)
		require.True(t, s.Do(t, refused).Replayed())
		require.Equal(t, 2, s.recorded(t))
	})
}

// another returns a store like that of another process.
func (s *shop) another(t *testing.T, opts ...pgstore.Option) *pgstore.Store {
	pool := pgtest.Shared(t).Pool(t)
	o := openStore(t, pool, append(opts, pgstore.WithTable(s.records))...)
	return o
}

// What needs the record makes the claim one first. In the transaction that is the claim there is none, so a step is
// refused.
func TestOneCommitMakesARecord(t *testing.T) {
	t.Parallel()
	step := func(ctx context.Context) error {
		_, err := idempotency.Step(ctx, "mail", func(context.Context) (int, error) { return 1, nil })
		return err
	}
	inSQL := func(way, level string) func(s *shop, ctx context.Context, seen func()) error {
		return func(s *shop, ctx context.Context, seen func()) error {
			return ways[way](s, ctx, level, func(execer) error { seen(); return nil })
		}
	}
	type row struct {
		records int
		run     func(s *shop, ctx context.Context, seen func()) error
	}
	guardtest.Each(t, map[string]row{
		"nothing": {0, func(_ *shop, _ context.Context, seen func()) error { seen(); return nil }},
		"its transaction": {0, func(s *shop, ctx context.Context, seen func()) error {
			return s.store.InTx(ctx, pgx.TxOptions{}, func(pgx.Tx) error { seen(); return nil })
		}},
		"another level": {1, func(s *shop, ctx context.Context, seen func()) error {
			return s.store.InTx(ctx, atLevel("serializable"), func(pgx.Tx) error { seen(); return nil })
		}},
		"other options": {1, func(s *shop, ctx context.Context, seen func()) error {
			return s.store.InTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadWrite}, func(pgx.Tx) error { seen(); return nil })
		}},
		"database/sql":                  {0, inSQL("InSQLTx", "read committed")},
		"database/sql at another level": {1, inSQL("InSQLTx", "serializable")},
		"database/sql of another kind":  {1, inSQL("InSQLTx stdlib", "read committed")},
		"database/sql on another pool": {1, func(s *shop, ctx context.Context, seen func()) error {
			db := pgstore.OpenDB(pgtest.Shared(t).Pool(t))
			t.Cleanup(func() { _ = db.Close() })
			return s.store.InSQLTx(ctx, db, nil, func(*sql.Tx) error { seen(); return nil })
		}},
		"an ID": {1, func(_ *shop, ctx context.Context, seen func()) error {
			_ = guardtest.Op(ctx).ID()
			seen()
			return nil
		}},
		"a step": {1, func(_ *shop, ctx context.Context, seen func()) error { defer seen(); return step(ctx) }},
		"StepTx": {1, func(s *shop, ctx context.Context, seen func()) error {
			_, err := pgstore.StepTx(ctx, s.store, "step", pgx.TxOptions{}, func(context.Context, pgx.Tx) (int, error) { seen(); return 1, nil })
			return err
		}},
		"a step in its transaction": {0, func(s *shop, ctx context.Context, seen func()) error {
			return s.store.InTx(ctx, pgx.TxOptions{}, func(pgx.Tx) error {
				require.ErrorIs(t, step(ctx), store.ErrTransactionOpen)
				seen()
				return nil
			})
		}},
		"a step in its transaction, database/sql": {0, func(s *shop, ctx context.Context, seen func()) error {
			return s.store.InSQLTx(ctx, s.db, nil, func(*sql.Tx) error {
				require.ErrorIs(t, step(ctx), store.ErrTransactionOpen)
				seen()
				return nil
			})
		}},
		"a step after its transaction": {1, func(s *shop, ctx context.Context, seen func()) error {
			_ = s.store.InTx(ctx, pgx.TxOptions{}, func(pgx.Tx) error { return errors.New("declined") })
			defer seen()
			return step(ctx)
		}},
	}, func(t *testing.T, c row) {
		records := -1
		s := inOneCommit(t, "", func(s *shop, w http.ResponseWriter, r *http.Request) {
			require.NoError(t, c.run(s, r.Context(), func() { records = s.recorded(t) }))
			w.WriteHeader(http.StatusCreated)
		})
		require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
		require.Equal(t, c.records, records)
		require.True(t, s.Do(t, guardtest.Call{Key: "k"}).Replayed())
		require.Equal(t, 1, s.recorded(t))
	})
}

// Of a process with the option and one without, which run at once, one commits.
func TestOneCommitBesideTwo(t *testing.T) {
	onEachWholeWay(t, func(t *testing.T, inTx way, level string) {
		var other *pgstore.Store
		claim := mayBeLost()
		s := inOneCommit(t, level, func(s *shop, w http.ResponseWriter, r *http.Request) {
			charge(inTx, level)(s, w, r)
			if other != nil {
				rec, err := other.Claim(r.Context(), intent.Key(guardtest.Op(r.Context()).Key()).Name(), claim)
				require.NoError(t, err)
				require.True(t, rec.Mine)
			}
		})
		other = s.another(t)
		guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k"}), http.StatusConflict, problem.InFlight)
		require.Zero(t, s.rows(t, "k"))
	})
}

// A claim that is a transaction keeps nothing of the caller's memory, which may change until the commit.
func TestOneCommitCopiesTheClaim(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t, pgtest.Shared(t).Pool(t), pgstore.WithOneCommit(""))
	claim := mayBeLost()
	claim.Note, claim.SealedKey = []byte("note"), []byte("sealed")
	r := guardtest.Claim(t, s, "k", claim)
	require.True(t, r.Mine && r.MayBeLost)
	copy(claim.Note, "!!!!")
	copy(claim.SealedKey, "!!!!!!")
	require.NoError(t, s.Complete(t.Context(), "k", claim.Owner, store.Completion{Answer: []byte("answer"), TTL: time.Hour}))
	r = guardtest.Get(t, s, "k")
	require.Equal(t, "sealed", string(r.SealedKey))
	require.Equal(t, store.AppendNote(nil, []byte("note")), r.Notes)
}

// A claim that nobody renews ends with its lease, and so does one whose process hangs in its transaction.
func TestOneCommitEndsWithItsLease(t *testing.T) {
	t.Parallel()
	pool := pgtest.Shared(t).Pool(t)
	s, _ := newStore(t, pool, pgstore.WithOneCommit(""))
	for _, joins := range []bool{false, true} {
		claim := mayBeLost()
		claim.Lease = 300 * time.Millisecond
		r := guardtest.Claim(t, s, "k", claim)
		require.True(t, r.Mine && r.MayBeLost)
		t.Cleanup(func() { _ = s.Release(context.Background(), "k", claim.Owner, store.Release{Undone: true}) }) // of a test that has failed
		var joined store.Transaction
		if joins {
			var err error
			joined, _, err = s.JoinTx(t.Context(), "k", claim.Owner, pgx.TxOptions{})
			require.NoError(t, err)
			t.Cleanup(func() { _ = joined.Rollback(context.Background()) })
			require.NoError(t, s.Renew(t.Context(), "k", claim.Owner))
		}
		next := mayBeLost()
		require.Eventually(t, func() bool {
			r = guardtest.Claim(t, s, "k", next)
			return r.Mine
		}, 30*time.Second, 10*time.Millisecond)
		require.Equal(t, 1, r.Attempt)
		if joins {
			require.Error(t, joined.Complete(t.Context(), store.Completion{TTL: time.Hour}))
		}
		require.NoError(t, s.Release(t.Context(), "k", next.Owner, store.Release{Undone: true}))
		// The pool gives a broken connection up in a goroutine.
		require.Eventually(t, func() bool { return pool.Stat().AcquiredConns() == 0 }, 30*time.Second, time.Millisecond)
	}
}

// A renewal makes the claim a record, unless the handler has the transaction.
func TestOneCommitIsRenewed(t *testing.T) {
	t.Parallel()
	pool := pgtest.Shared(t).Pool(t)
	s, _ := newStore(t, pool, pgstore.WithOneCommit(""))
	claim := mayBeLost()
	guardtest.Claim(t, s, "k", claim)
	require.EqualValues(t, 1, pool.Stat().AcquiredConns())
	require.NoError(t, s.Renew(t.Context(), "k", claim.Owner))
	require.Zero(t, pool.Stat().AcquiredConns())
	r := guardtest.Get(t, s, "k")
	require.Equal(t, store.Claimed, r.State)
	require.NoError(t, s.Complete(t.Context(), "k", claim.Owner, store.Completion{TTL: time.Hour}))
}

// Claims leave a quarter of the pool to others.
func TestOneCommitLeavesConnections(t *testing.T) {
	t.Parallel()
	pool := poolOf(t, "4")
	s, _ := newStore(t, pool, pgstore.WithOneCommit(""))
	for i, key := range keysOf(6) {
		claim := mayBeLost()
		r := guardtest.Claim(t, s, key, claim)
		require.True(t, r.Mine)
		require.Equal(t, i < 3, r.MayBeLost)
		t.Cleanup(func() { _ = s.Release(context.Background(), key, claim.Owner, store.Release{Undone: true}) })
	}
	require.EqualValues(t, 3, pool.Stat().AcquiredConns())
}

// Only a run that has done nothing without a record may be its transaction. An owner that claims again has its claim.
func TestOneCommitWhereItIsAllowed(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t, pgtest.Shared(t).Pool(t), pgstore.WithOneCommit(""))
	for key, claim := range map[string]store.Claim{"not": newClaim(), "allowed": mayBeLost()} {
		for range 2 {
			r := guardtest.Claim(t, s, key, claim)
			require.True(t, r.Mine)
			require.Equal(t, claim.MayBeLost, r.MayBeLost)
		}
		_, err := s.Get(t.Context(), key)
		require.Equal(t, claim.MayBeLost, errors.Is(err, store.ErrNotFound))
		require.NoError(t, s.Hold(t.Context(), key, claim.Owner, nil))
		r := guardtest.Get(t, s, key)
		require.Equal(t, store.Held, r.State)
	}
}

// The reply of the commit is lost, or the commit comes late. What the client hears is true.
func TestOneCommitInDoubt(t *testing.T) {
	for name, c := range map[string]struct {
		fault        func(told chan struct{}) pgproxy.Fault
		status, rows int
	}{
		"reply lost": {func(chan struct{}) pgproxy.Fault { return pgproxy.Fault{LoseReply: true} }, http.StatusCreated, 1},
		"silent":     {func(told chan struct{}) pgproxy.Fault { return pgproxy.Fault{Silent: told} }, http.StatusCreated, 1},
		"late":       {func(told chan struct{}) pgproxy.Fault { return pgproxy.Fault{Late: told} }, http.StatusServiceUnavailable, 0},
	} {
		onEachWholeWay(t, func(t *testing.T, inTx way, level string) {
			at, err := url.Parse(pgtest.Shared(t).DSN)
			require.NoError(t, err)
			proxy, err := pgproxy.New(at.Host)
			require.NoError(t, err)
			t.Cleanup(proxy.Close)
			at.Host, at.RawQuery = proxy.Addr(), at.RawQuery+"&default_query_exec_mode=exec"
			told := make(chan struct{})
			tell := sync.OnceFunc(func() { close(told) })
			t.Cleanup(tell)
			var runs atomic.Int64
			s := newShopOn(t, (&pgtest.Server{Server: &pgserver.Server{DSN: at.String()}}).Pool(t), func(s *shop, w http.ResponseWriter, r *http.Request) {
				charge(inTx, level)(s, w, r)
				if runs.Add(1) == 1 {
					proxy.Arm(1, c.fault(told))
				}
			}, []pgstore.Option{pgstore.WithOneCommit(pgx.TxIsoLevel(level))}, idempotency.WithLease(time.Minute))
			require.Equal(t, c.status, s.Do(t, guardtest.Call{Key: "k"}).Status, name)
			require.True(t, proxy.Fired())
			require.Equal(t, c.rows, s.rows(t, "k"), name)
			tell()
			require.Equal(t, http.StatusCreated, s.settled(t, "k").Status, name)
			require.Equal(t, 1, s.rows(t, "k"), name)
		})
	}
}

// The statement that makes the record finds out that it is in another transaction.
func TestOneCommitKnowsItsTransaction(t *testing.T) {
	onEachLevel(t, func(t *testing.T, level string) {
		s := inOneCommit(t, level, nil)
		claim := mayBeLost()
		guardtest.Claim(t, s.store, "k", claim)
		joined, tx, err := s.store.JoinTx(t.Context(), "k", claim.Owner, atLevel(level))
		require.NoError(t, err)
		pgtest.Exec(t, tx, "COMMIT AND CHAIN")
		pgstore.Forget(tx)
		require.NoError(t, tx.Commit(t.Context()))
		require.ErrorIs(t, joined.Complete(t.Context(), store.Completion{TTL: time.Hour}), store.ErrCommittedAlone)
		require.Zero(t, s.recorded(t))
	})
}

// A run is the round trips of its transaction: the claim goes with BEGIN, and the record with COMMIT.
func TestRoundTripsOfOneCommit(t *testing.T) {
	t.Parallel()
	for i := range 2 * len(tripModes) {
		mode, name := tripModes[i/2], []string{"InTx", "InSQLTx"}[i%2]
		inTx := ways[name]
		wire := pgtest.NewWire(0)
		// Of two connections, those who come one after another get the same, on which a statement is prepared.
		pool := wire.Pool(t, pgtest.Shared(t).DSN, mode, 2)
		s, table := newStore(t, pool, pgstore.WithConns(1), pgstore.WithOneCommit(""))
		pgtest.Exec(t, pool, "CREATE TABLE "+table+"_rows (n int8)")
		db := pgstore.OpenDB(pool)
		t.Cleanup(func() { _ = db.Close() })
		guard := guardtest.NewGuard(t, s, idempotency.WithTransaction(true))
		server := guardtest.ServeHTTP1(t, guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Refused") != "" {
				w.WriteHeader(http.StatusPaymentRequired)
				return
			}
			err := inTx(&shop{store: s, db: db}, r.Context(), "read committed", func(exec execer) error {
				return exec(r.Context(), "INSERT INTO "+table+"_rows VALUES ($1)", int64(1))
			})
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		})))
		call := func(key string, header http.Header) int64 {
			return wire.Count(func() {
				require.Less(t, server.Do(t, guardtest.Call{Key: key, Header: header}).Status, http.StatusInternalServerError)
			})
		}
		refused := http.Header{"Refused": {"yes"}}
		for _, key := range []string{"warm", "warm-too"} {
			call(key, nil)
			call(key, nil)
			call(key+"-refused", refused)
		}
		require.EqualValues(t, 3, call("k", nil), "%s, %s: claim, INSERT, record", mode, name)
		require.EqualValues(t, 1, call("k", nil), "%s, %s: replay", mode, name)
		require.EqualValues(t, 2, call("refused", refused), "%s, %s: claim, record", mode, name)
	}
}

func TestOneCommitRefusesWhatItCannotDo(t *testing.T) {
	t.Parallel()
	pool := pgtest.Shared(t).Pool(t)
	_, table := newStore(t, pool)
	_, err := pgstore.New(t.Context(), pool, pgstore.WithTable(table), pgstore.WithOneCommit("chaos"))
	require.ErrorContains(t, err, "chaos")
	_, err = pgstore.New(t.Context(), poolOf(t, "1"), pgstore.WithTable(table), pgstore.WithOneCommit(""))
	require.ErrorContains(t, err, "two connections")
}
