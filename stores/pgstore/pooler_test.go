package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/race"
	"example.com/idempotency/store"
	"example.com/idempotency/store/storetest"
	"example.com/idempotency/stores/pgstore"
	"example.com/idempotency/stores/pgstore/internal/pgtest"
)

// Behind a pooler that gives each transaction another connection.

// poolerModes are the modes of the driver that prepare nothing on a connection: all with PG_EXHAUSTIVE=1, and one
// with the race detector, for which they do not differ.
func poolerModes() []pgx.QueryExecMode {
	if os.Getenv("PG_EXHAUSTIVE") == "1" {
		return []pgx.QueryExecMode{pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol}
	}
	if race.Enabled {
		return []pgx.QueryExecMode{pgx.QueryExecModeSimpleProtocol}
	}
	return []pgx.QueryExecMode{pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeSimpleProtocol}
}

// bouncerPool returns a pool of connections to the pooler.
func bouncerPool(t testing.TB, dsn string, mode pgx.QueryExecMode) *pgxpool.Pool {
	return pgtest.NewWire(0).Pool(t, dsn, mode, 8)
}

func TestStoreKeepsTheContractBehindPgBouncer(t *testing.T) {
	if race.Enabled {
		t.Skip("what is behind a pooler is the same to the race detector")
	}
	t.Parallel()
	server := pgtest.Shared(t)
	// Fewer connections to the server than clients have, so that they do get each other's.
	bouncer := server.StartBouncer(t, "default_pool_size=4")
	for _, mode := range poolerModes() {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			pool := bouncerPool(t, bouncer.DSN, mode)
			storetest.Run(t, storetest.Harness{
				New: func(t testing.TB) (store.Store, func(time.Duration)) {
					s, table := newStore(t, pool, pgstore.WithConns(3), pgstore.WithoutListen())
					return unwatched{s}, clock(t, pool, table)
				},
				Transactions: txMode{iso: pgx.RepeatableRead, sql: mode == pgx.QueryExecModeExec}.transactions(pool),
			})
		})
	}
}

// unwatched is a store whose records nobody can watch.
type unwatched struct{ *pgstore.Store }

// Watch hides that of the store.
func (unwatched) Watch() {}

// A run joins a transaction through the pooler, at each level. A request that waits for it asks at
// intervals.
func TestTransactionsBehindPgBouncer(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	bouncer := server.StartBouncer(t, "default_pool_size=40") // each transaction has one until it ends
	for _, mode := range poolerModes() {
		for _, whole := range []bool{false, true} { // of which the ways and levels that do not fit are joined
			opts := []pgstore.Option{pgstore.WithConns(3), pgstore.WithoutListen()}
			if whole {
				opts = append(opts, pgstore.WithOneCommit(""))
			}
			onEachWay(t, func(t *testing.T, inTx way, level string) {
				entered, leave := make(chan struct{}, 1), make(chan struct{})
				s := newShopOn(t, bouncerPool(t, bouncer.DSN, mode), charge(func(s *shop, ctx context.Context, level string, f func(exec execer) error) error {
					return inTx(s, ctx, level, func(exec execer) error {
						entered <- struct{}{}
						<-leave
						return f(exec)
					})
				}, level), opts, idempotency.WithWait(time.Minute))
				first, waiter := make(chan guardtest.Reply, 1), make(chan guardtest.Reply, 1)
				go func() { first <- s.Attempt(t, guardtest.Call{Key: "k"}) }()
				<-entered
				go func() { waiter <- s.Attempt(t, guardtest.Call{Key: "k"}) }()
				require.Eventually(t, func() bool { return s.guard.Stats().Waiting == 1 }, time.Minute, time.Millisecond)
				close(leave)
				answer := <-first
				require.Equal(t, http.StatusCreated, answer.Status, "%s", answer.Body)
				guardtest.RequireReplay(t, answer, <-waiter)
				require.Equal(t, 1, s.rows(t, "k"))
			})
		}
	}
}

// The modes of the driver that do not go with such a pooler are named where the store is made, or it uses another.
func TestModesBehindPgBouncer(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	bouncer := server.StartBouncer(t, "default_pool_size=8")
	_, table := newStore(t, server.Pool(t))
	for range 2 {
		_, err := pgstore.New(t.Context(), bouncerPool(t, bouncer.DSN, pgx.QueryExecModeCacheStatement), pgstore.WithTable(table))
		require.ErrorContains(t, err, "default_query_exec_mode=exec")
	}
	err := pgstore.Migrate(t.Context(), bouncerPool(t, bouncer.DSN, pgx.QueryExecModeCacheStatement), pgstore.WithTable(table))
	require.ErrorContains(t, err, "default_query_exec_mode=exec")

	s := openStore(t, bouncerPool(t, bouncer.DSN, pgx.QueryExecModeDescribeExec), pgstore.WithTable(table))
	guardtest.Together(8, func(c int) {
		for i := range 50 {
			if _, err := s.Claim(context.Background(), fmt.Sprint(c, "-", i), newClaim()); err != nil {
				t.Error(err)
				return
			}
		}
	})
}

// LISTEN is taken by the pooler, and hears nothing. That is said once, and those who wait ask at intervals.
func TestListenBehindPgBouncerHearsNothing(t *testing.T) {
	t.Parallel()
	var events guardtest.Events
	entered, leave := make(chan struct{}), make(chan struct{})
	pool := bouncerPool(t, pgtest.Shared(t).StartBouncer(t).DSN, pgx.QueryExecModeExec)
	s := newShopOn(t, pool, func(s *shop, w http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		<-leave
		w.WriteHeader(http.StatusCreated)
	}, nil, idempotency.WithWait(time.Minute), idempotency.WithObserver(events.Observe))
	t.Cleanup(func() { close(leave) })
	for _, key := range []string{"k", "l"} {
		first, waiter := make(chan guardtest.Reply, 1), make(chan guardtest.Reply, 1)
		go func() { first <- s.Attempt(t, guardtest.Call{Key: key}) }()
		<-entered
		go func() { waiter <- s.Attempt(t, guardtest.Call{Key: key}) }()
		require.Eventually(t, func() bool { return s.guard.Stats().Waiting == 1 && events.Count(event.StoreError) == 1 }, 10*time.Second, time.Millisecond)
		leave <- struct{}{}
		answer, start := <-first, time.Now()
		guardtest.RequireReplay(t, answer, <-waiter)
		require.Less(t, time.Since(start), 5*time.Second, "it has asked")
	}
	require.ErrorContains(t, errors.Join(events.Errors()...), "WithPoolConfig")
}

// PgBouncer passes on what the server tells of the mark of a transaction, so that one which its function has
// ended is found out as without a pooler.
func TestTransactionThatEndsItselfBehindPgBouncer(t *testing.T) {
	t.Parallel()
	bouncer := pgtest.Shared(t).StartBouncer(t)
	for _, mode := range poolerModes() {
		for name, way := range ways {
			t.Run(mode.String()+"/"+name, func(t *testing.T) {
				t.Parallel()
				var events guardtest.Events
				s := newShopOn(t, bouncerPool(t, bouncer.DSN, mode), func(s *shop, w http.ResponseWriter, r *http.Request) {
					require.Error(t, way(s, r.Context(), "read committed", func(exec execer) error {
						return errors.Join(s.insert(r.Context(), exec), exec(r.Context(), "COMMIT AND CHAIN"), errors.New("failed"))
					}))
					w.WriteHeader(http.StatusInternalServerError)
				}, nil, idempotency.WithRecovery(idempotency.Hold), idempotency.WithObserver(events.Observe))
				for range 2 {
					s.Do(t, guardtest.Call{Key: "k"})
					require.Equal(t, 1, s.rows(t, "k"))
				}
				require.Equal(t, 1, events.Count(event.CommittedAlone))
			})
		}
	}
}

// A store that connects past the pooler renews the leases of transactions that have all the
// connections of the pooler, or wait for one.
func TestLeasesOutliveTheWaitForAPooler(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	bouncer := server.StartBouncer(t, "default_pool_size=2")
	direct, err := pgxpool.ParseConfig(server.DSN)
	require.NoError(t, err)
	var events guardtest.Events
	c := newCrowd(t)
	s := newShopOn(t, bouncerPool(t, bouncer.DSN, pgx.QueryExecModeExec), c.handler(ways["InTx"], "read committed"),
		[]pgstore.Option{pgstore.WithPoolConfig(direct)}, idempotency.WithLease(time.Hour), idempotency.WithObserver(events.Observe))
	c.come(t, s, 4, 2, false)
	require.Zero(t, events.Count(event.LeaseLost)+events.Count(event.Takeover))
	_, stop, err := s.store.Watch(t.Context(), "key") // which no pooler passes on
	require.NoError(t, err)
	stop()
}
