package sqlitestore_test

import (
	"context"
	"database/sql"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/stores/sqlitestore"
)

func TestTombstone(t *testing.T) {
	t.Parallel()
	guardtest.RequireTombstone(t, open(t, filepath.Join(t.TempDir(), "records.db")))
}

// The file is emptied, and the processes that know its birth tell.
func TestBirth(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "records.db"))
	guardtest.RequireBirth(t, s, func() {
		require.NoError(t, s.InTx(t.Context(), func(tx *sql.Tx) error {
			_, err := tx.ExecContext(t.Context(), "DELETE FROM idempotency_records")
			return err
		}))
	})
}

// The answer of a run is in the commit of its rows, in whichever way, and the record is lost afterwards.
func TestForgottenCommitIsToldOf(t *testing.T) {
	t.Parallel()
	guardtest.Each(t, map[string][]sqlitestore.Option{"two commits": nil, "one commit": {sqlitestore.WithOneCommit()}}, func(t *testing.T, opts []sqlitestore.Option) {
		s := &shop{store: open(t, filepath.Join(t.TempDir(), "shop.db"), opts...)}
		exec := func(statement string) {
			require.NoError(t, s.store.InTx(t.Context(), func(tx *sql.Tx) error {
				_, err := tx.ExecContext(t.Context(), statement)
				return err
			}))
		}
		exec("CREATE TABLE charges (key TEXT NOT NULL)")
		gone := make(chan event.Event, 1)
		g := guardtest.NewGuard(t, s.store, idempotency.WithTransaction(true), idempotency.WithObserver(func(_ context.Context, e event.Event) {
			if e.Kind == event.RecordGone {
				gone <- e
			}
		}))
		s.Server = guardtest.ServeHTTP1(t, g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { charge(s, w, r) })))
		require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
		exec("DELETE FROM idempotency_records")

		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- g.Reconcile(ctx, time.Hour) }()
		select {
		case e := <-gone:
			require.ErrorContains(t, e.Err, "has lost 1 of the last 1 records")
		case <-time.After(20 * time.Second):
			t.Error("nobody is told")
		}
		cancel()
		require.NoError(t, <-ended)
	})
}
