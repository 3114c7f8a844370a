package txtest

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
)

// This file is about runs that lose their claim, their store or their client, and about Do.

// down fails all calls of the store, and those of its database too.
func (s *shop) down() {
	s.store.Fail(guardtest.Refuse)
	s.store.On("step", guardtest.Always(guardtest.Refuse))
}

// The reply of the commit is lost, and the store is away. Nobody knows, and nobody is told that
// they do. The key is the same, so the retry learns it.
func TestCommitInDoubtIsNotAnswered(t *testing.T) {
	for name, fault := range map[string]guardtest.Fault{"committed": guardtest.LoseReply, "not committed": guardtest.Refuse} {
		for _, outage := range []time.Duration{10 * time.Second, time.Hour} {
			guardtest.Bubble(t, name+" "+outage.String(), func(t *testing.T) {
				var s *shop
				s = newShop(t, func(store *guardtest.TxStore, w http.ResponseWriter, r *http.Request) {
					charge(store, w, r)
					s.down()
				}, idempotency.WithRecovery(idempotency.Hold))
				s.store.On("commit", guardtest.First(1, fault))
				first := s.Do(t, guardtest.Call{Key: "k"})
				guardtest.RequireProblem(t, first, http.StatusServiceUnavailable, problem.NoAnswer)
				require.Equal(t, 1, s.events.Count(event.RecordingDelayed))
				time.Sleep(outage)
				s.store.Heal()
				time.Sleep(time.Minute)
				last := s.Do(t, guardtest.Call{Key: "k"})
				require.Equal(t, http.StatusCreated, last.Status)
				require.Equal(t, name == "committed", last.Replayed())
				require.Len(t, s.store.Rows(), 1)
				require.Zero(t, s.events.Count(event.Held))
				require.Zero(t, s.events.Count(event.Overtaken))
			})
		}
	}
}

// A commit in doubt is looked up while the client waits.
func TestCommitInDoubtIsLookedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t, charge)
		s.store.On("commit", guardtest.First(1, guardtest.LoseReply))
		first := s.Do(t, guardtest.Call{Key: "k"})
		require.Equal(t, http.StatusCreated, first.Status)
		require.False(t, first.Replayed(), "it is the answer of this run")
		run := s.events.All()[slices.Index(s.events.Kinds(), event.Run)]
		require.Equal(t, idempotency.Final, run.Outcome)
		require.Zero(t, s.events.Count(event.LeaseLost))
		guardtest.RequireReplay(t, first, s.Do(t, guardtest.Call{Key: "k"}))
	})
}

// A run that has lost its lease refuses, perhaps because of that. Its client is not told that it was
// refused for good: nothing is left of the run, and the next one may succeed.
func TestRefusalOfAStoppedRunIsRolledBack(t *testing.T) {
	guardtest.EachInBubble(t, map[string]idempotency.Outcome{"by its status": 0, "by its own word": idempotency.NotExecuted}, func(t *testing.T, word idempotency.Outcome) {
		s := newShop(t, func(s *guardtest.TxStore, w http.ResponseWriter, r *http.Request) {
			err := s.InTx(r.Context(), func(tx *guardtest.Tx) error {
				<-r.Context().Done()
				return errors.Join(insert(tx), r.Context().Err())
			})
			if op, _ := idempotency.FromContext(r.Context()); word != 0 {
				op.SetOutcome(word)
			}
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		}, idempotency.WithRecovery(idempotency.Hold))
		s.store.On("renew", guardtest.Always(guardtest.Refuse))
		got := s.Do(t, guardtest.Call{Key: "k"})
		if word != 0 {
			require.Equal(t, http.StatusUnprocessableEntity, got.Status)
		} else {
			guardtest.RequireProblem(t, got, http.StatusServiceUnavailable, problem.RolledBack)
		}
		require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
		require.Len(t, s.store.Rows(), 1)
	})
}

// Another run takes the key over. Whatever the first one did is rolled back, and its client is
// told what the other has answered, or that it is in flight.
func TestOvertakenRunIsRolledBack(t *testing.T) {
	guardtest.EachInBubble(t, map[string]time.Duration{"the other has ended": 0, "the other is in flight": time.Hour}, func(t *testing.T, second time.Duration) {
		proceed := make(chan struct{})
		s := newShop(t, func(s *guardtest.TxStore, w http.ResponseWriter, r *http.Request) {
			<-proceed
			charge(s, w, r)
		})
		other := guardtest.NewGuard(t, s.store, idempotency.WithTransaction(true))
		server := guardtest.ServeRecorder(t, other.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(second)
			charge(s.store, w, r)
		})))
		s.store.On("renew", guardtest.Always(guardtest.Refuse))
		first := s.Start(t, guardtest.Call{Key: "k"})
		time.Sleep(2 * guardtest.LeaseTime)
		s.store.Heal()
		again := server.Start(t, guardtest.Call{Key: "k"})
		close(proceed)
		got := <-first
		if second > 0 {
			guardtest.RequireProblem(t, got, http.StatusConflict, problem.InFlight)
			require.Empty(t, s.store.Rows())
		} else {
			require.True(t, got.Replayed())
		}
		require.Equal(t, http.StatusCreated, (<-again).Status)
		require.Len(t, s.store.Rows(), 1)
		require.Equal(t, 1, s.events.Count(event.Overtaken))
	})
}

// A handler that is told to stop and says nothing has done nothing.
func TestStoppedRunIsToldToBeUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t, func(s *guardtest.TxStore, _ http.ResponseWriter, r *http.Request) {
			_ = s.InTx(r.Context(), func(tx *guardtest.Tx) error {
				<-r.Context().Done()
				return errors.Join(insert(tx), context.Cause(r.Context()))
			})
		}, idempotency.WithRecovery(idempotency.Hold))
		s.store.On("renew", guardtest.Always(guardtest.Refuse))
		guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k"}), http.StatusServiceUnavailable, problem.RolledBack)
		s.store.Heal()
		require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
		require.Len(t, s.store.Rows(), 1)
	})
}

// The client hangs up while the run is in its transaction. It finds the answer when it is back.
func TestClientThatHangsUpFindsItsAnswer(t *testing.T) {
	ctx, hangUp := context.WithCancel(t.Context())
	s := newShop(t, func(s *guardtest.TxStore, w http.ResponseWriter, r *http.Request) {
		hangUp()
		charge(s, w, r)
	})
	_, _ = s.Try(ctx, guardtest.Call{Key: "k"})
	require.Len(t, s.store.Rows(), 1)
	require.True(t, s.Do(t, guardtest.Call{Key: "k"}).Replayed())
}

// A process dies in its transaction. Nothing is left of it, so the key is taken over under Hold
// too.
func TestDeadRunIsTakenOverUnderHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *shop
		s = newShop(t, func(store *guardtest.TxStore, w http.ResponseWriter, r *http.Request) {
			charge(store, w, r)
			s.down()
		}, idempotency.WithRecovery(idempotency.Hold))
		s.store.On("commit", guardtest.Always(guardtest.Refuse))
		s.Do(t, guardtest.Call{Key: "k"})
		require.Error(t, s.guard.Shutdown(guardtest.Shortly(t)))
		s.store.Heal()
		s.store.On("commit", nil)
		next := guardtest.ServeRecorder(t, guardtest.NewGuard(t, s.store, idempotency.WithTransaction(true), idempotency.WithRecovery(idempotency.Hold)).Handler(s.runs))
		time.Sleep(2 * guardtest.LeaseTime)
		require.Equal(t, http.StatusCreated, next.Do(t, guardtest.Call{Key: "k"}).Status)
		require.Len(t, s.store.Rows(), 1)
	})
}

// What a step did stays when the transaction is rolled back, and no client is told that nothing
// has happened. What the program calls unknown is unknown.
func TestStepOutlivesARollback(t *testing.T) {
	type row struct {
		status int
		set    idempotency.Outcome
		code   problem.Code
		mark   problem.Code
	}
	guardtest.EachInBubble(t, map[string]row{
		"the commit fails":       {status: 201, code: problem.NoAnswer},
		"a refusal":              {status: 429, mark: problem.NoAnswer},
		"an error":               {status: 500},
		"unknown to the program": {status: 500, set: idempotency.Unknown},
	}, func(t *testing.T, c row) {
		paid := 0
		s := newShop(t, nil, idempotency.WithRecovery(idempotency.Hold))
		s.runs.Handler = func(w http.ResponseWriter, r *http.Request, run int64) {
			_, err := idempotency.Step(r.Context(), "pay", func(context.Context) (int, error) { paid++; return paid, nil })
			require.NoError(t, err)
			if op, _ := idempotency.FromContext(r.Context()); run == 1 {
				op.SetOutcome(c.set)
			}
			if run == 1 && c.status != 201 {
				w.WriteHeader(c.status)
				return
			}
			charge(s.store, w, r)
		}
		s.store.On("commit", guardtest.First(1, guardtest.FailWith(constraint)))
		first := s.Do(t, guardtest.Call{Key: "k"})
		require.Equal(t, c.code, first.Problem.Code)
		require.Equal(t, string(cmp.Or(c.code, c.mark)), first.Header.Get(problem.Header))
		if c.set == idempotency.Unknown {
			guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k"}), http.StatusConflict, problem.OutcomeUnknown)
			return
		}
		s.store.Heal()
		s.store.On("commit", nil)
		require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
		require.Equal(t, 1, paid)
		require.Len(t, s.store.Rows(), 1)
	})
}

// Do commits in the same way, and returns a value only if it was committed.
func TestDoCommitsItsValueWithTheRows(t *testing.T) {
	key := idempotency.Key{Scope: "acme", Value: "k"}
	type row struct {
		fault guardtest.Fault
		away  bool
		want  error
		rows  int
	}
	guardtest.EachInBubble(t, map[string]row{
		"commits":                {rows: 1},
		"conflicts":              {fault: guardtest.FailWith(conflict), want: conflict},
		"the reply is lost":      {fault: guardtest.LoseReply, rows: 1},
		"the commit is lost":     {fault: guardtest.Refuse, want: guardtest.ErrDown},
		"in doubt, committed":    {fault: guardtest.LoseReply, away: true, want: idempotency.ErrCommitUnknown, rows: 1},
		"in doubt, not commited": {fault: guardtest.Refuse, away: true, want: idempotency.ErrCommitUnknown},
	}, func(t *testing.T, c row) {
		s := newShop(t, nil)
		if c.fault != nil {
			s.store.On("commit", guardtest.First(1, c.fault))
		}
		pay := func(ctx context.Context) (string, error) {
			err := s.store.InTx(ctx, insert)
			if c.away && s.store.Count("commit") == 0 {
				s.down()
			}
			return "paid", err
		}
		value, _, err := idempotency.Do(t.Context(), s.guard, key, pay)
		require.ErrorIs(t, err, c.want)
		require.Equal(t, err == nil, value == "paid")
		require.Len(t, s.store.Rows(), c.rows)
		s.store.Heal()
		time.Sleep(time.Minute)
		value, result, err := idempotency.Do(t.Context(), s.guard, key, pay)
		require.NoError(t, err)
		require.Equal(t, "paid", value)
		require.Equal(t, c.rows == 1, result.Replayed)
		require.Len(t, s.store.Rows(), 1)
	})
	t.Run("a permanent error keeps the rows", func(t *testing.T) {
		s := newShop(t, nil)
		for range 2 {
			_, _, err := idempotency.Do(t.Context(), s.guard, key, func(ctx context.Context) (int, error) {
				require.NoError(t, s.store.InTx(ctx, insert))
				return 0, idempotency.Permanent(errDeclined)
			})
			require.ErrorContains(t, err, "declined")
			require.Len(t, s.store.Rows(), 1)
		}
	})
	t.Run("an error rolls back", func(t *testing.T) {
		s := newShop(t, nil)
		for range 2 {
			_, _, err := idempotency.Do(t.Context(), s.guard, key, func(ctx context.Context) (int, error) {
				require.NoError(t, s.store.InTx(ctx, insert))
				return 0, errDeclined
			})
			require.ErrorIs(t, err, errDeclined)
			require.Empty(t, s.store.Rows())
		}
	})
}

// An answer that cannot be sealed is not committed either.
func TestUnsealedAnswerIsRolledBack(t *testing.T) {
	s := newShop(t, charge, idempotency.WithSealer(guardtest.FailingSealer{}))
	guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k"}), http.StatusServiceUnavailable, problem.RolledBack)
	require.Empty(t, s.store.Rows())
}

// Whatever is not committed is rolled back, so that it does not keep a connection.
func TestRunThatIsNotCommittedIsRolledBack(t *testing.T) {
	for name, w := range ways {
		t.Run(name, func(t *testing.T) {
			s := newShop(t, w.run)
			_, _ = s.TryAlone(t.Context(), guardtest.Call{Key: "k"})
			givesUp := strings.Contains(name, "gives up")          // it has rolled back itself
			committed := w.rows == 1 && name != "commits it alone" // which only frees its connection
			require.Equal(t, !committed && !givesUp, s.store.Count("rollback") == 1)
		})
	}
}

// What a handler has committed past the guard has happened, so a failure after it is unknown.
func TestCommittedAloneHasHappened(t *testing.T) {
	for name, fail := range map[string]func(w http.ResponseWriter){
		"error": func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) },
		"panic": func(http.ResponseWriter) { panic(guardtest.Boom) },
		"large": func(w http.ResponseWriter) { _, _ = w.Write(make([]byte, 3000)) },
		// A status, a rule and a word that say that nothing was done are wrong here.
		"busy": func(w http.ResponseWriter) { w.WriteHeader(http.StatusTooManyRequests) },
		"rule": func(w http.ResponseWriter) { w.WriteHeader(http.StatusConflict) },
		"word": func(w http.ResponseWriter) { w.WriteHeader(http.StatusCreated) },
	} {
		t.Run(name, func(t *testing.T) {
			opts := []idempotency.Option{idempotency.WithRecovery(idempotency.Hold)}
			if name == "rule" {
				opts = append(opts, idempotency.WithOutcome(func(int, http.Header) idempotency.Outcome { return idempotency.NotExecuted }))
			}
			s := newShop(t, func(s *guardtest.TxStore, w http.ResponseWriter, r *http.Request) {
				if op, _ := idempotency.FromContext(r.Context()); name == "word" {
					op.SetOutcome(idempotency.NotExecuted)
				}
				tx, err := s.Begin(r.Context())
				require.NoError(t, err)
				require.NoError(t, errors.Join(insert(tx), tx.CommitAlone()))
				fail(w)
			}, opts...)
			_, _ = s.TryAlone(t.Context(), guardtest.Call{Key: "k"})
			want := problem.OutcomeUnknown
			if name == "large" {
				want = problem.ResponseNotKept
			}
			guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k"}), http.StatusConflict, want)
			require.Len(t, s.store.Rows(), 1)
			require.Equal(t, 1, s.events.Count(event.CommittedAlone))
		})
	}
}

// A gateway in front of a service passes the refusal on, and lets the retry through.
func TestGatewayRunsAgainWhatWasUndone(t *testing.T) {
	for _, refused := range []error{conflict, constraint} {
		s := newShop(t, charge)
		s.store.On("commit", guardtest.First(1, guardtest.FailWith(refused)))
		gateway := guardtest.ServeRecorder(t, guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithRecovery(idempotency.Hold)).
			Handler(s.guard.Handler(s.runs)))
		first := gateway.Do(t, guardtest.Call{Key: "k"})
		require.True(t, first.Problem.Code.Undone())
		require.Equal(t, http.StatusCreated, gateway.Do(t, guardtest.Call{Key: "k"}).Status)
		require.Len(t, s.store.Rows(), 1)
	}
}

// A transaction that panics while it ends, as a driver might, has failed like one whose reply is lost:
// the store is asked what has become of it.
func TestTransactionThatPanicsIsLookedUp(t *testing.T) {
	for op, want := range map[string]int{"commit": http.StatusServiceUnavailable, "rollback": http.StatusInternalServerError} {
		t.Run(op, func(t *testing.T) {
			s := newShop(t, ways[map[string]string{"commit": "commits", "rollback": "commits and fails"}[op]].run)
			s.store.On(op, guardtest.First(1, func(context.Context, func() error) error { panic(guardtest.Boom) }))
			require.Equal(t, want, s.Do(t, guardtest.Call{Key: "k"}).Status)
			require.Empty(t, s.store.Rows())
			require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
			require.Len(t, s.store.Rows(), 1)
		})
	}
}

// A store that refuses a claim because the caller has its writer is not away: the function does not
// run unprotected, and nobody waits.
func TestDoInsideATransactionIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		store := guardtest.NewTxStore()
		store.On("claim", guardtest.Always(guardtest.FailWith(idempotency.ErrTransactionOpen)))
		g := guardtest.NewGuard(t, store, idempotency.WithFailOpen(true))
		_, _, err := idempotency.Do(t.Context(), g, idempotency.Key{Scope: "acme", Value: "k"}, func(context.Context) (int, error) {
			t.Error("it has run")
			return 0, nil
		})
		require.ErrorIs(t, err, idempotency.ErrTransactionOpen)
		synctest.Wait()
		require.Zero(t, time.Since(start))
		require.Equal(t, 1, store.Count("claim"))
		require.Zero(t, store.Count("release"), "there is no claim to give back")
	})
}

// The handler has committed by itself, and its answer is too large: its client learns where the
// result is, as a retry does.
func TestClientOfALargeAnswerLearnsItsLocation(t *testing.T) {
	s := newShop(t, func(s *guardtest.TxStore, w http.ResponseWriter, r *http.Request) {
		tx, err := s.Begin(r.Context())
		require.NoError(t, err)
		require.NoError(t, errors.Join(insert(tx), tx.CommitAlone()))
		w.Header().Set("Location", "/charges/7")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(make([]byte, 3000))
	})
	for range 2 {
		got := s.Do(t, guardtest.Call{Key: "k"})
		guardtest.RequireProblem(t, got, http.StatusConflict, problem.ResponseNotKept)
		require.Equal(t, http.StatusCreated, got.Problem.OriginalStatus)
		require.Equal(t, "/charges/7", got.Problem.OriginalLocation)
	}
}
