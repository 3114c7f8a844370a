package client_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/client"
)

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
	t.Parallel()
	reset := errors.New("reset")
	b := &breaker{}
	base := answering(answer{err: reset}, answer{status: 503}, answer{status: 429}, answer{status: 201})
	got, err := send(newTransport(t, base, client.WithBreaker(b), quick), post(t.Context(), place, "{}"))
	require.NoError(t, err)
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
	t.Parallel()
	b := &breaker{}
	base := answering(answer{do: func(*http.Request) (*http.Response, error) { panic("base") }})
	require.PanicsWithValue(t, "base", func() {
		_, _ = send(newTransport(t, base, client.WithBreaker(b)), post(t.Context(), place, "{}"))
	})
	require.Len(t, b.results, 1)
	require.Error(t, b.results[0])
}

func TestBreakerThatRefusesEndsTheCall(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]*http.Request{
		"key":    post(t.Context(), place, "{}"),
		"no key": post(client.WithoutKey(t.Context()), place, "{}"),
		"get":    request(t.Context(), http.MethodGet, place, http.NoBody),
	} {
		base := answering(answer{status: 200})
		body := &countedBody{Reader: once("{}")}
		r.Body, r.GetBody = body, nil
		_, err := send(newTransport(t, base, client.WithBreaker(&breaker{refuse: true})), r)
		require.ErrorIs(t, err, errOpen, name)
		require.NotErrorIs(t, err, client.ErrOutcomeUnknown, name)
		require.Empty(t, base.requests(), name)
		require.True(t, body.closed.Load(), name)
	}
}

// The doubt that an attempt has left is not forgotten because the breaker opens.
func TestBreakerThatOpensInBetween(t *testing.T) {
	t.Parallel()
	b := &breaker{}
	base := answering(answer{do: func(*http.Request) (*http.Response, error) {
		b.refuse = true
		return nil, errors.New("reset")
	}})
	_, err := send(newTransport(t, base, client.WithBreaker(b), quick), post(context.Background(), place, "{}"))
	require.ErrorIs(t, err, errOpen)
	require.ErrorIs(t, err, client.ErrOutcomeUnknown)
	e := failure(t, err)
	require.Equal(t, client.ReasonBreaker, e.Reason)
	require.Equal(t, base.requests()[0].key[0], e.Key)
}
