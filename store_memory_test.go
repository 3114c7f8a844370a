package idempotency_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
	"example.com/idempotency/store/storetest"
)

func TestMemoryStoreKeepsTheContract(t *testing.T) {
	storetest.Run(t, storetest.Harness{
		New: func(testing.TB) (idempotency.Store, func(time.Duration)) {
			return idempotency.NewMemoryStore(), time.Sleep
		},
		Bubble: synctest.Test,
	})
}

// A value that alone is larger than the store is refused, and changes nothing. The guard then
// records that the run has happened.
func TestMemoryStoreRefusesWhatNeverFits(t *testing.T) {
	ctx, st, key, c := t.Context(), idempotency.NewMemoryStore(idempotency.WithMaxBytes(10_000)), guardtest.MemoryKeys(1)[0], guardtest.MemoryClaim(0)
	guardtest.Claim(t, st, key, c)
	large := store.Completion{Answer: make([]byte, 10_000), TTL: time.Hour}
	require.ErrorIs(t, st.Complete(ctx, key, c.Owner, large), store.ErrTooLarge)
	require.ErrorIs(t, st.SaveStep(ctx, key, c.Owner, "step", large.Answer), store.ErrTooLarge)
	require.NoError(t, st.Hold(ctx, key, c.Owner, nil))
	require.ErrorIs(t, st.Resolve(ctx, key, guardtest.HeldBy(c.Owner, 1), store.Settlement{Completion: &large}), store.ErrTooLarge)
	rec, _ := st.Get(ctx, key)
	require.Equal(t, store.Held, rec.State)
	require.Empty(t, rec.Steps)
	require.NoError(t, st.Complete(ctx, key, c.Owner, store.Completion{Answer: make([]byte, 5_000), TTL: time.Hour}))

	s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, st).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(large.Answer)
	})))
	require.Len(t, s.Do(t, guardtest.Call{Key: "k"}).Body, 10_000)
	guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k"}), http.StatusConflict, problem.ResponseNotKept)
}

func TestMemoryStoreLimitsMustBePositive(t *testing.T) {
	require.Panics(t, func() { idempotency.WithMaxEntries(0) })
	require.Panics(t, func() { idempotency.WithMaxBytes(0) })
}
