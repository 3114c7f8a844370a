package client_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/client"
)

// What bounds attempts: a breaker, and a budget for retries.

var errOpen = errors.New("open")

// A breaker notes what it is told.
type breaker struct {
	refuse bool

	mu      sync.Mutex
	allowed int
	results []error
}

func (b *breaker) Allow() (func(error), error) {
	if b.refuse {
		return nil, errOpen
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.allowed++
	return func(err error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.results = append(b.results, err)
	}, nil
}

func TestBreakerIsToldEachResult(t *testing.T) {
	reset := errors.New("reset")
	b := &breaker{}
	base := answering(answer{err: reset}, answer{status: 503}, answer{status: 429}, answer{status: 201})
	got := answered(t, newTransport(t, base, client.WithBreaker(b), quick), post(t.Context(), place, "{}"))
	require.Equal(t, 201, got.status)
	require.Equal(t, 4, b.allowed)
	require.Len(t, b.results, 4)
	require.ErrorIs(t, b.results[0], reset)
	require.EqualError(t, b.results[1], "status 503 Service Unavailable")
	require.NoError(t, b.results[2])
	require.NoError(t, b.results[3])
}

// A slot of a half-open breaker that is never given back would keep it shut for good.
func TestBreakerIsToldOfAPanic(t *testing.T) {
	b := &breaker{}
	base := answering(answer{do: func(*http.Request) (*http.Response, error) { panic("base") }})
	require.PanicsWithValue(t, "base", func() {
		_, _ = send(newTransport(t, base, client.WithBreaker(b)), post(t.Context(), place, "{}"))
	})
	require.Len(t, b.results, 1)
	require.Error(t, b.results[0])
}

func TestBreakerThatRefusesEndsTheCall(t *testing.T) {
	for name, r := range map[string]*http.Request{
		"key":    post(t.Context(), place, "{}"),
		"no key": post(client.WithoutKey(t.Context()), place, "{}"),
		"get":    request(t.Context(), http.MethodGet, place, http.NoBody),
	} {
		base := answering(answer{status: 200})
		body := &countedBody{Reader: once("{}")}
		r.Body, r.GetBody = body, nil
		err := failsWith(t, newTransport(t, base, client.WithBreaker(&breaker{refuse: true})), r, errOpen, name)
		require.NotErrorIs(t, err, client.ErrOutcomeUnknown, name)
		require.Empty(t, base.requests(), name)
		require.True(t, body.closed.Load(), name)
	}
}

// The doubt that an attempt has left is not forgotten because the breaker opens.
func TestBreakerThatOpensInBetween(t *testing.T) {
	b := &breaker{}
	base := answering(answer{do: func(*http.Request) (*http.Response, error) {
		b.refuse = true
		return nil, errors.New("reset")
	}})
	err := failsWith(t, newTransport(t, base, client.WithBreaker(b), quick), post(context.Background(), place, "{}"), errOpen)
	require.ErrorIs(t, err, client.ErrOutcomeUnknown)
	e := failure(t, err)
	require.Equal(t, client.ReasonBreaker, e.Reason)
	require.Equal(t, base.requests()[0].key[0], e.Key)
}

// A server that answers only 503 gets little more requests than there are calls.
func TestBudgetAgainstARetryStorm(t *testing.T) {
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
	synctest.Test(t, func(t *testing.T) {
		base := answering(answer{status: 429})
		transport := newTransport(t, base, quick, client.WithRetryBudget(0, 3))
		requests := func() int {
			before := len(base.requests())
			answered(t, transport, post(t.Context(), place, "{}"))
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
	synctest.Test(t, func(t *testing.T) {
		base := answering(answer{status: 429})
		transport := newTransport(t, base, client.WithRetryBudget(0, 0))
		time.Sleep(time.Hour)
		answered(t, transport, post(t.Context(), place, "{}"))
		require.Len(t, base.requests(), 1)
	})
}
