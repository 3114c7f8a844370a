package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// An inProcess API is called without a network, so it can run on the time of a test.
type inProcess struct {
	handler  http.Handler
	guard    *idempotency.Guard
	provider *provider
}

func newInProcess(t *testing.T, st idempotency.Store, delay time.Duration) *inProcess {
	t.Helper()
	guard, err := newGuard(st, idempotency.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, guard.Shutdown(context.WithoutCancel(t.Context()))) })
	p := newProvider(delay)
	return &inProcess{newAPI(guard, p), guard, p}
}

func (a *inProcess) pay(t *testing.T, path, authorization, key, body string) answer {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Authorization", authorization)
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	w := httptest.NewRecorder()
	a.handler.ServeHTTP(w, r)
	got, err := readAnswer(w.Result())
	require.NoError(t, err)
	return got
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	api := newInProcess(t, idempotency.NewMemoryStore(), 0)
	for name, c := range map[string]struct {
		authorization, body string
		status              int
	}{
		"no caller":        {"", hundredEuros, http.StatusUnauthorized},
		"unknown caller":   {"Bearer token-of-mallory", hundredEuros, http.StatusUnauthorized},
		"other scheme":     {"Basic token-of-alice", hundredEuros, http.StatusUnauthorized},
		"no body":          {"Bearer token-of-alice", "", http.StatusBadRequest},
		"no JSON":          {"Bearer token-of-alice", "amount=100", http.StatusBadRequest},
		"unknown member":   {"Bearer token-of-alice", `{"amount":100,"currency":"eur","to":"me"}`, http.StatusBadRequest},
		"two objects":      {"Bearer token-of-alice", hundredEuros + hundredEuros, http.StatusBadRequest},
		"no amount":        {"Bearer token-of-alice", `{"currency":"eur"}`, http.StatusUnprocessableEntity},
		"negative amount":  {"Bearer token-of-alice", `{"amount":-1,"currency":"eur"}`, http.StatusUnprocessableEntity},
		"unknown currency": {"Bearer token-of-alice", `{"amount":100,"currency":"gold"}`, http.StatusUnprocessableEntity},
	} {
		key := strings.ReplaceAll(name, " ", "-")
		first := api.pay(t, "/charges", c.authorization, key, c.body)
		require.Equal(t, c.status, first.status, name)
		// The handler's refusals are recorded. A stranger does not reach the handler.
		retry := api.pay(t, "/charges", c.authorization, key, c.body)
		require.Equal(t, first.body, retry.body)
		require.Equal(t, c.status != http.StatusUnauthorized, retry.replayed, name)
	}
	for _, path := range []string{"/charges", "/payouts"} {
		missing := api.pay(t, path, "Bearer token-of-alice", "", hundredEuros)
		require.Equal(t, http.StatusBadRequest, missing.status)
		require.Equal(t, problem.KeyMissing, missing.code)
	}
	require.Equal(t, newProvider(0).counts(), api.provider.counts(), "nothing was done")
}

func TestCallersDoNotShareKeys(t *testing.T) {
	t.Parallel()
	api := newInProcess(t, idempotency.NewMemoryStore(), 0)
	alice := api.pay(t, "/charges", "Bearer token-of-alice", "order-1", hundredEuros)
	bob := api.pay(t, "/charges", "Bearer token-of-bob", "order-1", hundredEuros)
	requirePaid(t, alice, 1)
	requirePaid(t, bob, 1)
	require.NotEqual(t, alice.payment.ID, bob.payment.ID)
	require.Equal(t, 2, api.provider.counts()["charges"])
}

func TestRoutesHaveTheirOwnTTL(t *testing.T) {
	t.Parallel()
	for path, ttl := range map[string]time.Duration{"/charges": 24 * time.Hour, "/payouts": 7 * 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			api := newInProcess(t, idempotency.NewMemoryStore(), 0)
			first := api.pay(t, path, "Bearer token-of-alice", "order-1", hundredEuros)
			requirePaid(t, first, 1)
			time.Sleep(ttl - time.Second)
			requireReplay(t, first, api.pay(t, path, "Bearer token-of-alice", "order-1", hundredEuros))
			time.Sleep(time.Second)
			requirePaid(t, api.pay(t, path, "Bearer token-of-alice", "order-1", hundredEuros), 1)
		})
	}
}

// A cutOffStore grants claims, but renews none.
type cutOffStore struct{ idempotency.Store }

func (cutOffStore) Renew(context.Context, string, store.Owner) error {
	return errors.New("store is away")
}

// A run that loses its lease pays nothing and says so. Then even a payout may run again.
func TestNothingIsPaidWithoutAClaim(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/charges", "/payouts"} {
		synctest.Test(t, func(t *testing.T) {
			st := idempotency.NewMemoryStore()
			slow := newInProcess(t, cutOffStore{st}, time.Hour)
			got := slow.pay(t, path, "Bearer token-of-alice", "order-1", hundredEuros)
			require.Equal(t, http.StatusServiceUnavailable, got.status)
			require.Equal(t, "1", got.header.Get("Retry-After"))
			require.Equal(t, newProvider(0).counts(), slow.provider.counts())

			quick := newInProcess(t, st, 0)
			requirePaid(t, quick.pay(t, path, "Bearer token-of-alice", "order-1", hundredEuros), 2)
		})
	}
}

func TestShutdownEndsTheGuard(t *testing.T) {
	t.Parallel()
	api := newInProcess(t, idempotency.NewMemoryStore(), 0)
	require.NoError(t, shutdown(&http.Server{}, api.guard))
	got := api.pay(t, "/charges", "Bearer token-of-alice", "order-1", hundredEuros)
	require.Equal(t, http.StatusServiceUnavailable, got.status)
	require.Equal(t, problem.ShuttingDown, got.code)
}

func TestDocumentationShowsTheSameLines(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/reference/answers.md")
	require.NoError(t, err)
	require.Contains(t, string(page), "```sh\n"+tryIt("127.0.0.1:8080")+"```")
}

// The console is there for who sits at the machine, and for nobody else.
func TestConsole(t *testing.T) {
	t.Parallel()
	api := newInProcess(t, idempotency.NewMemoryStore(), 0)
	for from, status := range map[string]int{"127.0.0.1:5000": http.StatusOK, "192.0.2.1:5000": http.StatusForbidden} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost:8080/console/", nil)
		r.RemoteAddr = from
		w := httptest.NewRecorder()
		api.handler.ServeHTTP(w, r)
		require.Equal(t, status, w.Code)
	}
}
