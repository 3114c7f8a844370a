package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
)

// An api charges, and loses the answers to its first requests.
type api struct {
	*httptest.Server
	charges int
	refusal int // the status with which it refuses; 0: none
	front   int // the same of a gateway in front of it
}

func serve(t *testing.T, lost int) *api {
	t.Helper()
	guard, err := idempotency.New(idempotency.NewMemoryStore(), idempotency.SharedScope, idempotency.WithRequired(true))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, guard.Shutdown(context.WithoutCancel(t.Context()))) })
	a := &api{}
	charge := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if a.refusal != 0 {
			w.WriteHeader(a.refusal)
			return
		}
		a.charges++
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte("ch_1"))
	}))
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if lost--; lost >= 0 {
			charge.ServeHTTP(httptest.NewRecorder(), r)
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		if a.front != 0 {
			w.WriteHeader(a.front)
			return
		}
		charge.ServeHTTP(w, r)
	}))
	t.Cleanup(a.Close)
	return a
}

func run(t *testing.T, a *api, order string) (string, int) {
	t.Helper()
	return runWith(t, a, payer{token: "token-of-alice", order: order, amount: 100})
}

func runWith(t *testing.T, a *api, p payer) (string, int) {
	t.Helper()
	require.NoError(t, p.connect(a.URL))
	return report(p.pay(t.Context()))
}

func TestOrderIsChargedOnce(t *testing.T) {
	a := serve(t, 2)
	for range 2 { // the program is run again
		message, status := run(t, a, "order-1")
		require.Equal(t, "charged, replayed: true, ch_1", message)
		require.Zero(t, status)
	}
	require.Equal(t, 1, a.charges)

	message, status := run(t, a, "order-2")
	require.Equal(t, "charged, replayed: false, ch_1", message)
	require.Zero(t, status)
	require.Equal(t, 2, a.charges)

	message, status = runWith(t, a, payer{token: "token-of-alice", order: "order-1", amount: 200})
	require.Contains(t, message, "this amount is not charged")
	require.Equal(t, 1, status)
	require.Equal(t, 2, a.charges)
}

func TestDoubtIsReported(t *testing.T) {
	a := serve(t, 4) // as often as the client tries
	message, status := run(t, a, "order-1")
	require.Contains(t, message, "unknown, run the same command again")
	require.Equal(t, 2, status)

	message, status = run(t, a, "order-1") // which is what its message says
	require.Equal(t, "charged, replayed: true, ch_1", message)
	require.Zero(t, status)
	require.Equal(t, 1, a.charges)
}

// A refusal is believed if the API says it. One from in front of it says nothing about what an earlier
// process has done, and nor does a connection that cannot be made.
func TestRefusalsAreReported(t *testing.T) {
	a := serve(t, 0)
	a.refusal = http.StatusUnprocessableEntity
	message, status := run(t, a, "order-1")
	require.Equal(t, "not charged: status 422: ", message)
	require.Equal(t, 1, status)

	a = serve(t, 4) // as often as the client tries
	_, status = run(t, a, "order-1")
	require.Equal(t, 2, status)
	a.front = http.StatusUnauthorized
	for range 2 {
		message, status = run(t, a, "order-1")
		require.Contains(t, message, "unknown, run the same command again")
		require.Equal(t, 2, status)
		a.Close() // no connection
	}
	require.Equal(t, 1, a.charges)
}
