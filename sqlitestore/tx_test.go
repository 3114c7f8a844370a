package sqlitestore_test

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/sqlitestore"
)

// A shop sells something: each of its charges is one row.
type shop struct {
	*guardtest.Server
	store *sqlitestore.Store
	path  string
}

// newShop returns a shop whose requests run h.
func newShop(t testing.TB, h func(s *shop, w http.ResponseWriter, r *http.Request), opts ...idempotency.Option) *shop {
	t.Helper()
	s := &shop{path: filepath.Join(t.TempDir(), "shop.db")}
	s.store = open(t, s.path)
	require.NoError(t, s.store.InTx(t.Context(), func(tx *sql.Tx) error {
		_, err := tx.ExecContext(t.Context(), `CREATE TABLE charges (key TEXT NOT NULL)`)
		return err
	}))
	opts = append([]idempotency.Option{idempotency.WithTransaction(true)}, opts...)
	g := guardtest.NewGuard(t, s.store, opts...)
	s.Server = guardtest.ServeHTTP1(t, g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h(s, w, r) })))
	return s
}

func open(t testing.TB, path string) *sqlitestore.Store {
	t.Helper()
	s, err := sqlitestore.Open(t.Context(), path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// insert inserts the row of a charge.
func insert(ctx context.Context, tx *sql.Tx) error {
	op, _ := idempotency.FromContext(ctx)
	_, err := tx.ExecContext(ctx, "INSERT INTO charges (key) VALUES (?)", op.Key().Value)
	return err
}

// charge inserts a row and answers 201.
func charge(s *shop, w http.ResponseWriter, r *http.Request) {
	if err := s.store.InTx(r.Context(), func(tx *sql.Tx) error { return insert(r.Context(), tx) }); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusCreated)
}

// rows returns how many charges there are.
func (s *shop) rows(t testing.TB) (n int) {
	t.Helper()
	db, err := sql.Open("sqlite", s.path)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	require.NoError(t, db.QueryRowContext(context.Background(), "SELECT count(*) FROM charges").Scan(&n))
	return n
}

func TestRowsAreCommittedWithTheAnswer(t *testing.T) {
	t.Parallel()
	s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
		charge(s, w, r)
		if s.rows(t) != 0 {
			t.Error("the rows are there before the answer")
		}
	})
	first := s.Do(t, guardtest.Call{Key: "k"})
	require.Equal(t, http.StatusCreated, first.Status, "%s", first.Body)
	guardtest.RequireReplay(t, first, s.Do(t, guardtest.Call{Key: "k"}))
	require.Equal(t, 1, s.rows(t))
}

// The status does not decide. The function does.
func TestFunctionDecides(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	for _, want := range []error{nil, refused} {
		s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
			require.Equal(t, want, s.store.InTx(r.Context(), func(tx *sql.Tx) error {
				require.NoError(t, insert(r.Context(), tx))
				return want
			}))
			w.WriteHeader(http.StatusPaymentRequired)
		})
		first := s.Do(t, guardtest.Call{Key: "k"})
		require.Equal(t, http.StatusPaymentRequired, first.Status)
		guardtest.RequireReplay(t, first, s.Do(t, guardtest.Call{Key: "k"}))
		require.Equal(t, map[bool]int{true: 1}[want == nil], s.rows(t))
	}
}

// A server error and a panic roll back whatever the function has said, and the next request runs
// again, even under Hold.
func TestFailureRollsBack(t *testing.T) {
	t.Parallel()
	for _, fails := range []func(w http.ResponseWriter){
		func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) },
		func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
	} {
		var attempts atomic.Int64
		s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
			if attempts.Add(1) > 1 {
				charge(s, w, r)
				return
			}
			require.NoError(t, s.store.InTx(r.Context(), func(tx *sql.Tx) error { return insert(r.Context(), tx) }))
			fails(w)
		}, idempotency.WithRecovery(idempotency.Hold))
		_, _ = s.Try(t.Context(), guardtest.Call{Key: "k"})
		require.Zero(t, s.rows(t))
		require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
		require.Equal(t, 1, s.rows(t))
	}
}

// A transaction that is longer than the lease completes the first time: nobody can take over while
// it keeps everybody from writing.
func TestTransactionLongerThanItsLease(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		require.NoError(t, s.store.InTx(r.Context(), func(tx *sql.Tx) error { return insert(r.Context(), tx) }))
		select { // the time is that of the machine's clock, which SQLite looks at
		case <-r.Context().Done():
			t.Error("the run was told that it has lost its lease")
		case <-time.After(time.Second):
		}
		w.WriteHeader(http.StatusCreated)
	}, idempotency.WithLease(300*time.Millisecond))
	require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
	require.EqualValues(t, 1, runs.Load())
	require.Equal(t, 1, s.rows(t))
}

// That a step begins could not be recorded before its effect while its own transaction is the writer.
func TestStepInATransactionIsRefused(t *testing.T) {
	t.Parallel()
	s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
		require.NoError(t, s.store.InTx(r.Context(), func(*sql.Tx) error {
			_, err := idempotency.Step(r.Context(), "mail", func(context.Context) (int, error) {
				t.Error("the step has run")
				return 0, nil
			}, idempotency.AtMostOnce())
			require.ErrorContains(t, err, "take the step before it")
			return nil
		}))
		w.WriteHeader(http.StatusCreated)
	})
	require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
}

// Two stores of one file, as two processes have them: one effect for each key, and waiters of one
// are woken by the other.
func TestTwoStoresOfOneFile(t *testing.T) {
	t.Parallel()
	s := newShop(t, charge)
	other := *s
	other.store = open(t, s.path)
	g := guardtest.NewGuard(t, other.store, idempotency.WithTransaction(true))
	other.Server = guardtest.ServeHTTP1(t, g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { charge(&other, w, r) })))
	const keys = 20
	var all sync.WaitGroup
	for _, server := range []*guardtest.Server{s.Server, other.Server, s.Server, other.Server} {
		all.Go(func() {
			for k := range keys {
				call := guardtest.Call{Key: "key-" + string(rune('a'+k))}
				for server.Do(t, call).Status != http.StatusCreated {
					if t.Failed() {
						return
					}
				}
			}
		})
	}
	all.Wait()
	require.Equal(t, keys, s.rows(t))
}
