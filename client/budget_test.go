package client_test

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/client"
)

// A server that answers only 503 gets little more requests than there are calls.
func TestBudgetAgainstARetryStorm(t *testing.T) {
	t.Parallel()
	const calls, clients = 2000, 20
	var requests atomic.Int64
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	flood := func(base http.RoundTripper, opts ...client.Option) int {
		requests.Store(0)
		e := new(events)
		transport := newTransport(t, base, append(opts, quick, client.WithObserver(e.observe))...)
		var wg sync.WaitGroup
		for range clients {
			wg.Go(func() {
				for range calls / clients {
					if _, err := send(transport, post(t.Context(), s.URL, "{}")); err == nil {
						t.Error("an answer of a server that has none")
					}
				}
			})
		}
		wg.Wait()
		require.Len(t, e.of(client.EventGaveUp), calls)
		require.Len(t, e.of(client.EventAttempt), int(requests.Load()))
		return int(requests.Load())
	}
	require.Less(t, flood(newBase(t)), calls*13/10)
	busy := answering(answer{do: func(r *http.Request) (*http.Response, error) {
		requests.Add(1)
		return answer{status: http.StatusServiceUnavailable}.response(r), nil
	}})
	require.Equal(t, 4*calls, flood(busy, client.WithRetryBudget(4, 0)), "without a bound, every call makes all attempts")
}

// A client that makes a call now and then may retry all of them.
func TestBudgetFillsUpWithTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := answering(answer{status: 429})
		transport := newTransport(t, base, quick, client.WithRetryBudget(0, 3))
		requests := func() int {
			before := len(base.requests())
			_, err := send(transport, post(t.Context(), place, "{}"))
			require.NoError(t, err)
			return len(base.requests()) - before
		}
		require.Equal(t, 4, requests())
		require.Equal(t, 1, requests(), "used up")
		time.Sleep(2 * time.Second)
		require.Equal(t, 3, requests())
		time.Sleep(24 * time.Hour)
		require.Equal(t, 4, requests())
		require.Equal(t, 1, requests(), "a quiet day has not saved more than the reserve")
	})
}

func TestNoBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := answering(answer{status: 429})
		transport := newTransport(t, base, client.WithRetryBudget(0, 0))
		time.Sleep(time.Hour)
		_, err := send(transport, post(t.Context(), place, "{}"))
		require.NoError(t, err)
		require.Len(t, base.requests(), 1)
	})
}
