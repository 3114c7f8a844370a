package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.com/idempotency/internal/pagetest"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// An inProcess API is called without a network, so it can run on the time of a test.
type inProcess struct {
	*guardtest.Server
	guard    *idempotency.Guard
	provider *provider
}

func newInProcess(t *testing.T, st idempotency.Store, delay time.Duration) *inProcess {
	t.Helper()
	guard, err := newGuard(st, idempotency.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, guard.Shutdown(context.WithoutCancel(t.Context()))) })
	p := newProvider(delay)
	return &inProcess{guardtest.ServeRecorder(t, newAPI(guard, p)), guard, p}
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
		call := guardtest.Call{Key: strings.ReplaceAll(name, " ", "-"), Body: c.body, NoBody: c.body == ""}
		call.Header = http.Header{"Authorization": {c.authorization}}
		first := api.Do(t, call)
		require.Equal(t, c.status, first.Status, name)
		// The handler's refusals are recorded. A stranger does not reach the handler.
		retry := api.Do(t, call)
		require.Equal(t, first.Body, retry.Body)
		require.Equal(t, c.status != http.StatusUnauthorized, retry.Replayed(), name)
	}
	for _, path := range []string{"/charges", "/payouts"} {
		guardtest.RequireProblem(t, api.Do(t, alice(path, "")), http.StatusBadRequest, problem.KeyMissing)
	}
	require.Equal(t, newProvider(0).counts(), api.provider.counts(), "nothing was done")
}

func TestCallersDoNotShareKeys(t *testing.T) {
	t.Parallel()
	api := newInProcess(t, idempotency.NewMemoryStore(), 0)
	bob := alice("/charges", "order-1")
	bob.Header = http.Header{"Authorization": {"Bearer token-of-bob"}}
	first, second := requirePaid(t, api.Do(t, alice("/charges", "order-1")), 1), requirePaid(t, api.Do(t, bob), 1)
	require.NotEqual(t, first.ID, second.ID)
	require.Equal(t, 2, api.provider.counts()["charges"])
}

func TestRoutesHaveTheirOwnTTL(t *testing.T) {
	t.Parallel()
	for path, ttl := range map[string]time.Duration{"/charges": 24 * time.Hour, "/payouts": 7 * 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			api := newInProcess(t, idempotency.NewMemoryStore(), 0)
			first := api.Do(t, alice(path, "order-1"))
			requirePaid(t, first, 1)
			time.Sleep(ttl - time.Second)
			guardtest.RequireReplay(t, first, api.Do(t, alice(path, "order-1")))
			time.Sleep(time.Second)
			requirePaid(t, api.Do(t, alice(path, "order-1")), 1)
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
			got := slow.Do(t, alice(path, "order-1"))
			require.Equal(t, http.StatusServiceUnavailable, got.Status)
			require.Equal(t, "1", got.Header.Get("Retry-After"))
			require.Equal(t, newProvider(0).counts(), slow.provider.counts())

			quick := newInProcess(t, st, 0)
			requirePaid(t, quick.Do(t, alice(path, "order-1")), 2)
		})
	}
}

func TestShutdownEndsTheGuard(t *testing.T) {
	t.Parallel()
	api := newInProcess(t, idempotency.NewMemoryStore(), 0)
	require.NoError(t, shutdown(&http.Server{}, api.guard))
	got := api.Do(t, alice("/charges", "order-1"))
	guardtest.RequireProblem(t, got, http.StatusServiceUnavailable, problem.ShuttingDown)
}

func TestDocumentationShowsTheSameLines(t *testing.T) {
	t.Parallel()
	page := pagetest.File(t, "../../docs/reference/answers.md")
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
		newAPI(api.guard, api.provider).ServeHTTP(w, r)
		require.Equal(t, status, w.Code)
	}
}
