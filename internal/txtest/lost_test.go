package txtest

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// This file is about claims that the store may forget in a crash.

// Before a run does anything that would outlive its transaction, the store keeps the claim.
func TestClaimThatMayBeLostIsKept(t *testing.T) {
	value := func(context.Context) (int, error) { return 7, nil }
	type counts struct{ renewals, steps int }
	for name, c := range map[string]struct {
		do   func(ctx context.Context, s *guardtest.TxStore, note func()) error
		want counts // when note is called, which is where the run has something in hand
	}{
		"a transaction": {func(_ context.Context, _ *guardtest.TxStore, note func()) error { note(); return nil }, counts{}},
		"an attempt": {func(ctx context.Context, _ *guardtest.TxStore, note func()) error {
			_ = guardtest.Op(ctx).Attempt()
			note()
			return nil
		}, counts{}},
		"an ID": {func(ctx context.Context, _ *guardtest.TxStore, note func()) error {
			_ = guardtest.Op(ctx).ID()
			note()
			return nil
		}, counts{renewals: 1}},
		"a derived key": {func(ctx context.Context, _ *guardtest.TxStore, note func()) error {
			_ = idempotency.DeriveKey(ctx, "mail")
			note()
			return nil
		}, counts{renewals: 1}},
		"a step": {func(ctx context.Context, _ *guardtest.TxStore, note func()) error {
			_, err := idempotency.Step(ctx, "mail", func(ctx context.Context) (int, error) { note(); return value(ctx) })
			return err
		}, counts{renewals: 1}},
		"a step with a transaction": {func(ctx context.Context, s *guardtest.TxStore, note func()) error {
			_, err := guardtest.StepTx(ctx, s, "mail", func(ctx context.Context, _ *guardtest.Tx) (int, error) { note(); return value(ctx) })
			return err
		}, counts{renewals: 1}},
		"a step at most once, which is marked": {func(ctx context.Context, _ *guardtest.TxStore, note func()) error {
			_, err := idempotency.Step(ctx, "mail", func(ctx context.Context) (int, error) {
				_ = idempotency.DeriveKey(ctx, "mail")
				note()
				return value(ctx)
			}, idempotency.AtMostOnce())
			return err
		}, counts{steps: 1}},
		"once for all": {func(ctx context.Context, _ *guardtest.TxStore, note func()) error {
			op, _ := idempotency.FromContext(ctx)
			_, _ = op.ID(), op.ID()
			_, err := idempotency.Step(ctx, "mail", func(ctx context.Context) (int, error) { note(); return value(ctx) })
			return err
		}, counts{renewals: 1}},
	} {
		for _, forgets := range []bool{true, false} {
			t.Run(name+map[bool]string{false: ", of a store that forgets nothing"}[forgets], func(t *testing.T) {
				var seen []counts
				s := newShop(t, func(s *guardtest.TxStore, w http.ResponseWriter, r *http.Request) {
					require.NoError(t, c.do(r.Context(), s, func() {
						seen = append(seen, counts{s.Count("renew"), s.Count("step")})
					}))
					charge(s, w, r)
				})
				s.store.Forgets = forgets
				require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
				want := c.want
				if !forgets {
					want.renewals = 0
				}
				require.Equal(t, []counts{want}, seen)
			})
		}
	}
}

// Where effects may outlive the run, no claim may be lost.
func TestClaimIsNotLostWithoutATransaction(t *testing.T) {
	s := newShop(t, func(s *guardtest.TxStore, w http.ResponseWriter, r *http.Request) {
		_ = guardtest.Op(r.Context()).ID()
		w.WriteHeader(http.StatusCreated)
	}, idempotency.WithTransaction(false))
	s.store.Forgets = true
	require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
	require.Zero(t, s.store.Count("renew"))
}

// If the store does not answer for long, the run is told that its claim is not sure, and no step
// begins. A single failure does not matter.
func TestClaimThatCannotBeKept(t *testing.T) {
	type row struct {
		fault func(int) guardtest.Fault
		want  error
	}
	guardtest.EachInBubble(t, map[string]row{
		"fails once":         {guardtest.First(1, guardtest.Refuse), nil},
		"its reply is lost":  {guardtest.First(1, guardtest.LoseReply), nil},
		"is away":            {guardtest.Always(guardtest.Refuse), idempotency.ErrLeaseLost},
		"hangs":              {guardtest.Always(guardtest.Hang), idempotency.ErrLeaseLost},
		"has another's":      {guardtest.Always(guardtest.FailWith(store.ErrNotOwner)), idempotency.ErrLeaseLost},
		"does what it ought": {guardtest.Always(nil), nil},
	}, func(t *testing.T, c row) {
		steps := 0
		s := newShop(t, func(s *guardtest.TxStore, w http.ResponseWriter, r *http.Request) {
			op, _ := idempotency.FromContext(r.Context())
			_ = op.ID()
			require.Equal(t, c.want == nil, op.Valid())
			require.ErrorIs(t, context.Cause(r.Context()), c.want)
			_, err := idempotency.Step(r.Context(), "mail", func(context.Context) (int, error) { steps++; return 0, nil })
			require.ErrorIs(t, err, c.want)
			s.Heal()
			if err != nil {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			charge(s, w, r)
		})
		s.store.Forgets = true
		s.store.On("renew", c.fault)
		s.Do(t, guardtest.Call{Key: "k"})
		require.Equal(t, c.want == nil, steps == 1)
		require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
		require.Len(t, s.store.Rows(), 1)
	})
}

// A run whose claim was lost is rolled back. If another has run since, its answer is that of both.
func TestLostClaimIsRolledBack(t *testing.T) {
	for _, again := range []bool{false, true} {
		var s *shop
		s = newShop(t, func(st *guardtest.TxStore, w http.ResponseWriter, r *http.Request) {
			st.Replace(idempotency.NewMemoryStore()) // after the crash
			if again {
				require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
			}
			charge(st, w, r)
		}, idempotency.WithRecovery(idempotency.Hold))
		s.store.Forgets = true
		got := s.Do(t, guardtest.Call{Key: "k"})
		s.requireTruth(t, got, nil)
		if again {
			require.Equal(t, http.StatusCreated, got.Status)
		} else {
			guardtest.RequireProblem(t, got, http.StatusServiceUnavailable, problem.RolledBack)
			require.Empty(t, s.store.Rows())
		}
		require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
		require.Len(t, s.store.Rows(), 1)
	}
}

// A refusal of a run whose claim was lost denies nothing that another has done since, however badly the store takes it.
func TestLostClaimDeniesNothing(t *testing.T) {
	type row struct {
		fault func(int) guardtest.Fault
		want  int
	}
	guardtest.EachInBubble(t, map[string]row{
		"taken":        {guardtest.Always(nil), http.StatusCreated},
		"fails once":   {guardtest.First(1, guardtest.Refuse), http.StatusCreated},
		"is cut once":  {guardtest.First(1, guardtest.LoseReply), http.StatusCreated},
		"fails always": {guardtest.Always(guardtest.Refuse), http.StatusConflict},
	}, func(t *testing.T, c row) {
		var s *shop
		runs := 0
		s = newShop(t, func(st *guardtest.TxStore, w http.ResponseWriter, r *http.Request) {
			if runs++; runs > 1 {
				charge(st, w, r)
				return
			}
			st.Replace(idempotency.NewMemoryStore()) // after the crash
			require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
			guardtest.Op(r.Context()).SetOutcome(idempotency.NotExecuted)
			w.WriteHeader(http.StatusUnprocessableEntity)
		}, idempotency.WithRecovery(idempotency.Hold))
		s.store.Forgets = true
		s.store.On("release", c.fault)
		got := s.Do(t, guardtest.Call{Key: "k"})
		require.Equal(t, c.want, got.Status, got.Body)
		require.Len(t, s.store.Rows(), 1)
		s.store.Heal()
		synctest.Wait()
		require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
	})
}

// The reply of a commit is lost. Before the run has looked, its record is gone, and another request
// has the key. That record says nothing about the commit, so neither does the answer.
func TestCommitInDoubtBesideAnotherPayload(t *testing.T) {
	guardtest.Each(t, map[string]guardtest.Fault{"committed": guardtest.LoseReply, "not committed": guardtest.Refuse}, func(t *testing.T, fault guardtest.Fault) {
		s := newShop(t, charge, idempotency.WithRecovery(idempotency.Hold))
		s.store.On("commit", guardtest.First(1, func(ctx context.Context, proceed func() error) error {
			err := fault(ctx, proceed)
			s.store.Replace(idempotency.NewMemoryStore())
			require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k", Body: "other"}).Status)
			return err
		}))
		guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k"}), http.StatusServiceUnavailable, problem.NoAnswer)
		run := s.events.All()[slices.Index(s.events.Kinds(), event.Overtaken)+1]
		require.Equal(t, event.Run, run.Kind)
		require.Equal(t, idempotency.Unknown, run.Outcome)
		require.False(t, run.Held, "nothing holds the key")
		require.True(t, s.Do(t, guardtest.Call{Key: "k", Body: "other"}).Replayed())
	})
}

// The commit of the last attempt gets no reply. If its record is still there, that tells that there was no commit; in a record
// that was made anew, it is why the key is held.
func TestCommitInDoubtIsWhyAKeyIsHeld(t *testing.T) {
	guardtest.Each(t, map[string]event.Cause{"the record is there": event.CauseAttempts, "the record is gone": event.CauseCommit}, func(t *testing.T, want event.Cause) {
		s := newShop(t, charge, idempotency.WithRecovery(idempotency.HoldAfter(1)))
		s.store.On("commit", guardtest.First(1, func(context.Context, func() error) error {
			if want == event.CauseCommit {
				s.store.Replace(idempotency.NewMemoryStore())
			}
			return guardtest.ErrDown
		}))
		s.Do(t, guardtest.Call{Key: "k"})
		info := guardtest.Lookup(t, guardtest.NewGuard(t, s.store.Behind), guardtest.HeldKey)
		require.Equal(t, store.Held, info.State)
		require.Equal(t, want, info.Cause)
	})
}
