package main

import (
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEachEventIsAppliedOnce(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var out strings.Builder
	require.NoError(t, run(t.Context(), &out, seed))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, len(endpoints))
	for i, e := range endpoints {
		require.Regexp(t, "^"+e.path+`: 100 events, [2-9]\d\d deliveries, 100 applied, balance 5050, at version 100$`, lines[i])
	}
}

// send makes one delivery and returns its status, and whether it was a replay.
func send(t *testing.T, rec *receiver, r *http.Request) (status int, replayed bool) {
	t.Helper()
	w := httptest.NewRecorder()
	rec.ServeHTTP(w, r)
	return w.Code, w.Header().Get("Idempotent-Replayed") == "true"
}

func TestEndpointsDoNotShareNames(t *testing.T) {
	t.Parallel()
	rec, err := newReceiver()
	require.NoError(t, err)
	for _, e := range endpoints {
		for try := range 3 {
			r, err := delivery(t.Context(), "", e, 7, try)
			require.NoError(t, err)
			status, replayed := send(t, rec, r)
			require.Equal(t, http.StatusNoContent, status)
			require.Equal(t, try > 0, replayed)
		}
		require.Equal(t, account{applied: 1, balance: 7, version: 7}, rec.state(e.path))
	}
}

// The receiver refuses a delivery without a name or a valid signature, and does not apply it.
func TestRefusedDeliveries(t *testing.T) {
	t.Parallel()
	rec, err := newReceiver()
	require.NoError(t, err)
	for _, e := range endpoints {
		nameless := e
		nameless.name = func(_ http.Header, event *event) { event.ID = "" }
		r, err := delivery(t.Context(), "", nameless, 1, 1)
		require.NoError(t, err)
		status, _ := send(t, rec, r)
		require.Equal(t, http.StatusBadRequest, status, "no name")

		r, err = delivery(t.Context(), "", e, 1, 1)
		require.NoError(t, err)
		r.Header.Set("Webhook-Signature", "forged")
		status, _ = send(t, rec, r)
		require.Equal(t, http.StatusUnauthorized, status)
		require.Zero(t, rec.state(e.path))
	}
}
