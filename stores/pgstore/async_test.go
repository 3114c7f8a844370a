//go:build unix

package pgstore_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/store"
	"example.com/idempotency/stores/pgstore"
	"example.com/idempotency/stores/pgstore/internal/pgtest"
)

// Claims that are acknowledged before they are durable.

// crashingServer returns a server that writes its log only when a commit waits for that, once it is
// doomed.
func crashingServer(t testing.TB) *pgtest.Server {
	return pgtest.Start(t, "fsync=on", "full_page_writes=off", "autovacuum=off", "bgwriter_lru_maxpages=0")
}

// doom stops the process of the server that writes the log for others, and returns what lets the server
// crash and starts it again.
func doom(t testing.TB, server *pgtest.Server, pool *pgxpool.Pool) (crash func()) {
	t.Helper()
	var pid int
	require.Eventually(t, func() bool {
		return pool.QueryRow(t.Context(), "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'").Scan(&pid) == nil
	}, time.Minute, time.Millisecond)
	writer, err := os.FindProcess(pid)
	require.NoError(t, err)
	kill := sync.OnceFunc(func() { _ = writer.Kill() })
	t.Cleanup(kill)
	// Stopped in the middle of a write, it would keep a lock that every durable commit needs.
	for require.NoError(t, writer.Signal(syscall.SIGSTOP)); !commits(t, pool); {
		require.NoError(t, writer.Signal(syscall.SIGCONT))
		require.NoError(t, writer.Signal(syscall.SIGSTOP))
	}
	return func() {
		kill()
		server.Crash()
		server.Restart(t)
		pool.Reset()
	}
}

// commits tells whether a durable commit returns soon.
func commits(t testing.TB, pool *pgxpool.Pool) bool {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := pool.Exec(ctx, "SELECT pg_logical_emit_message(true, '', '')")
	return err == nil
}

// mayBeLost is a claim as a guard makes it for a run that undoes what it does.
func mayBeLost() store.Claim {
	c := newClaim()
	c.MayBeLost = true
	return c
}

func TestAsynchronousClaims(t *testing.T) {
	t.Parallel()
	server := crashingServer(t)
	t.Run("claims", func(t *testing.T) { crashLosesThemOnly(t, server) })
	t.Run("runs", func(t *testing.T) { runsWhoseClaimIsLost(t, server) })
	t.Run("strict", func(t *testing.T) { keptInAStrictTransaction(t, server) })
}

// A crash loses an asynchronous claim, and nothing else: neither one that must not be lost, nor one
// whose owner was heard of since.
func crashLosesThemOnly(t *testing.T, server *pgtest.Server) {
	pool := server.Pool(t)
	// With one connection, a setting that outlived the claim would be that of the next call.
	async, table := newStore(t, pool, pgstore.WithAsyncClaims(), pgstore.WithConns(1))
	usual := openStore(t, pool, pgstore.WithTable(table), pgstore.WithConns(1))
	claim := func(s *pgstore.Store, key string, c store.Claim, lost bool) {
		r := guardtest.Claim(t, s, key, c)
		require.True(t, r.Mine)
		require.Equal(t, lost, r.MayBeLost)
	}
	for name, last := range map[string]func(key string){
		"of a store without the option": func(key string) { claim(usual, key, mayBeLost(), false) },
		"that must not be lost":         func(key string) { claim(async, key, newClaim(), false) },
		"that was renewed": func(key string) {
			c := mayBeLost()
			claim(async, key, c, true)
			require.NoError(t, async.Renew(t.Context(), key, c.Owner))
		},
		"that has a step": func(key string) {
			c := mayBeLost()
			claim(async, key, c, true)
			require.NoError(t, async.SaveStep(t.Context(), key, c.Owner, "step", nil))
		},
		"that was claimed again": func(key string) {
			c := mayBeLost()
			claim(async, key, c, true)
			claim(async, key, c, false)
		},
	} {
		crash := doom(t, server, pool)
		last(name)
		for _, key := range []string{"first", "second", "third"} {
			claim(async, key, mayBeLost(), true)
		}
		crash()
		rows, err := pool.Query(t.Context(), "SELECT key FROM "+table)
		require.NoError(t, err)
		kept, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		require.Contains(t, kept, name)
		require.NotContains(t, kept, "third")
		pgtest.Exec(t, pool, "TRUNCATE "+table)
		for _, s := range []*pgstore.Store{usual, async} { // its connection is dead
			for _, err := s.Get(t.Context(), "first"); !errors.Is(err, store.ErrNotFound); {
				_, err = s.Get(t.Context(), "first")
			}
		}
	}
}

// neverRenewed is a lease that outlasts every start of a server. A renewal would make the claim durable,
// or find that it is lost, and a busy machine takes its time to start a server.
var neverRenewed = idempotency.WithLease(time.Hour)

// The claim of a run is lost while its handler runs. However it goes on, there is one row.
func runsWhoseClaimIsLost(t *testing.T, server *pgtest.Server) {
	for name, c := range map[string]struct {
		when  string // the moment of the crash
		again bool   // another request with the key comes before the run goes on
		want  int
	}{
		"before the transaction":                   {when: "before", want: http.StatusServiceUnavailable},
		"before the transaction, and another runs": {when: "before", again: true, want: http.StatusCreated},
		"in the transaction":                       {when: "in", want: http.StatusInternalServerError},
		"in the transaction, and another runs":     {when: "in", again: true, want: http.StatusCreated}, // the other's answer
		"after the transaction":                    {when: "after", want: http.StatusConflict},          // ask again: nobody knows
		"with the answer":                          {when: "never", want: http.StatusCreated},
	} {
		once := func(t *testing.T) guardtest.Reply {
			pool := server.Pool(t)
			var runs atomic.Int64
			var s *shop
			var crash func()
			crashes := func(moment string) {
				if moment != c.when || runs.Load() > 1 {
					return
				}
				crash()
				require.Zero(t, s.recorded(t))
				if c.again {
					require.Equal(t, http.StatusCreated, s.settled(t, "k").Status)
				}
			}
			s = newShopOn(t, pool, func(s *shop, w http.ResponseWriter, r *http.Request) {
				runs.Add(1)
				crashes("before")
				charge(func(s *shop, ctx context.Context, level string, f func(exec execer) error) error {
					err := ways["InTx"](s, ctx, level, func(exec execer) error {
						err := f(exec)
						crashes("in")
						return errors.Join(err, exec(ctx, "SELECT 1"))
					})
					crashes("after")
					return err
				}, "read committed")(s, w, r)
			}, []pgstore.Option{pgstore.WithAsyncClaims()}, idempotency.WithRecovery(idempotency.Hold), neverRenewed)
			crash = sync.OnceFunc(doom(t, server, pool))
			got := s.Do(t, guardtest.Call{Key: "k"})
			if c.when == "never" {
				crash()
			}
			require.Equal(t, http.StatusCreated, s.settled(t, "k").Status)
			require.Equal(t, 1, s.rows(t, "k"))
			crash()
			return got
		}
		t.Run(name, func(t *testing.T) { requireStatus(t, c.want, once) })
	}
}

// requireStatus looks at the answer of the first request in a world. On a busy machine, a call may take
// the store so long that the guard gives it up, and tells the client to ask again. That is no answer to
// what the test asks, so there is another world.
func requireStatus(t *testing.T, want int, world func(t *testing.T) guardtest.Reply) {
	t.Helper()
	got := world(t)
	for n := 1; n < 10 && got.Status == http.StatusServiceUnavailable && got.Status != want; n++ {
		got = world(t)
	}
	require.Equal(t, want, got.Status, "%s", got.Body)
}

// settled repeats a request until the answer is definite.
func (s *shop) settled(t testing.TB, key string) guardtest.Reply {
	for {
		if got := s.Do(t, guardtest.Call{Key: key}); got.Status < http.StatusInternalServerError && got.Status != http.StatusConflict {
			return got
		}
	}
}

// recorded returns how many records there are.
func (s *shop) recorded(t testing.TB) (n int) {
	require.NoError(t, s.pool.QueryRow(t.Context(), "SELECT count(*) FROM "+s.records).Scan(&n))
	return n
}

// A transaction that sees the past keeps its record locked. Its claim is made durable all the same.
func keptInAStrictTransaction(t *testing.T, server *pgtest.Server) {
	requireStatus(t, http.StatusInternalServerError, func(t *testing.T) guardtest.Reply {
		pool := server.Pool(t)
		var crash func()
		s := newShopOn(t, pool, func(s *shop, w http.ResponseWriter, r *http.Request) {
			op, _ := idempotency.FromContext(r.Context())
			_ = s.store.InTx(r.Context(), pgx.TxOptions{IsoLevel: pgx.Serializable}, func(pgx.Tx) error {
				_ = op.ID()
				crash()
				require.Equal(t, 1, s.recorded(t))
				return errors.New("crashed")
			})
			w.WriteHeader(http.StatusInternalServerError)
		}, []pgstore.Option{pgstore.WithAsyncClaims()}, neverRenewed)
		crash = sync.OnceFunc(doom(t, server, pool))
		got := s.Do(t, guardtest.Call{Key: "k"})
		crash()
		return got
	})
}
