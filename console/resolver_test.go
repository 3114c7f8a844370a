package console

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/engine/note"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/store"
)

// This file asks resolvers, and looks at what cannot be read.

// A resolver is asked, and what it says is shown and settles nothing.
func TestResolverIsAsked(t *testing.T) {
	var says idempotency.Resolution
	var fails error
	s := serve(t, hold, idempotency.WithSealer(guardtest.NewSealer(t, 1)), idempotency.WithKeptKeys(true))
	resolver := idempotency.WithResolver(func(_ context.Context, i idempotency.RecordInfo) (idempotency.Resolution, error) {
		require.Equal(t, idempotency.Key{Scope: "alice", Value: "payout-1"}, i.Key)
		return says, fails
	})
	s.guard.With(idempotency.WithRoute("POST /payouts"), resolver)
	s.post("POST /payouts", "payout-1", broken)
	s.post("POST /orders", "order-77", broken)
	i := s.look("payout-1")
	b := s.as(ada)
	require.Contains(t, b.get("/records/"+i.Record).Body.String(), "Ask the resolver")
	require.NotContains(t, b.get("/records/"+s.look("order-77").Record).Body.String(), "Ask the resolver")
	for _, c := range []struct {
		name   string
		says   idempotency.Resolution
		fails  error
		status int
		page   string
	}{
		{"word-final", idempotency.Resolution{Outcome: idempotency.Final, Status: 201, Body: []byte("{}"), Decision: idempotency.Decision{Reason: "the bank has ch_1"}}, nil, 200, "the bank has ch_1"},
		{"word-not-executed", idempotency.Resolution{Outcome: idempotency.NotExecuted}, nil, 200, "<strong>not-executed</strong>"},
		{"word-unknown", idempotency.Resolution{Outcome: idempotency.Unknown}, nil, 200, "<strong>unknown</strong>"},
		{"word-error", idempotency.Resolution{}, errors.New("the bank is closed"), 422, "the bank is closed"},
	} {
		says, fails = c.says, c.fails
		got := b.decide(i, "ask")
		require.Equal(t, c.status, got.Code, got.Body)
		require.Contains(t, got.Body.String(), c.page)
		requireGolden(t, c.name, b.json().decide(i, "ask").Body.String())
		require.Equal(t, i.Seen(), s.look("payout-1").Seen())
	}
	require.Equal(t, http.StatusOK, b.decide(i, "resume").Code)
	require.Equal(t, http.StatusConflict, b.decide(i, "ask").Code, "it is not held any more")
}

// A corruptStore cannot read its records.
type corruptStore struct {
	*idempotency.MemoryStore
	corrupt bool
}

func (s *corruptStore) Get(ctx context.Context, key string) (store.Record, error) {
	if s.corrupt {
		return store.Record{}, store.ErrCorrupt
	}
	return s.MemoryStore.Get(ctx, key)
}

func (s *corruptStore) Forget(ctx context.Context, key string, seen store.Seen) error {
	if seen.State != store.Corrupt {
		return store.ErrCorrupt
	}
	s.corrupt = false
	rec, err := s.MemoryStore.Get(ctx, key)
	if err != nil {
		return err
	}
	return s.MemoryStore.Forget(ctx, key, rec.Seen())
}

// A leavingStore is one whose client has gone when it is told a decision.
type leavingStore struct {
	*idempotency.MemoryStore
	leave context.CancelFunc
}

func (s *leavingStore) Resolve(ctx context.Context, key string, seen store.Seen, settled store.Settlement) error {
	s.leave()
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.MemoryStore.Resolve(ctx, key, seen, settled)
}

// A decision that has begun ends, although its browser is gone.
func TestBrowserThatLeaves(t *testing.T) {
	st := &leavingStore{MemoryStore: idempotency.NewMemoryStore()}
	s := serveOn(t, st)
	s.fill()
	b := s.as(ada)
	b.change = func(r *http.Request) {
		ctx, leave := context.WithCancel(r.Context())
		st.leave = leave
		*r = *r.WithContext(ctx)
	}
	require.Equal(t, http.StatusOK, b.decide(s.look("payout-1"), "resume").Code)
	require.Equal(t, store.Released, s.look("payout-1").State)
}

// A record that cannot be read is shown as such, and can only be forgotten by who has seen that.
func TestCorruptRecord(t *testing.T) {
	st := &corruptStore{MemoryStore: idempotency.NewMemoryStore()}
	s := serveOn(t, st)
	s.fill()
	i := s.look("payout-1")
	st.corrupt = true
	b := s.as(ada)
	page := b.get("/records/" + i.Record).Body.String()
	require.Contains(t, page, "The record cannot be read.")
	require.Contains(t, page, `value="corrupt/0/00000000000000000000000000000000"`)
	requireGolden(t, "corrupt", b.json().get("/records/"+i.Record).Body.String())
	list := b.get("/").Body.String()
	require.Contains(t, list, `<span class="state corrupt">`, "it is listed")
	require.Contains(t, list, "POST /payouts", "with what the list knows")
	require.Equal(t, http.StatusConflict, b.decide(i, "forget").Code)
	require.Equal(t, http.StatusConflict, b.decide(i, "resume").Code)
	require.Equal(t, http.StatusUnprocessableEntity, b.decide(i, "resume", "seen", store.Seen{State: store.Corrupt}.String()).Code)
	require.True(t, st.corrupt)
	require.Equal(t, http.StatusOK, b.decide(i, "forget", "seen", store.Seen{State: store.Corrupt}.String()).Code)
	require.Equal(t, http.StatusNotFound, b.get("/records/"+i.Record).Code)
}

// A store whose index and answers are elsewhere is shown and decided about like that in memory.
func TestRedis(t *testing.T) {
	guardtest.OnEachRedis(t, func(t *testing.T, st *idempotency.RedisStore, _ guardtest.RedisBackend) {
		s := serveOn(t, st, findable)
		s.fill()
		b := s.as(ada)
		require.Contains(t, b.get("/").Body.String(), "4 requests wait for a decision")
		require.Contains(t, b.get("/store").Body.String(), "redisstore.Store")
		require.Contains(t, b.get("/records/"+s.look("order-78").Record+"?answer=1").Body.String(), "4242")
		require.Equal(t, http.StatusOK, b.decide(s.look("payout-1"), "final", "status", "201").Code)
		require.Equal(t, http.StatusOK, b.decide(s.look("payout-2"), "forget").Code)
		require.Contains(t, b.get("/").Body.String(), "2 requests wait for a decision")
		names, _ := b.found("tenant", "alice")
		require.Len(t, names, 5)
		would := b.count("also_held", "1")
		require.Equal(t, 5, would.Erases())
		require.Equal(t, http.StatusOK, b.erase("tenant", "alice", "also_held", "1", "seen", would.Seen, "decision", "erase", "reason", "x").Code)
		require.Zero(t, s.left("alice"))
	})
}

// Where the run had other derived keys than the route has now, nobody asks under these, and nobody goes on under them.
func TestKeysThatAreDerivedOtherwise(t *testing.T) {
	s := serve(t, hold, idempotency.WithSealer(guardtest.NewSealer(t, 1)), idempotency.WithKeptKeys(true))
	s.post("POST /payouts", "payout-1", broken)
	s.guard.With(idempotency.WithRoute("POST /payouts"), idempotency.WithDerivation("eu", nil), idempotency.WithResolver(
		func(context.Context, idempotency.RecordInfo) (idempotency.Resolution, error) {
			require.Fail(t, "the resolver is asked")
			return idempotency.Resolution{}, nil
		}))
	i := s.look("payout-1")
	b := s.as(ada)
	page := b.get("/records/" + i.Record).Body.String()
	require.Contains(t, page, "<strong>Held</strong>: outcome unknown (500), <time")
	require.Contains(t, page, "under other derived keys")
	got := b.decide(i, "ask")
	require.Equal(t, http.StatusUnprocessableEntity, got.Code)
	require.Contains(t, got.Body.String(), "another WithDerivation")
	require.Equal(t, http.StatusUnprocessableEntity, b.decide(i, "resume").Code)
	require.Equal(t, i.Seen(), s.look("payout-1").Seen())
	require.Equal(t, http.StatusOK, b.decide(i, "not-executed").Code)
}

// A run that has not said why it left its key held has died, hung or lost the store. The list and the screen of the key say so.
func TestKeyWhoseRunHasNotSaidWhyItIsHeld(t *testing.T) {
	s := serve(t, hold)
	const record = "pabwdD-b40jYvm3_gRmUvjEiF06BVBZkFR9utCWVMVo"
	begun := note.Note{Started: time.Now()}
	_, err := s.store.Claim(t.Context(), record, store.Claim{
		Owner: store.Owner{1}, Hold: true, Lease: 1, Retention: time.Hour, Note: begun.AppendTo(nil), Label: "POST /payouts",
	})
	require.NoError(t, err)
	b := s.as(ada)
	require.Contains(t, b.get("/").Body.String(), `<span class="state held">lapsed</span>`)
	page := b.get("/records/" + record).Body.String()
	require.Contains(t, page, "<strong>Held</strong>: lapsed, when its lease had ended")
	require.Contains(t, page, "its process died, hung or lost the store")
}
