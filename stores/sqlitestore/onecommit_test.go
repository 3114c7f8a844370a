package sqlitestore_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"

	"example.com/idempotency"
	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
	"example.com/idempotency/store/storetest"
	"example.com/idempotency/stores/sqlitestore"
)

// Runs whose claim, rows and answer are one commit.

// inOneCommit returns a shop whose claims are transactions. None of them is late.
func inOneCommit(t *testing.T, h func(s *shop, w http.ResponseWriter, r *http.Request), opts ...idempotency.Option) *shop {
	opts = append([]idempotency.Option{idempotency.WithRecovery(idempotency.Hold), idempotency.WithLease(time.Hour)}, opts...)
	s := newShopOn(t, []sqlitestore.Option{sqlitestore.WithOneCommit()}, h, opts...)
	s.store.SetJoinWithin(time.Hour)
	return s
}

// recorded returns how many records there are.
func (s *shop) recorded(t testing.TB) (n int) {
	t.Helper()
	require.NoError(t, s.store.Reader().QueryRow("SELECT count(*) FROM idempotency_records").Scan(&n))
	return n
}

// mayBeLost returns a claim that may be a transaction.
func mayBeLost() store.Claim {
	c := newClaim()
	c.MayBeLost = true
	return c
}

func TestOneCommitKeepsTheContract(t *testing.T) {
	storetest.Run(t, storetest.Harness{
		New: func(t testing.TB) (store.Store, func(time.Duration)) {
			path := filepath.Join(t.TempDir(), "records.db")
			s := guardtest.NewUnrecorded(open(t, path, sqlitestore.WithOneCommit()))
			return s, s.Passes(clock(t, path))
		},
		Transactions: func(t testing.TB, s store.Store) storetest.Transactions {
			return newTransactions(t, s.(guardtest.Unrecorded).ClaimingStore.(*sqlitestore.Store))
		},
	})
}

// However a run ends that has committed nothing, it leaves nothing, and the next one is the first.
func TestOneCommitLeavesNothing(t *testing.T) {
	t.Parallel()
	guardtest.Each(t, map[string]func(s *shop, w http.ResponseWriter, r *http.Request){
		"no transaction": func(*shop, http.ResponseWriter, *http.Request) {},
		"panic":          func(*shop, http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"ready": func(s *shop, w http.ResponseWriter, r *http.Request) {
			_ = s.store.InTx(r.Context(), func(tx *sql.Tx) error { return insert(r.Context(), tx) })
		},
		"rolled back by a statement": func(s *shop, _ http.ResponseWriter, r *http.Request) {
			require.Error(t, s.store.InTx(r.Context(), func(tx *sql.Tx) error {
				_, err := tx.ExecContext(r.Context(), "ROLLBACK")
				return err
			}))
		},
	}, func(t *testing.T, end func(s *shop, w http.ResponseWriter, r *http.Request)) {
		var attempts []int
		s := inOneCommit(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
			if attempts = append(attempts, guardtest.Op(r.Context()).Attempt()); len(attempts) == 1 {
				end(s, w, r)
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			charge(s, w, r)
		})
		_, _ = s.TryAlone(t.Context(), guardtest.Call{Key: "k"})
		require.Zero(t, s.recorded(t)+s.rows(t))
		require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
		require.True(t, s.Do(t, guardtest.Call{Key: "k"}).Replayed())
		require.Equal(t, []int{1, 1}, attempts)
		require.Equal(t, 1, s.rows(t))
	})
}

// A run whose function has failed keeps its key: a record takes the place of what the function has done, and nobody
// runs beside the rest of the handler.
func TestOneCommitKeepsItsKeyAfterARollback(t *testing.T) {
	t.Parallel()
	var attempts []int
	var other *guardtest.Server
	s := inOneCommit(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
		op, _ := idempotency.FromContext(r.Context())
		if attempts = append(attempts, op.Attempt()); len(attempts) > 1 {
			charge(s, w, r)
			return
		}
		require.Error(t, s.store.InTx(r.Context(), func(tx *sql.Tx) error {
			require.NoError(t, insert(r.Context(), tx))
			return errors.New("declined")
		}))
		require.Zero(t, s.rows(t))
		require.True(t, op.Valid())
		for _, duplicate := range []*guardtest.Server{s.Server, other} {
			guardtest.RequireProblem(t, duplicate.Do(t, guardtest.Call{Key: "k"}), http.StatusConflict, problem.InFlight)
		}
		w.WriteHeader(http.StatusInternalServerError)
	})
	beside := guardtest.NewGuard(t, open(t, s.path, sqlitestore.WithOneCommit()), idempotency.WithTransaction(true))
	other = guardtest.ServeRecorder(nil, beside.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it runs beside") })))
	require.Equal(t, http.StatusInternalServerError, s.Do(t, guardtest.Call{Key: "k"}).Status)
	require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
	require.Equal(t, []int{1, 2}, attempts)
	require.Equal(t, 1, s.rows(t))
}

// A run whose transaction has ended by itself can lose its key to another process. What that one has done is not denied.
func TestOneCommitThatIsLostDeniesNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "records.db")
	s, other := open(t, path, sqlitestore.WithOneCommit()), open(t, path)
	s.SetJoinWithin(time.Hour)
	for _, takes := range []bool{false, true} {
		key := map[bool]string{true: "taken", false: "free"}[takes]
		claim, theirs := mayBeLost(), newClaim()
		guardtest.Claim(t, s, key, claim)
		tx, err := s.Begin(t.Context(), key, claim.Owner)
		require.NoError(t, err)
		require.NoError(t, tx.Exec(t.Context(), "ROLLBACK"))
		if takes {
			guardtest.Claim(t, other, key, theirs)
			require.NoError(t, other.Complete(t.Context(), key, theirs.Owner, store.Completion{TTL: time.Hour}))
		}
		require.NoError(t, tx.GiveUp(t.Context()))
		err = s.Release(t.Context(), key, claim.Owner, store.Release{Undone: true})
		require.Equal(t, takes, errors.Is(err, store.ErrNotOwner), "%v", err)
		if !takes {
			_, err = s.Get(t.Context(), key)
			require.ErrorIs(t, err, store.ErrNotFound, "it leaves nothing")
		}
	}
}

// While a run is its transaction there is no record, and nobody else gets the key: in this process those who
// ask hear so at once or wait for the answer, and in another one they wait for the writer and find the answer.
func TestOneCommitIsInFlight(t *testing.T) {
	t.Parallel()
	guardtest.Each(t, map[string]bool{"claimed": false, "joined": true}, func(t *testing.T, joins bool) {
		began, goOn := make(chan struct{}), make(chan struct{})
		free := sync.OnceFunc(func() { close(goOn) })
		s := inOneCommit(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
			if joins {
				charge(s, w, r)
			}
			close(began)
			<-goOn
			w.WriteHeader(http.StatusCreated)
		}, idempotency.WithRecovery(idempotency.Rerun))
		serve := func(on store.Store, opts ...idempotency.Option) *guardtest.Server {
			g := guardtest.NewGuard(t, on, append(opts, idempotency.WithTransaction(true))...)
			return guardtest.ServeHTTP1(t, g.Handler(http.NotFoundHandler()))
		}
		t.Cleanup(free)
		first := make(chan guardtest.Reply, 1)
		go func() { first <- s.Do(t, guardtest.Call{Key: "k"}) }()
		<-began
		require.Zero(t, s.recorded(t))
		guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k"}), http.StatusConflict, problem.InFlight)
		guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k", Body: "another"}), http.StatusConflict, problem.KeyReused)
		others := []*guardtest.Server{
			serve(s.store, idempotency.WithWait(time.Minute)),
			serve(open(t, s.path)), serve(open(t, s.path, sqlitestore.WithOneCommit())),
		}
		replies := make(chan guardtest.Reply)
		for _, o := range others {
			go func() { replies <- o.Do(t, guardtest.Call{Key: "k"}) }()
		}
		time.Sleep(20 * time.Millisecond) // those of the other processes have no other way to say that they wait
		free()
		require.Equal(t, http.StatusCreated, (<-first).Status)
		for range others {
			got := <-replies
			require.True(t, got.Replayed(), "%d %s", got.Status, got.Body)
		}
		require.Equal(t, map[bool]int{true: 1}[joins], s.rows(t))
		require.Equal(t, 1, s.recorded(t))
	})
}

// One who waits does not run in the place of a run that has failed, although that leaves nothing to others.
func TestOneCommitWaitersDoNotRun(t *testing.T) {
	t.Parallel()
	var s *shop
	var runs atomic.Int64
	s = inOneCommit(t, func(_ *shop, w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		c := mayBeLost()
		c.Watch = true
		rec, err := s.store.Claim(context.Background(), intent.Key(guardtest.Op(r.Context()).Key()).Name(), c)
		require.NoError(t, err)
		require.Equal(t, store.Claimed, rec.State)
		w.WriteHeader(http.StatusInternalServerError)
	})
	require.Equal(t, http.StatusInternalServerError, s.Do(t, guardtest.Call{Key: "k"}).Status)
	require.EqualValues(t, 1, runs.Load())
	require.Equal(t, 1, s.recorded(t))
}

// What needs the record makes the claim one first. In the transaction that is the claim there is none.
func TestOneCommitMakesARecord(t *testing.T) {
	t.Parallel()
	step := func(ctx context.Context) error {
		_, err := idempotency.Step(ctx, "mail", func(context.Context) (int, error) { return 1, nil })
		return err
	}
	declined := errors.New("declined")
	type row struct {
		records int
		run     func(s *shop, ctx context.Context) error
	}
	guardtest.Each(t, map[string]row{
		"nothing": {0, func(*shop, context.Context) error { return nil }},
		"its transaction": {0, func(s *shop, ctx context.Context) error {
			return s.store.InTx(ctx, func(*sql.Tx) error { return nil })
		}},
		"two transactions": {1, func(s *shop, ctx context.Context) error {
			require.ErrorIs(t, s.store.InTx(ctx, func(*sql.Tx) error { return declined }), declined)
			return s.store.InTx(ctx, func(*sql.Tx) error { return nil })
		}},
		"an ID": {1, func(_ *shop, ctx context.Context) error {
			_ = guardtest.Op(ctx).ID()
			return nil
		}},
		"a step": {1, func(_ *shop, ctx context.Context) error { return step(ctx) }},
		"a step in its transaction": {0, func(s *shop, ctx context.Context) error {
			return s.store.InTx(ctx, func(*sql.Tx) error {
				require.ErrorIs(t, step(ctx), store.ErrTransactionOpen)
				return nil
			})
		}},
		"a step after its transaction": {1, func(s *shop, ctx context.Context) error {
			require.ErrorIs(t, s.store.InTx(ctx, func(*sql.Tx) error { return declined }), declined)
			return step(ctx)
		}},
		"a transaction after a step": {1, func(s *shop, ctx context.Context) error {
			require.NoError(t, step(ctx))
			return s.store.InTx(ctx, func(*sql.Tx) error { return nil })
		}},
	}, func(t *testing.T, c row) {
		records := -1
		s := inOneCommit(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
			require.NoError(t, c.run(s, r.Context()))
			records = s.recorded(t)
			w.WriteHeader(http.StatusCreated)
		})
		require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
		require.Equal(t, c.records, records)
		require.True(t, s.Do(t, guardtest.Call{Key: "k"}).Replayed())
		require.Equal(t, 1, s.recorded(t))
	})
}

// A run that may have done something gives its key back as a record, and others go on.
func TestOneCommitOfUnknownOutcome(t *testing.T) {
	t.Parallel()
	for joins, status := range map[bool]int{true: http.StatusServiceUnavailable, false: http.StatusCreated} {
		t.Run(map[bool]string{true: "joined", false: "not joined"}[joins], func(t *testing.T) {
			t.Parallel()
			s := inOneCommit(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
				if joins {
					require.NoError(t, s.store.InTx(r.Context(), func(*sql.Tx) error { return nil }))
				}
				if op, _ := idempotency.FromContext(r.Context()); op.Attempt() == 1 && r.Header.Get("Idempotency-Key") == "k" {
					op.SetOutcome(idempotency.Unknown)
				}
				w.WriteHeader(http.StatusCreated)
			}, idempotency.WithRecovery(idempotency.Rerun))
			require.Equal(t, status, s.Do(t, guardtest.Call{Key: "k"}).Status)
			require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "another"}).Status)
			require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
		})
	}
}

// Attempts that count are recorded: a run that fails each time comes to an end.
func TestOneCommitCountsAttempts(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	s := inOneCommit(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		require.NoError(t, s.store.InTx(r.Context(), func(*sql.Tx) error { return nil }))
		w.WriteHeader(http.StatusInternalServerError)
	}, idempotency.WithRecovery(idempotency.HoldAfter(3)))
	for range 5 {
		s.Do(t, guardtest.Call{Key: "k"})
	}
	require.EqualValues(t, 3, runs.Load())
	guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k"}), http.StatusConflict, problem.OutcomeUnknown)
}

// A claim whose handler does not join it in time is a record, and others write.
func TestOneCommitIsNotLate(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "records.db"), sqlitestore.WithOneCommit())
	claim := mayBeLost()
	r := guardtest.Claim(t, s, "k", claim)
	require.True(t, r.Mine && r.MayBeLost)
	require.NoError(t, s.InTx(t.Context(), func(*sql.Tx) error { return nil }), "it waits for the writer")
	r = guardtest.Get(t, s, "k")
	require.Equal(t, claim.Owner, r.Owner)
	require.NoError(t, s.Complete(t.Context(), "k", claim.Owner, store.Completion{TTL: time.Hour}))
}

// Only a run that has done nothing without a record may be its transaction, and only with the option.
func TestOneCommitWhereItIsAllowed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		claim store.Claim
		opts  []sqlitestore.Option
		open  bool
	}{
		"allowed":     {mayBeLost(), []sqlitestore.Option{sqlitestore.WithOneCommit()}, true},
		"not allowed": {newClaim(), []sqlitestore.Option{sqlitestore.WithOneCommit()}, false},
		"no option":   {mayBeLost(), nil, false},
	} {
		s := open(t, filepath.Join(t.TempDir(), "records.db"), c.opts...)
		s.SetJoinWithin(time.Hour)
		for range 2 {
			r := guardtest.Claim(t, s, "k", c.claim)
			require.True(t, r.Mine, name)
			require.Equal(t, c.open, r.MayBeLost, name)
		}
		_, err := s.Get(t.Context(), "k")
		require.Equal(t, c.open, errors.Is(err, store.ErrNotFound), name)
		require.NoError(t, s.Hold(t.Context(), "k", c.claim.Owner, nil))
		r := guardtest.Get(t, s, "k")
		require.Equal(t, store.Held, r.State, name)
	}
}

// If another process gets the key while a transaction was rolled back and has not begun anew, the run has lost it.
func TestOneCommitLosesItsKey(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "records.db")
	s, other := open(t, path, sqlitestore.WithOneCommit()), open(t, path)
	s.SetJoinWithin(time.Hour)
	for _, takes := range []bool{false, true} {
		key := map[bool]string{true: "taken", false: "free"}[takes]
		claim, theirs := mayBeLost(), newClaim()
		guardtest.Claim(t, s, key, claim)
		tx, err := s.Begin(t.Context(), key, claim.Owner)
		require.NoError(t, err)
		require.NoError(t, tx.Exec(t.Context(), "ROLLBACK"))
		require.NoError(t, other.InTx(t.Context(), func(*sql.Tx) error { return tx.GiveUp(t.Context()) }))
		if takes {
			r := guardtest.Claim(t, other, key, theirs)
			require.True(t, r.Mine)
		}
		err = s.Complete(t.Context(), key, claim.Owner, store.Completion{TTL: time.Hour})
		require.Equal(t, takes, errors.Is(err, store.ErrNotOwner), "%v", err)
	}
}

// A faultyDriver reports that a commit has failed, of which only the store knows whether it was made.
type faultyDriver struct {
	driver.Driver
	commits func(tx driver.Tx) error
	execs   func(statement string) // before it, or nil
}

type faultyConn struct {
	sqliteConn
	driver *faultyDriver
}

type faultyTx struct {
	driver.Tx
	driver *faultyDriver
}

func (d *faultyDriver) Open(name string) (driver.Conn, error) {
	c, err := d.Driver.Open(name)
	if err != nil {
		return nil, err
	}
	return &faultyConn{c.(sqliteConn), d}, nil
}

func (c *faultyConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx, err := c.sqliteConn.BeginTx(ctx, opts)
	return faultyTx{tx, c.driver}, err
}

func (c *faultyConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if c.driver.execs != nil {
		c.driver.execs(query)
	}
	return c.sqliteConn.ExecContext(ctx, query, args)
}

func (t faultyTx) Commit() error { return t.driver.commits(t.Tx) }

// A commit fails, and nobody knows whether it was made. What the client hears is true.
func TestOneCommitInDoubt(t *testing.T) {
	lost := errors.New("disk I/O error")
	faulty := &faultyDriver{Driver: &sqlite.Driver{}, commits: driver.Tx.Commit}
	sql.Register("sqlite that fails", faulty)
	sqlitestore.UseDriver("sqlite that fails")
	t.Cleanup(func() { sqlitestore.UseDriver("sqlite") })
	for _, joins := range []bool{false, true} {
		for _, made := range []bool{false, true} {
			armed := false
			s := inOneCommit(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
				if joins {
					charge(s, w, r)
				}
				armed = true
				w.WriteHeader(http.StatusCreated)
			})
			faulty.commits = func(tx driver.Tx) error {
				if !armed {
					return tx.Commit()
				}
				armed = false
				if made {
					_ = tx.Commit()
				} else {
					_ = tx.Rollback()
				}
				return lost
			}
			status := http.StatusCreated
			if joins && !made {
				status = http.StatusServiceUnavailable
			}
			require.Equal(t, status, s.Do(t, guardtest.Call{Key: "k"}).Status, "joins %v, made %v", joins, made)
			require.False(t, armed)
			faulty.commits = driver.Tx.Commit
			require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
			require.Equal(t, map[bool]int{true: 1}[joins], s.rows(t))
			require.Equal(t, 1, s.recorded(t))
		}
	}
}

// The program knows of something else that may have happened: nobody runs between the rollback and the record that says so.
func TestOneCommitOfUnknownOutcomeFreesNoKey(t *testing.T) {
	for _, recovery := range []idempotency.Recovery{idempotency.Hold, idempotency.Rerun} {
		var other *sqlitestore.Store
		var claimers sync.WaitGroup
		s := inOneCommit(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
			name := intent.Key(guardtest.Op(r.Context()).Key()).Name()
			claimers.Go(func() {
				for {
					rec, err := other.Claim(t.Context(), name, mayBeLost())
					if err == nil && rec.Mine && (recovery == idempotency.Hold || rec.Attempt == 1) {
						t.Errorf("attempt %d runs beside the first", rec.Attempt)
					}
					if t.Context().Err() != nil || err == nil && (rec.Mine || rec.State == store.Held || rec.State == store.Released) {
						return
					}
				}
			})
			charge(s, w, r)
			guardtest.Op(r.Context()).SetOutcome(idempotency.Unknown)
		}, idempotency.WithRecovery(recovery))
		other = open(t, s.path, sqlitestore.WithOneCommit())
		for n := range 100 {
			require.NotEqual(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: fmt.Sprint(n)}).Status)
		}
		claimers.Wait()
	}
}
