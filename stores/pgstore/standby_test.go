package pgstore_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/stores/pgstore/internal/pgtest"
)

// replicated returns a shop whose commits wait for a standby, and the standby.
func replicated(t *testing.T, h func(s *shop, w http.ResponseWriter, r *http.Request), opts ...idempotency.Option) (*shop, *pgtest.Server, *pgtest.Server) {
	t.Helper()
	primary := pgtest.Start(t)
	s := newShopAt(t, primary, h, opts...)
	standby := &pgtest.Server{Server: primary.StartStandby(t)}
	for _, sql := range []string{"ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"} {
		_, err := s.pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool {
		var n int
		err := s.pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'").Scan(&n)
		return err == nil && n == 1
	}, time.Minute, 10*time.Millisecond)
	return s, primary, standby
}

// The standby hangs, and the guard gives the commit up that waits for it. The rows are committed then,
// and anybody can see them on the primary. If that dies they are gone, so no client may have been told of
// them.
func TestCommitThatOnlyThePrimaryHasIsNotBelieved(t *testing.T) {
	t.Parallel()
	work := map[string]func(s *shop, w http.ResponseWriter, r *http.Request){
		"InTx":    charge(ways["InTx"], "read committed"),
		"InSQLTx": charge(ways["InSQLTx"], "read committed"),
		"StepTx": func(s *shop, w http.ResponseWriter, r *http.Request) {
			if _, err := s.step(r.Context(), pgx.ReadCommitted, nothing); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			w.WriteHeader(http.StatusCreated)
		},
	}
	for name, h := range work {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var hang func()
			s, primary, standby := replicated(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
				hang() // the claim is on both
				h(s, w, r)
			}, idempotency.WithTransaction(name != "StepTx"), idempotency.WithLease(6*time.Second))
			hang = sync.OnceFunc(standby.Crash)
			t.Cleanup(func() { // or the guard would settle the run for ever
				over, cancel := context.WithCancel(context.Background())
				cancel()
				_ = s.guard.Shutdown(over)
			})
			call := guardtest.Call{Key: "k"}
			first := s.Do(t, call)
			require.Equal(t, 1, s.rows(t, "k"), "committed, and visible on the primary")
			retry := s.Do(t, call)
			primary.Kill()
			standby.Promote(t)
			promoted := standby.Pool(t)
			var rows int
			require.NoError(t, promoted.QueryRow(context.Background(), "SELECT count(*) FROM "+s.table).Scan(&rows))
			require.Zero(t, rows)
			require.GreaterOrEqual(t, first.Status, http.StatusConflict, "%s", first.Body)
			require.GreaterOrEqual(t, retry.Status, http.StatusConflict, "%s", retry.Body)
		})
	}
}

// The standby comes back while the guard still asks. The commit is believed, and the client gets its
// answer.
func TestCommitThatReachesTheStandbyIsBelieved(t *testing.T) {
	t.Parallel()
	var hang func()
	s, _, standby := replicated(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
		hang()
		charge(ways["InTx"], "read committed")(s, w, r)
	})
	hang = sync.OnceFunc(standby.Crash)
	call := guardtest.Call{Key: "k"}
	require.Equal(t, http.StatusServiceUnavailable, s.Do(t, call).Status)
	standby.Restart(t)
	require.Equal(t, http.StatusCreated, s.settled(t, "k").Status)
	require.Equal(t, 1, s.rows(t, "k"))
}
