package security

import (
	"errors"
	"net/http"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
)

// Someone who can write to the store changes the status that is kept beside a sealed answer.
// That deceives those who look, and nobody who decides about a replay or gets one.
func TestStatusOfALookupIsForDisplay(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	store := guardtest.RedisStore(t, guardtest.RedisClient(t, server.Addr()))
	guard := guardtest.NewGuard(t, store, idempotency.WithSealer(guardtest.NewSealer(t, 1)),
		idempotency.WithAuthorizeReplay(func(_ *http.Request, info idempotency.RecordInfo) error {
			if info.Status != http.StatusPaymentRequired {
				return errors.New("only refusals are replayed")
			}
			return nil
		}))
	status := http.StatusPaymentRequired
	s := guardtest.ServeRecorder(t, guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
	})))
	makeUp := func(status byte) {
		t.Helper()
		name := server.Keys()[0]
		header := []byte(server.HGet(name, "m"))
		require.Greater(t, len(header), 65, "the answer is not recorded")
		header[64], header[65] = status>>7, status<<1
		server.HSet(name, "m", string(header))
	}

	require.Equal(t, status, s.Do(t, guardtest.Call{Key: "k"}).Status)
	makeUp(100)
	info, err := guard.Lookup(t.Context(), guardtest.HeldKey)
	require.NoError(t, err)
	require.Equal(t, 200, info.Status)
	got := s.Do(t, guardtest.Call{Key: "k"})
	require.True(t, got.Replayed(), got.Body)
	require.Equal(t, status, got.Status)

	server.FlushAll()
	status = http.StatusCreated
	require.Equal(t, status, s.Do(t, guardtest.Call{Key: "k"}).Status)
	makeUp(201)
	info, err = guard.Lookup(t.Context(), guardtest.HeldKey)
	require.NoError(t, err)
	require.Equal(t, http.StatusPaymentRequired, info.Status)
	guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k"}), http.StatusForbidden, problem.ReplayDenied)
}
