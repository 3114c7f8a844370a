package client_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/client"
)

// This file compares a Transport with what net/http promises.

// A request without a key is sent as http.Client sends it: its body is neither bounded nor
// waited for.
func TestKeylessBodyIsSentAsItComes(t *testing.T) {
	for _, method := range []string{http.MethodPut, http.MethodDelete} {
		// A stream: the second half is written when the first has arrived.
		arrived := make(chan struct{})
		s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			first := make([]byte, 1)
			_, _ = io.ReadFull(r.Body, first)
			close(arrived)
			rest, _ := io.Copy(io.Discard, r.Body)
			_, _ = io.WriteString(w, strconv.FormatInt(rest+1, 10))
		}))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		body, w := io.Pipe()
		go func() {
			_, _ = w.Write([]byte("a"))
			select {
			case <-arrived:
			case <-ctx.Done(): // a client that waits for the whole body fails the test, and does not hang
			}
			_, _ = w.Write(make([]byte, 3<<20)) // more than is held in memory
			_ = w.Close()
		}()
		got := answered(t, newTransport(t, newBase(t)), request(ctx, method, s.URL, body))
		require.Equal(t, strconv.Itoa(3<<20+1), got.body)

		base := answering(answer{err: errReset}, answer{status: 201})
		_, err := send(newTransport(t, base, quick), request(t.Context(), method, place, once("body")))
		require.Equal(t, error(errReset), err, "a body that can be read once is sent once")
		require.Len(t, base.requests(), 1)
	}
}

func TestTimeoutsAreTimeouts(t *testing.T) {
	for name, c := range map[string]struct {
		answer answer
		ctx    time.Duration
		method string
		want   bool
	}{
		"attempt":               {silent, time.Hour, http.MethodPost, true},
		"attempt, keyless":      {silent, time.Hour, http.MethodGet, true},
		"deadline of the call":  {answer{status: 503, header: map[string]string{"Retry-After": "1000"}}, time.Hour, http.MethodPost, true},
		"deadline of a context": {silent, time.Second, http.MethodPost, true},
		"attempts":              {answer{status: 503}, time.Hour, http.MethodPost, false},
		"reset":                 {answer{err: errReset}, time.Hour, http.MethodPost, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), c.ctx)
			defer cancel()
			hc := &http.Client{Transport: newTransport(t, answering(c.answer))}
			_, err := hc.Do(request(ctx, c.method, place, http.NoBody)) //nolint:bodyclose // there is none
			require.Error(t, err, name)
			var timeout net.Error
			require.ErrorAs(t, err, &timeout)
			require.Equal(t, c.want, timeout.Timeout(), "%s: %v", name, err)
			var own *client.Error
			if errors.As(err, &own) {
				require.Equal(t, c.want, own.Timeout())
				require.Equal(t, c.want, own.Temporary())
			}
		})
	}
}

// An answer in gzip whose length is declared is asked for again when it is cut.
func TestCutGzipAnswerIsAskedForAgain(t *testing.T) {
	text := strings.Repeat("answer ", 1000)
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = io.WriteString(w, text)
	require.NoError(t, w.Close())
	var requests atomic.Int64
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/plain" || r.Header.Get("Accept-Encoding") != "gzip" {
			_, _ = io.WriteString(w, r.Header.Get("Accept-Encoding"))
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		data := packed.Bytes()
		switch r.URL.Path {
		case "/empty":
			w.Header().Set("Content-Length", "0")
			return
		case "/stream":
		case "/damaged":
			data = bytes.Clone(data)
			data[len(data)-1] ^= 1
			fallthrough
		default:
			w.Header().Set("Content-Length", strconv.Itoa(len(data)))
		}
		if requests.Add(1) == 1 {
			_, _ = w.Write(data[:len(data)/2])
			_ = http.NewResponseController(w).Flush() // the header arrives, and half of the body
			panic(http.ErrAbortHandler)
		}
		_, _ = w.Write(data)
	}))
	transport := newTransport(t, newBase(t), quick)
	for _, path := range []string{"/cut", "/whole", "/stream"} {
		r := post(t.Context(), s.URL+path, "{}")
		got, err := send(transport, r)
		require.NoError(t, err, path)
		require.Equal(t, text, got.body)
		require.True(t, got.resp.Uncompressed)
		require.EqualValues(t, -1, got.resp.ContentLength)
		require.Empty(t, got.resp.Header.Get("Content-Encoding"))
		require.Empty(t, got.resp.Header.Get("Content-Length"))
		require.Empty(t, r.Header.Get("Accept-Encoding"), "the caller's request was changed")
	}
	require.EqualValues(t, 4, requests.Load(), "the cut answer was asked for again")
	got := answered(t, transport, post(t.Context(), s.URL+"/plain", "{}"))
	require.Equal(t, "gzip", got.body, "as an http.Transport asks")
	got = answered(t, transport, post(t.Context(), s.URL+"/empty", "{}"))
	require.Empty(t, got.body)
	err := failsWith(t, transport, post(t.Context(), s.URL+"/damaged", "{}"), gzip.ErrChecksum)
	require.ErrorIs(t, err, client.ErrOutcomeUnknown, "the error names the key")

	changing := newBase(t)
	changing.Proxy = func(r *http.Request) (*url.URL, error) {
		r.Header["Accept-Encoding"][0] = "changed"
		return nil, nil
	}
	got = answered(t, newTransport(t, changing), post(t.Context(), s.URL+"/plain", "{}"))
	require.Equal(t, "changed", got.body)
	got = answered(t, transport, post(t.Context(), s.URL+"/plain", "{}"))
	require.Equal(t, "gzip", got.body, "no two requests share a value")

	// Callers who deal with encodings themselves get what the server sends.
	own := post(t.Context(), s.URL+"/whole", "{}")
	own.Header.Set("Accept-Encoding", "gzip")
	got = answered(t, transport, own)
	require.Equal(t, packed.String(), got.body)
	base := newBase(t)
	base.DisableCompression = true
	got = answered(t, newTransport(t, base), post(t.Context(), s.URL+"/whole", "{}"))
	require.Empty(t, got.body, "nothing was asked for")
}

// A body that the caller has closed, or read to its end, is not in doubt.
func TestReadAfterTheEndIsNotUnknown(t *testing.T) {
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(w).Flush()
		_, _ = io.WriteString(w, strings.Repeat("x", 100))
	}))
	transport := newTransport(t, newBase(t))
	for _, readFirst := range []bool{false, true} {
		resp, err := transport.RoundTrip(post(t.Context(), s.URL, "{}"))
		require.NoError(t, err)
		if readFirst {
			_, err = io.ReadAll(resp.Body)
			require.NoError(t, err)
		}
		require.NoError(t, resp.Body.Close())
		_, err = resp.Body.Read(make([]byte, 1))
		require.Error(t, err)
		require.NotErrorIs(t, err, client.ErrOutcomeUnknown)
		var own *client.Error
		require.NotErrorAs(t, err, &own)
	}
}

// The channel Request.Cancel ends a call wherever it is.
func TestRequestCancelEndsTheCall(t *testing.T) {
	text := func() io.Reader { return strings.NewReader("{}") }
	never := func() io.Reader {
		body, _ := io.Pipe()
		return body
	}
	for name, c := range map[string]struct {
		answer answer
		body   func() io.Reader
		sent   int
	}{
		"in a pause":  {answer{status: 503, header: map[string]string{"Retry-After": "30"}}, text, 1},
		"in the body": {answer{status: 201}, never, 0},
		"in an attempt": {answer{do: func(r *http.Request) (*http.Response, error) {
			<-r.Cancel //nolint:staticcheck // as an http.Transport does
			return nil, errors.New("canceled")
		}}, text, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			base := answering(c.answer)
			r := request(t.Context(), http.MethodPost, place, c.body())
			cancel := make(chan struct{})
			r.Cancel = cancel //nolint:staticcheck // net/http obeys it
			time.AfterFunc(time.Second, func() { close(cancel) })
			start := time.Now()
			_, err := send(newTransport(t, base), r)
			require.Equal(t, time.Second, time.Since(start), name)
			require.Equal(t, client.ReasonContext, failure(t, err).Reason)
			require.Equal(t, c.sent > 0, errors.Is(err, client.ErrOutcomeUnknown))
			require.Len(t, base.requests(), c.sent)
		})
	}
}

// All that was declared has arrived: an error of Close does not make it a bad answer.
func TestCloseErrorOfAWholeAnswer(t *testing.T) {
	base := answering(answer{do: func(r *http.Request) (*http.Response, error) {
		resp := answer{status: 201, body: "done"}.response(r)
		resp.Body = badCloser{resp.Body}
		return resp, nil
	}})
	require.Equal(t, "done", answered(t, newTransport(t, base, quick), post(t.Context(), place, "{}")).body)
	require.Len(t, base.requests(), 1)
}

type badCloser struct{ io.Reader }

func (badCloser) Close() error { return errors.New("already closed") }

// A host that fails does not use up the retries of another.
func TestBudgetIsThatOfAHost(t *testing.T) {
	base := answering(answer{do: func(r *http.Request) (*http.Response, error) {
		if r.URL.Host == "down.test" {
			return answer{status: 503}.response(r), nil
		}
		return answer{status: 429}.response(r), nil
	}})
	transport := newTransport(t, base, quick, client.WithRetryBudget(0, 3))
	for range 10 {
		_, _ = send(transport, post(t.Context(), "http://down.test/", "{}"))
	}
	before := len(base.requests())
	answered(t, transport, post(t.Context(), "http://up.test/", "{}"))
	require.Len(t, base.requests(), before+4)
}

// One call can have limits of its own.
func TestLimitsOfACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		try := func(a answer, l client.Limits) (*client.Error, time.Duration) {
			start := time.Now()
			transport := newTransport(t, answering(a), quick, client.WithRetryBudget(100, 0))
			_, err := send(transport, post(client.WithLimits(t.Context(), l), place, "{}"))
			return failure(t, err), time.Since(start)
		}
		e, _ := try(answer{status: 503}, client.Limits{Attempts: 2})
		require.Len(t, e.Attempts, 2)
		e, _ = try(answer{status: 503}, client.Limits{Attempts: 1000})
		require.Len(t, e.Attempts, 100)
		e, _ = try(answer{status: 503}, client.Limits{Attempts: -1})
		require.Len(t, e.Attempts, 4)
		e, took := try(silent, client.Limits{Timeout: 5 * time.Second})
		require.Len(t, e.Attempts, 1)
		require.Equal(t, 5*time.Second, took)
		e, took = try(silent, client.Limits{Attempts: 3, AttemptTimeout: time.Second})
		require.Len(t, e.Attempts, 3)
		require.Equal(t, 3*time.Second, took.Round(time.Millisecond))
	})
}

// Behind a RoundTripper that is vouched for, a refused connection is known not to have run.
func TestSingleTripIsBelieved(t *testing.T) {
	const nobody = "http://127.0.0.1:1/"
	plain := newBase(t)
	wrapped := roundTripper(plain.RoundTrip)
	noToken := roundTripper(func(r *http.Request) (*http.Response, error) {
		_, err := plain.RoundTrip(request(context.Background(), http.MethodPost, nobody, http.NoBody))
		_ = r.Body.Close()
		return nil, err
	})
	says := roundTripper(func(r *http.Request) (*http.Response, error) {
		_ = r.Body.Close()
		return nil, client.NotSent(errors.New("the token is refused"))
	})
	lost := roundTripper(func(r *http.Request) (*http.Response, error) {
		resp, err := plain.RoundTrip(r)
		if err == nil {
			_ = resp.Body.Close()
			err = client.NotSent(errReset) // which is wrong: the request is seen to go out
		}
		return nil, err
	})
	s := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for name, c := range map[string]struct {
		base     http.RoundTripper
		url      string
		unknown  bool
		attempts int
	}{
		"wrapped":                       {wrapped, nobody, true, 1},
		"wrapped, vouched for":          {client.AsSingleTrip(wrapped), nobody, false, 4},
		"no token":                      {noToken, place, true, 1},
		"no token, vouched for":         {client.AsSingleTrip(noToken), place, false, 4},
		"says that nothing was sent":    {says, place, false, 4},
		"says so wrongly":               {lost, s.URL, true, 1},
		"answers nothing, vouched for":  {client.AsSingleTrip(roundTripper(func(*http.Request) (*http.Response, error) { return nil, errReset })), place, true, 1},
		"idle connections, vouched for": {client.AsSingleTrip(plain), nobody, false, 4},
	} {
		transport := newStranger(t, c.base, quick)
		_, err := send(transport, post(t.Context(), c.url, "{}"))
		require.Equal(t, c.unknown, errors.Is(err, client.ErrOutcomeUnknown), "%s: %v", name, err)
		require.Len(t, failure(t, err).Attempts, c.attempts, name)
		transport.CloseIdleConnections()
	}
}

// An error hands its key on, with its age and its doubt.
func TestErrorContinues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := answering(answer{status: 503}, answer{status: 503}, answer{status: 503}, answer{status: 503}, answer{status: 401})
		transport := newTransport(t, base, quick, client.WithTTL(time.Hour))
		_, err := send(transport, post(t.Context(), place, "{}"))
		e := failure(t, err)
		require.WithinDuration(t, time.Now(), e.Since, time.Second)
		_ = failsWith(t, transport, post(e.Context(t.Context()), place, "{}"), client.ErrOutcomeUnknown, "a 401 is not the end of it")
		base.requireOneKey(t, 5)
		time.Sleep(time.Hour)
		fails(t, transport, post(e.Context(t.Context()), place, "{}"), client.ErrKeyExpired)
		require.Len(t, base.requests(), 5)
	})
	_, err := send(newStranger(t, newBase(t), quick), post(t.Context(), "http://127.0.0.1:1/", "{}"))
	got, err := send(newTransport(t, answering(answer{status: 401})), post(failure(t, err).Context(t.Context()), place, "{}"))
	require.NoError(t, err, "nothing was sent before")
	require.Equal(t, 401, got.status)
}

// Several observers are all told.
func TestObserversAreAdded(t *testing.T) {
	first, second := new(events), new(events)
	answered(t, newTransport(t, answering(answer{status: 201}), client.WithObserver(first.observe), client.WithObserver(nil), client.WithObserver(second.observe)), post(t.Context(), place, "{}"))
	require.Len(t, first.of(client.EventAttempt), 1)
	require.Len(t, second.of(client.EventAttempt), 1)
}
