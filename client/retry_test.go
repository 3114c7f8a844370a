package client_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/client"
	"example.com/idempotency/problem"
)

// The tests of this file run in bubbles with a fake clock.

var errReset = &net.OpError{Op: "read", Err: syscall.ECONNRESET}

func TestOneKeyAndOneBodyForAllAttempts(t *testing.T) {
	for name, body := range map[string]func() io.Reader{
		"rewindable": func() io.Reader { return strings.NewReader("body") },
		"once":       func() io.Reader { return once("body") },
		"none":       func() io.Reader { return nil },
		"NoBody":     func() io.Reader { return http.NoBody },
	} {
		bubble(t, name, func(t *testing.T) {
			base := answering(answer{err: errReset}, answer{status: 503, body: "busy"}, refused(409, "in-flight", "Retry-After", "1"),
				answer{status: 429, body: strings.Repeat("x", 200<<10), chunks: true}, answer{status: 201, body: "done"})
			e := new(events)
			r := request(t.Context(), http.MethodPost, place, body())
			got := answered(t, newTransport(t, base, client.WithObserver(e.observe)), r)
			require.Equal(t, "done", got.body)
			key := base.requireOneKey(t, 5)
			require.Equal(t, key, got.resp.Request.Header.Get(keyField), "the caller can see the key")
			require.NoError(t, got.resp.Request.Context().Err())
			require.Empty(t, r.Header, "the caller's request was changed")
			base.requireBodiesDone(t)
			if strings.Contains(name, "o") && body() != nil && body() != http.NoBody {
				require.Equal(t, "body", base.requests()[0].body)
			}
			require.Len(t, e.of(client.EventAttempt), 5)
			require.Len(t, e.of(client.EventRetry), 4)
			require.Empty(t, e.of(client.EventGaveUp))
		})
	}
}

func TestPausesAreRandomAndDouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls, retries = 200, 7
		longest := make([]time.Duration, retries)
		var sum time.Duration
		for range calls {
			e := new(events)
			transport := newTransport(t, answering(answer{status: 503}), client.WithObserver(e.observe),
				client.WithAttempts(retries+1), client.WithBackoff(100*time.Millisecond, 2*time.Second), client.WithRetryBudget(100, 100))
			start := time.Now()
			fails(t, transport, post(t.Context(), place, "{}"), client.ErrOutcomeUnknown)
			var waited time.Duration
			for i, retry := range e.of(client.EventRetry) {
				longest[i] = max(longest[i], retry.Wait)
				waited += retry.Wait
			}
			require.Equal(t, waited, time.Since(start))
			sum += waited
		}
		var bounds time.Duration
		for i, got := range longest {
			bound := min(100*time.Millisecond<<i, 2*time.Second)
			require.Less(t, got, bound)
			require.Greater(t, got, bound*8/10, "of %d random pauses, the longest", calls)
			bounds += bound
		}
		require.InEpsilon(t, float64(bounds/2), float64(sum/calls), 0.1, "full jitter is half of the bound on average")
	})
}

func TestRetryAfterIsTheLeast(t *testing.T) {
	date := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
	for name, c := range map[string]struct {
		status int
		header func() map[string]string
		want   time.Duration
	}{
		"seconds, 503": {503, func() map[string]string { return map[string]string{"Retry-After": "7"} }, 7 * time.Second},
		"seconds, 429": {429, func() map[string]string { return map[string]string{"Retry-After": " 7 "} }, 7 * time.Second},
		"seconds, 500": {500, func() map[string]string { return map[string]string{"Retry-After": "7"} }, 7 * time.Second},
		"seconds, 409": {409, func() map[string]string { return map[string]string{"Retry-After": "7"} }, 7 * time.Second},
		"date":         {503, func() map[string]string { return map[string]string{"Retry-After": date(7 * time.Second)} }, 7 * time.Second},
		"date, slow clock": {503, func() map[string]string {
			return map[string]string{"Retry-After": date(-time.Hour + 7*time.Second), "Date": date(-time.Hour)}
		}, 7 * time.Second},
		"date that has passed": {503, func() map[string]string { return map[string]string{"Retry-After": date(-time.Hour)} }, 0},
		"neither":              {503, func() map[string]string { return map[string]string{"Retry-After": "soon"} }, 0},
		"negative":             {503, func() map[string]string { return map[string]string{"Retry-After": "-7"} }, 0},
	} {
		bubble(t, name, func(t *testing.T) {
			base := answering(answer{status: c.status, header: c.header()}, answer{status: 201})
			start := time.Now()
			answered(t, newTransport(t, base, client.WithBackoff(time.Second, time.Second)), post(t.Context(), place, "{}"))
			require.GreaterOrEqual(t, time.Since(start), c.want)
			require.Less(t, time.Since(start), c.want+time.Second)
		})
	}
}

// A retry that cannot be in time is not waited for.
func TestNoRetryThatWouldComeTooLate(t *testing.T) {
	for name, c := range map[string]struct {
		after  string
		opts   []client.Option
		ctx    time.Duration
		reason client.Reason
	}{
		"deadline":            {"60", nil, time.Hour, client.ReasonTimeout},
		"deadline, absurd":    {"99999999999999999999", nil, time.Hour, client.ReasonTimeout},
		"deadline, very far":  {strconv.FormatInt(1<<62, 10), nil, time.Hour, client.ReasonTimeout},
		"context":             {"30", nil, 20 * time.Second, client.ReasonTimeout},
		"life of the key":     {"30", []client.Option{client.WithTTL(20 * time.Second)}, time.Hour, client.ReasonTTL},
		"longer life is fine": {"30", []client.Option{client.WithTTL(40 * time.Second), client.WithAttempts(2)}, time.Hour, client.ReasonAttempts},
	} {
		bubble(t, name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), c.ctx)
			defer cancel()
			base := answering(answer{status: 503, header: map[string]string{"Retry-After": c.after}})
			start := time.Now()
			err := failsWith(t, newTransport(t, base, append(c.opts, quick)...), post(ctx, place, "{}"), client.ErrOutcomeUnknown)
			e := failure(t, err)
			require.Equal(t, c.reason, e.Reason)
			require.Equal(t, c.reason == client.ReasonTTL, errors.Is(err, client.ErrKeyExpired))
			if c.reason != client.ReasonAttempts {
				require.Zero(t, time.Since(start))
				require.Len(t, e.Attempts, 1)
			}
			base.requireBodiesDone(t)
		})
	}
}

func TestInFlightIsWaitedForUntilTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := time.Now().Add(40 * time.Second) // a pause is eleven seconds at most
		base := answering(answer{do: func(r *http.Request) (*http.Response, error) {
			if time.Now().Before(end) {
				return refused(409, "in-flight", "Retry-After", "1").response(r), nil
			}
			return answer{status: 201}.response(r), nil
		}})
		transport := newTransport(t, base, client.WithRetryBudget(0, 0), client.WithAttempts(1))
		require.Equal(t, 201, answered(t, transport, post(t.Context(), place, "{}")).status)

		end = time.Now().Add(time.Hour)
		start := time.Now()
		err := failsWith(t, transport, post(t.Context(), place, "{}"), client.ErrOutcomeUnknown)
		e := failure(t, err)
		require.Equal(t, client.ReasonTimeout, e.Reason)
		require.Equal(t, problem.InFlight, e.Problem.Code)
		require.Less(t, time.Since(start), time.Minute)
	})
}

func TestContextEndsTheCall(t *testing.T) {
	reason := errors.New("the user has left")
	for name, c := range map[string]struct {
		answer  answer
		unknown bool
	}{
		"in a pause, nothing done": {answer{status: 429, header: map[string]string{"Retry-After": "30"}}, false},
		"in a pause":               {answer{status: 503, header: map[string]string{"Retry-After": "30"}}, true},
		"in an attempt":            {silent, true},
	} {
		bubble(t, name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(10*time.Second, func() { cancel(reason) })
			start := time.Now()
			base := answering(c.answer)
			_, err := send(newTransport(t, base), post(ctx, place, "{}"))
			require.Equal(t, 10*time.Second, time.Since(start))
			require.ErrorIs(t, err, reason)
			require.Equal(t, c.unknown, errors.Is(err, client.ErrOutcomeUnknown), "%v", err)
			require.Equal(t, client.ReasonContext, failure(t, err).Reason)
			require.Len(t, base.requests(), 1)
		})
	}
}

func TestNothingIsSentUnderAContextThatHasEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := failsWith(t, newTransport(t, newBase(t)), post(ctx, "http://127.0.0.1:1/", "{}"), context.Canceled)
	require.NotErrorIs(t, err, client.ErrOutcomeUnknown)
}

func TestAttemptThatFallsSilentIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := answering(silent, answer{status: 201})
		start := time.Now()
		require.Equal(t, 201, answered(t, newTransport(t, base), post(t.Context(), place, "{}")).status)
		require.GreaterOrEqual(t, time.Since(start), 30*time.Second)
		base.requireOneKey(t, 2)

		base = answering(silent)
		start = time.Now()
		err := failsWith(t, newTransport(t, base), post(t.Context(), place, "{}"), client.ErrOutcomeUnknown)
		require.Equal(t, time.Minute, time.Since(start), "the last attempt ends at the deadline")
		require.NotErrorIs(t, err, context.DeadlineExceeded, "it is not the caller's")
	})
}

func TestWithoutKeyAnUnsafeRequestIsSentOnce(t *testing.T) {
	for _, a := range []answer{{err: errReset}, {err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}, {status: 503}, {status: 429}, refused(409, "in-flight")} {
		base := answering(a, answer{status: 201})
		body := once("body")
		got, err := send(newTransport(t, base, quick), request(client.WithoutKey(t.Context()), http.MethodPost, place, body))
		require.Len(t, base.requests(), 1)
		require.Equal(t, "body", base.requests()[0].body)
		require.Empty(t, base.requests()[0].key)
		if a.err != nil {
			require.Equal(t, a.err, err)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, a.status, got.status)
		require.Equal(t, a.body, got.body)
	}
}

func TestIdempotentMethodsAreRetriedWithoutAKey(t *testing.T) {
	for _, method := range []string{"GET", "HEAD", "OPTIONS", "PUT", "DELETE"} {
		base := answering(answer{err: errReset}, answer{status: 503}, answer{status: 200})
		got := answered(t, newTransport(t, base, quick), request(t.Context(), method, place, strings.NewReader("body")))
		require.Equal(t, 200, got.status)
		for _, r := range base.requests() {
			require.Empty(t, r.key)
			require.Equal(t, "body", r.body)
		}
		require.Len(t, base.requests(), 3)
	}
}

// Without a key a call ends as without a transport.
func TestWithoutKeyTheLastResultIsReturned(t *testing.T) {
	base := answering(answer{err: errReset}, answer{status: 503, body: "busy"})
	got := answered(t, newTransport(t, base, quick), request(t.Context(), http.MethodGet, place, http.NoBody))
	require.Equal(t, "busy", got.body)
	require.Len(t, base.requests(), 4)
	base.requireBodiesDone(t)

	base = answering(answer{err: errReset})
	_, err := send(newTransport(t, base, quick), request(t.Context(), http.MethodGet, place, http.NoBody))
	require.Equal(t, error(errReset), err)

	base = answering(answer{status: 409, header: map[string]string{"Retry-After": "1"}})
	got = answered(t, newTransport(t, base, quick), request(t.Context(), http.MethodPut, place, http.NoBody))
	require.Equal(t, 409, got.status)
	require.Len(t, base.requests(), 1, "nothing is in flight that has no key")

	for _, status := range []int{501, 505} {
		base = answering(answer{status: status}, answer{status: 200})
		got = answered(t, newTransport(t, base, quick), request(t.Context(), http.MethodGet, place, http.NoBody))
		require.Equal(t, status, got.status)
		require.Len(t, base.requests(), 1, "it will not be able to next time")
	}
}

// A process that was suspended for a day does not send a key that the server has forgotten.
func TestNoAttemptAfterALongSleep(t *testing.T) {
	for reason, c := range map[client.Reason]struct {
		sleep time.Duration
		want  error
	}{
		client.ReasonTTL:     {25 * time.Hour, client.ErrKeyExpired},
		client.ReasonTimeout: {49 * time.Hour, client.ErrOutcomeUnknown},
	} {
		synctest.Test(t, func(t *testing.T) {
			base := answering(answer{status: 502}, answer{status: 201})
			suspended := client.WithObserver(func(_ context.Context, e client.Event) {
				if e.Kind == client.EventRetry {
					time.Sleep(c.sleep)
				}
			})
			err := failsWith(t, newTransport(t, base, suspended, client.WithTimeout(48*time.Hour)), post(t.Context(), place, "{}"), c.want)
			require.Equal(t, reason, failure(t, err).Reason)
			require.Len(t, base.requests(), 1)
		})
	}
}

// The time that it takes to receive what nobody wants is part of the pause.
func TestSlowAnswerDoesNotDelayTheNextAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := answering(answer{do: func(r *http.Request) (*http.Response, error) {
			resp := answer{status: 503, chunks: true, header: map[string]string{"Retry-After": "9"}}.response(r)
			resp.Body = io.NopCloser(readerFunc(func([]byte) (int, error) {
				<-r.Context().Done()
				return 0, r.Context().Err()
			}))
			return resp, nil
		}}, answer{status: 201})
		start := time.Now()
		answered(t, newTransport(t, base, quick), post(t.Context(), place, "{}"))
		require.Less(t, time.Since(start), 9500*time.Millisecond)
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
