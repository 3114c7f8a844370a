package clienttest_test

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/hashicorp/go-retryablehttp"
	"github.com/sony/gobreaker/v2"
	"github.com/stretchr/testify/require"

	"example.com/idempotency/client"
	"example.com/idempotency/client/profile"
)

// A server answers 503 to the first requests, cuts the connection of the next, and then
// does what it is asked for. It remembers what it was sent.
type server struct {
	url string

	mu     sync.Mutex
	busy   int
	keys   []string
	bodies []string
}

func newServer(t *testing.T, busy int) *server {
	t.Helper()
	s := &server{busy: busy}
	h := httptest.NewUnstartedServer(s)
	h.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	h.Start()
	t.Cleanup(h.Close)
	s.url = h.URL
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	s.keys = append(s.keys, r.Header.Get("Idempotency-Key"))
	s.bodies = append(s.bodies, string(body))
	n := len(s.keys)
	s.mu.Unlock()
	switch {
	case n < s.busy:
		w.WriteHeader(http.StatusServiceUnavailable)
	case n == s.busy:
		panic(http.ErrAbortHandler)
	default:
		w.WriteHeader(http.StatusCreated)
	}
}

// newBase returns an http.Transport that makes a connection for each request: on one that
// was used before, net/http repeats by itself what has a key.
func newBase(t *testing.T) *http.Transport {
	t.Helper()
	return &http.Transport{DisableKeepAlives: true}
}

func newClient(t *testing.T, base http.RoundTripper, opts ...client.Option) *http.Client {
	t.Helper()
	opts = append([]client.Option{
		client.WithServer(profile.Guard(), "127.0.0.1"),
		client.WithLogger(slog.New(slog.DiscardHandler)), client.WithBackoff(time.Millisecond, time.Millisecond),
	}, opts...)
	transport, err := client.New(base, opts...)
	require.NoError(t, err)
	return &http.Client{Transport: transport}
}

func post(t *testing.T, c *http.Client, url string, body io.Reader) (int, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, body)
	require.NoError(t, err)
	resp, err := c.Do(r)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, errors.Join(err, resp.Body.Close())
}

// A RoundTripper below the transport that retries sends all of its tries with one key.
func TestOneKeyAboveRetryingRoundTrippers(t *testing.T) {
	retryable := func(t *testing.T) http.RoundTripper {
		c := retryablehttp.NewClient()
		c.HTTPClient.Transport = newBase(t)
		c.RetryWaitMin, c.RetryWaitMax, c.RetryMax, c.Logger = time.Millisecond, time.Millisecond, 2, nil
		return &retryablehttp.RoundTripper{Client: c}
	}
	failsafe := func(t *testing.T) http.RoundTripper {
		policy := failsafehttp.NewRetryPolicyBuilder().WithMaxRetries(2).WithDelay(time.Millisecond).Build() //nolint:bodyclose // it is a policy for responses, not one
		return failsafehttp.NewRoundTripper(newBase(t), policy)
	}
	for name, base := range map[string]func(*testing.T) http.RoundTripper{"go-retryablehttp": retryable, "failsafe-go": failsafe} {
		for bodyName, body := range map[string]func() io.Reader{
			"rewindable": func() io.Reader { return strings.NewReader("body") },
			"once":       func() io.Reader { return struct{ io.Reader }{strings.NewReader("body")} },
		} {
			t.Run(name+", "+bodyName, func(t *testing.T) {
				// It retries and succeeds by itself.
				s := newServer(t, 2)
				status, err := post(t, newClient(t, base(t), client.WithAttempts(1)), s.url, body())
				require.NoError(t, err)
				require.Equal(t, http.StatusCreated, status)
				requireOneKey(t, s, 3)

				// It gives up, and the transport goes on.
				s = newServer(t, 5)
				status, err = post(t, newClient(t, base(t), client.WithAttempts(2)), s.url, body())
				require.NoError(t, err)
				require.Equal(t, http.StatusCreated, status)
				requireOneKey(t, s, 6)

				// Both give up.
				s = newServer(t, 100)
				_, err = post(t, newClient(t, base(t), client.WithAttempts(2)), s.url, body())
				require.ErrorIs(t, err, client.ErrOutcomeUnknown)
				var e *client.Error
				require.ErrorAs(t, err, &e)
				require.Equal(t, s.keys[0], e.Key)
				requireOneKey(t, s, 6)
			})
		}
	}
}

func requireOneKey(t *testing.T, s *server, requests int) {
	t.Helper()
	require.Len(t, s.keys, requests)
	for i := range s.keys {
		require.NotEmpty(t, s.keys[i])
		require.Equal(t, s.keys[0], s.keys[i])
		require.Equal(t, "body", s.bodies[i])
	}
}

// A TwoStepCircuitBreaker of gobreaker fits as it is.
func TestGobreaker(t *testing.T) {
	breaker := gobreaker.NewTwoStepCircuitBreaker[any](gobreaker.Settings{
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= 3 },
		Timeout:     time.Hour,
	})
	s := newServer(t, 100)
	c := newClient(t, newBase(t), client.WithBreaker(breaker))
	_, err := post(t, c, s.url, strings.NewReader("body"))
	require.ErrorIs(t, err, gobreaker.ErrOpenState)
	require.ErrorIs(t, err, client.ErrOutcomeUnknown, "what was sent before may have been executed")
	require.Equal(t, gobreaker.StateOpen, breaker.State())
	requireOneKey(t, s, 3)

	_, err = post(t, c, s.url, strings.NewReader("body"))
	require.ErrorIs(t, err, gobreaker.ErrOpenState)
	require.NotErrorIs(t, err, client.ErrOutcomeUnknown)
	require.Len(t, s.keys, 3)
}
