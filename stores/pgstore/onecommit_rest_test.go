package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
	"example.com/idempotency/stores/pgstore"
	"example.com/idempotency/stores/pgstore/internal/pgtest"
)

// What a handler does after its transaction, while its claim is no record or was none.

// beside returns a handler like that of another process, whose store has the option too.
func (s *shop) beside(t *testing.T, h http.HandlerFunc, level string) *guardtest.Server {
	return guardtest.ServeRecorder(nil, guardtest.NewGuard(t, s.another(t, pgstore.WithOneCommit(atLevel(level).IsoLevel)),
		idempotency.WithTransaction(true)).Handler(h))
}

// keepsItsKey checks a run whose transaction fails, which begins with whatever the function does: nobody runs beside
// the rest of its handler, in this process or in another, and the next run charges. The function may ask for a
// duplicate, too.
func keepsItsKey(t *testing.T, fails func(t *testing.T, s *shop, r *http.Request, inTx way, level string, duplicate func()) error) {
	onEachWholeWay(t, func(t *testing.T, inTx way, level string) {
		var attempts []int
		var other *guardtest.Server
		s := inOneCommit(t, level, func(s *shop, w http.ResponseWriter, r *http.Request) {
			op, _ := idempotency.FromContext(r.Context())
			if attempts = append(attempts, op.Attempt()); len(attempts) > 1 {
				charge(inTx, level)(s, w, r)
				return
			}
			duplicate := func() {
				for _, server := range []*guardtest.Server{s.Server, other} {
					guardtest.RequireProblem(t, server.Do(t, guardtest.Call{Key: "k"}), http.StatusConflict, problem.InFlight)
				}
			}
			require.Error(t, fails(t, s, r, inTx, level, duplicate))
			duplicate()
			require.True(t, op.Valid())
			w.WriteHeader(http.StatusInternalServerError)
		}, idempotency.WithRecovery(idempotency.Rerun))
		other = s.beside(t, func(http.ResponseWriter, *http.Request) { t.Error("it runs beside") }, level)
		require.Equal(t, http.StatusInternalServerError, s.Do(t, guardtest.Call{Key: "k"}).Status)
		require.Zero(t, s.rows(t, "k"))
		require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
		require.Equal(t, []int{1, 2}, attempts)
		require.Equal(t, 1, s.rows(t, "k"))
		require.Eventually(t, func() bool { return s.pool.Stat().AcquiredConns() == 0 }, guardtest.Patience, time.Millisecond,
			"what a statement has left is put back behind the answer")
	})
}

// A run that has given its transaction up keeps its key.
func TestOneCommitKeepsItsKeyAfterARollback(t *testing.T) {
	keepsItsKey(t, func(t *testing.T, s *shop, r *http.Request, inTx way, level string, _ func()) error {
		return inTx(s, r.Context(), level, func(exec execer) error {
			require.NoError(t, s.insert(r.Context(), exec))
			require.Zero(t, s.recorded(t))
			return errors.New("declined")
		})
	})
}

// PostgreSQL ends a transaction at the statement that fails, and frees its locks. The key is not among them: nobody runs
// beside the rest of the function either.
func TestOneCommitKeepsItsKeyAfterAFailedStatement(t *testing.T) {
	keepsItsKey(t, func(t *testing.T, s *shop, r *http.Request, inTx way, level string, duplicate func()) error {
		return inTx(s, r.Context(), level, func(exec execer) error {
			require.NoError(t, s.insert(r.Context(), exec))
			defer duplicate()
			return exec(r.Context(), "SELECT 1/0")
		})
	})
}

// The driver closes the connection of a statement whose context ends. PostgreSQL frees the key a moment later, and the
// run takes it back.
func TestOneCommitKeepsItsKeyAfterATimeout(t *testing.T) {
	for name, whole := range map[string]bool{"of a statement": false, "of the function": true} {
		t.Run(name, func(t *testing.T) {
			keepsItsKey(t, func(_ *testing.T, s *shop, r *http.Request, inTx way, level string, _ func()) error {
				outer := r.Context()
				short, cancel := context.WithTimeout(outer, 50*time.Millisecond)
				defer cancel()
				if whole {
					outer = short
				}
				return inTx(s, outer, level, func(exec execer) error { return exec(short, "SELECT pg_sleep(60)") })
			})
		})
	}
}

// A run whose connection is lost has lost its key. Whatever its handler says of that, what another one has recorded
// is the answer.
func TestOneCommitThatIsLostDeniesNothing(t *testing.T) {
	refusals := map[string]func(op *idempotency.Operation) int{
		"401": func(*idempotency.Operation) int { return http.StatusUnauthorized },
		"422": func(op *idempotency.Operation) int {
			op.SetOutcome(idempotency.NotExecuted)
			return http.StatusUnprocessableEntity
		},
		"503": func(*idempotency.Operation) int { return http.StatusServiceUnavailable },
	}
	for name, refuse := range refusals {
		for end, failed := range map[string]error{"success": nil, "error": errors.New("declined")} {
			onEachWholeWay(t, func(t *testing.T, inTx way, level string) {
				var other *guardtest.Server
				s := inOneCommit(t, level, func(s *shop, w http.ResponseWriter, r *http.Request) {
					_ = inTx(s, r.Context(), level, func(exec execer) error {
						require.NoError(t, s.insert(r.Context(), exec))
						s.endBackend(t)
						require.Equal(t, http.StatusCreated, other.Do(t, guardtest.Call{Key: "k"}).Status)
						return failed
					})
					w.WriteHeader(refuse(guardtest.Op(r.Context())))
				})
				other = s.beside(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }, level)
				reply := s.Do(t, guardtest.Call{Key: "k"})
				require.True(t, reply.Replayed(), "%s %s: %v", name, end, reply.Status)
				require.Equal(t, http.StatusCreated, reply.Status, name)
				require.Zero(t, s.rows(t, "k"))
				require.Zero(t, s.pool.Stat().AcquiredConns())
			})
		}
	}
}

// The other one is still running, and nobody sees its claim.
func TestOneCommitThatIsLostLeavesTheKeyToAnother(t *testing.T) {
	onEachWholeWay(t, func(t *testing.T, inTx way, level string) {
		began, goOn, replied := make(chan struct{}), make(chan struct{}), make(chan guardtest.Reply, 1)
		release := sync.OnceFunc(func() { close(goOn) })
		var other *guardtest.Server
		s := inOneCommit(t, level, func(s *shop, w http.ResponseWriter, r *http.Request) {
			require.Error(t, inTx(s, r.Context(), level, func(exec execer) error {
				require.NoError(t, s.insert(r.Context(), exec))
				s.endBackend(t)
				go func() { replied <- other.Do(t, guardtest.Call{Key: "k"}) }()
				<-began
				return errors.New("declined")
			}))
			guardtest.Op(r.Context()).SetOutcome(idempotency.NotExecuted)
			w.WriteHeader(http.StatusUnprocessableEntity)
		})
		other = s.beside(t, func(w http.ResponseWriter, _ *http.Request) {
			close(began)
			<-goOn
			w.WriteHeader(http.StatusCreated)
		}, level)
		t.Cleanup(release) // before the pool waits for the connection
		guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k"}), http.StatusConflict, problem.InFlight)
		release()
		require.Equal(t, http.StatusCreated, (<-replied).Status)
		require.True(t, s.Do(t, guardtest.Call{Key: "k"}).Replayed())
	})
}

// A store without the option does not look at the lock.
func TestOneCommitBesideARecordIsNotTheOwner(t *testing.T) {
	t.Parallel()
	pool := pgtest.Shared(t).Pool(t)
	s, table := newStore(t, pool, pgstore.WithOneCommit(""))
	without := openStore(t, pool, pgstore.WithTable(table))
	claim := mayBeLost()
	guardtest.Claim(t, s, "k", claim)
	joined, tx, err := s.JoinTx(t.Context(), "k", claim.Owner, pgx.TxOptions{})
	require.NoError(t, err)
	other := guardtest.Claim(t, without, "k", newClaim())
	require.True(t, other.Mine)
	require.NoError(t, tx.Commit(t.Context()))
	require.ErrorIs(t, joined.Complete(t.Context(), store.Completion{Status: http.StatusCreated, TTL: time.Hour}), store.ErrNotOwner)
}

// The program knows of something else that may have happened: nobody runs between the rollback and the record that says so.
func TestOneCommitOfUnknownOutcomeFreesNoKey(t *testing.T) {
	t.Parallel()
	for name, recovery := range map[string]idempotency.Recovery{"hold": idempotency.Hold, "rerun": idempotency.Rerun} {
		t.Run(name, func(t *testing.T) {
			onEachWholeWay(t, func(t *testing.T, inTx way, level string) {
				var other *pgstore.Store
				var claimers sync.WaitGroup
				ctx, done := context.WithCancel(t.Context())
				s := inOneCommit(t, level, func(s *shop, w http.ResponseWriter, r *http.Request) {
					name := intent.Key(guardtest.Op(r.Context()).Key()).Name()
					claimers.Go(func() {
						for ctx.Err() == nil {
							rec, err := other.Claim(ctx, name, mayBeLost())
							if err == nil && rec.Mine && (recovery == idempotency.Hold || rec.Attempt == 1) {
								t.Errorf("attempt %d runs beside the first", rec.Attempt)
							}
							if err == nil && (rec.Mine || rec.State == store.Held || rec.State == store.Released) {
								return
							}
						}
					})
					charge(inTx, level)(s, w, r)
					guardtest.Op(r.Context()).SetOutcome(idempotency.Unknown)
				}, idempotency.WithRecovery(recovery))
				other = s.another(t, pgstore.WithOneCommit(""))
				for n := range 5 {
					require.NotEqual(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: fmt.Sprint(n)}).Status)
				}
				time.AfterFunc(guardtest.Patience, done)
				claimers.Wait()
				done()
			})
		})
	}
}
