package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/client"
)

func TestBodyOverTheLimitIsRefusedBeforeAnythingIsSent(t *testing.T) {
	limit := client.WithMaxBody(10)
	base := answering(answer{status: 201})
	transport := newTransport(t, base, limit)

	body := &countedBody{Reader: strings.NewReader(strings.Repeat("x", 11))}
	fails(t, transport, request(t.Context(), http.MethodPost, place, body), client.ErrBodyTooLarge)
	require.True(t, body.closed.Load())

	body = &countedBody{Reader: errReader{errors.New("a declared length is believed")}}
	r := request(t.Context(), http.MethodPost, place, body)
	r.ContentLength = 11
	fails(t, transport, r, client.ErrBodyTooLarge)
	require.True(t, body.closed.Load())
	require.Empty(t, base.requests())

	answered(t, transport, request(t.Context(), http.MethodPost, place, once("0123456789")))
	require.EqualValues(t, 10, base.requests()[0].length)
	_, err := send(transport, post(t.Context(), place, strings.Repeat("x", 11)))
	require.NoError(t, err, "a body that can be rewound is not held")
	_, err = send(transport, request(client.WithoutKey(t.Context()), http.MethodPost, place, once(strings.Repeat("x", 11))))
	require.NoError(t, err, "nor one that is sent once")
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

func TestBodyThatCannotBeRead(t *testing.T) {
	base := answering(answer{status: 201})
	broken := errors.New("disk")
	fails(t, newTransport(t, base), request(t.Context(), http.MethodPost, place, errReader{broken}), broken)

	r := request(t.Context(), http.MethodPost, place, once("abc"))
	r.ContentLength = 4
	_, err := send(newTransport(t, base), r)
	require.ErrorContains(t, err, "3 bytes, and declares 4")
	require.Empty(t, base.requests())
	require.NotErrorIs(t, err, client.ErrOutcomeUnknown)

	resumed := client.Intent{Key: "k", Since: time.Now(), Resumed: true}.Context(t.Context())
	err = failsWith(t, newTransport(t, base), request(resumed, http.MethodPost, place, errReader{broken}), broken)
	require.ErrorIs(t, err, client.ErrOutcomeUnknown, "the process before this one may have sent it")
	require.Equal(t, "k", failure(t, err).Key)

	base = answering(answer{err: errReset})
	r = post(t.Context(), place, "abc")
	r.GetBody = func() (io.ReadCloser, error) { return nil, broken }
	err = failsWith(t, newTransport(t, base, quick), r, broken)
	require.ErrorIs(t, err, client.ErrOutcomeUnknown)
	require.Len(t, failure(t, err).Attempts, 2, "it is not tried again and again")
}

// An answer that breaks off is not one. If its length is declared, it is asked for again.
func TestAnswerThatBreaksOff(t *testing.T) {
	var requests atomic.Int64
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) == 1 || r.URL.Path == "/stream" {
			if r.URL.Path != "/stream" {
				w.Header().Set("Content-Length", "10")
			}
			_, _ = io.WriteString(w, "01234")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, "0123456789")
	})
	s := serve(t, h)
	transport := newTransport(t, newBase(t), quick)
	require.Equal(t, "0123456789", answered(t, transport, post(t.Context(), s.URL, "{}")).body)
	require.EqualValues(t, 2, requests.Load())

	got, err := send(transport, post(client.WithKey(t.Context(), "k"), s.URL+"/stream", "{}"))
	require.Equal(t, 200, got.status)
	require.Equal(t, "01234", got.body)
	require.ErrorIs(t, err, client.ErrOutcomeUnknown)
	require.Equal(t, "k", failure(t, err).Key)
	require.EqualValues(t, 3, requests.Load())

	_, err = send(transport, request(t.Context(), http.MethodGet, s.URL+"/stream", http.NoBody))
	require.Equal(t, io.ErrUnexpectedEOF, err, "without a key it is an error like any other")
}

// Of an answer that is longer than declared, the limit bounds how much is held in memory.
func TestAnswerThatIsLongerThanDeclaredIsHandedOn(t *testing.T) {
	whole := strings.Repeat("unpacked", 1000)
	rest := strings.NewReader(whole)
	base := answering(answer{do: func(r *http.Request) (*http.Response, error) {
		resp := answer{status: 200, body: "packed"}.response(r)
		resp.Body = io.NopCloser(rest) // by a RoundTripper that leaves the length as it was
		return resp, nil
	}})
	const limit = 1000
	resp, err := newTransport(t, base, client.WithMaxBody(limit)).RoundTrip(post(t.Context(), place, "{}"))
	require.NoError(t, err)
	defer resp.Body.Close()
	require.GreaterOrEqual(t, rest.Len(), len(whole)-limit-1, "no more than that is held in memory")
	got, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, whole, string(got))
}

// An answer of unknown length is handed on as it comes, however long it takes.
func TestStreamIsHandedOn(t *testing.T) {
	read := make(chan struct{})
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "a")
		_ = http.NewResponseController(w).Flush()
		<-read
		_, _ = io.WriteString(w, "b")
	}))
	resp, err := newTransport(t, newBase(t), client.WithAttemptTimeout(time.Minute)).RoundTrip(post(t.Context(), s.URL, "{}"))
	require.NoError(t, err)
	defer resp.Body.Close()
	first := make([]byte, 1)
	_, err = io.ReadFull(resp.Body, first)
	require.NoError(t, err)
	close(read)
	rest, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, "ab", string(first)+string(rest))
}

// A base that breaks the contract of http.RoundTripper does not make the caller panic.
func TestNeitherResponseNorError(t *testing.T) {
	base := answering(answer{do: func(*http.Request) (*http.Response, error) { return nil, nil }})
	fails(t, newTransport(t, base, quick), post(t.Context(), place, "{}"), client.ErrOutcomeUnknown)
}

func TestBodyThatNeverComesEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		body, never := io.Pipe()
		start := time.Now()
		base := answering(answer{status: 201})
		_, err := send(newTransport(t, base), request(ctx, http.MethodPost, place, body))
		require.Equal(t, time.Second, time.Since(start))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, client.ReasonContext, failure(t, err).Reason)
		require.Empty(t, base.requests())
		_, err = never.Write([]byte("x"))
		require.ErrorIs(t, err, io.ErrClosedPipe)
	})
}

// The same goes for a body whose Close ends no Read, such as an io.TeeReader in a request.
func TestBodyThatCannotBeInterruptedEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		body, never := io.Pipe()
		base := answering(answer{status: 201})
		time.AfterFunc(time.Minute, func() { _ = never.Close() })
		defer never.Close()
		start := time.Now()
		_, err := send(newTransport(t, base), request(ctx, http.MethodPost, place, io.TeeReader(body, io.Discard)))
		require.Equal(t, time.Second, time.Since(start))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Empty(t, base.requests())
	})
}

// A body that is long in coming leaves its attempts the time that they have, but makes no
// key younger.
func TestBodyThatComesSlowly(t *testing.T) {
	for name, c := range map[string]struct {
		after time.Duration
		want  error
	}{"beyond the deadline": {2 * time.Minute, nil}, "beyond the life of the key": {time.Hour, client.ErrKeyExpired}} {
		synctest.Test(t, func(t *testing.T) {
			base := answering(answer{do: func(r *http.Request) (*http.Response, error) {
				if err := sleepFor(r.Context(), time.Second); err != nil {
					return nil, err
				}
				return answer{status: 201}.response(r), nil
			}})
			body, w := io.Pipe()
			time.AfterFunc(c.after, func() { _ = w.Close() })
			err := failsWith(t, newTransport(t, base, client.WithTTL(time.Hour)), request(t.Context(), http.MethodPost, place, body), c.want, name)
			if c.want == nil {
				require.Len(t, base.requests(), 1)
			} else {
				require.Empty(t, base.requests())
				require.NotErrorIs(t, err, client.ErrOutcomeUnknown)
			}
		})
	}
}

func sleepFor(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// A GetBody that was left over when the body was taken away does not bring it back.
func TestNoBodyStaysNone(t *testing.T) {
	for _, none := range []io.ReadCloser{nil, http.NoBody} {
		base := answering(answer{status: 503}, answer{status: 201})
		r := post(t.Context(), place, "{}")
		r.Body, r.ContentLength = none, 0
		answered(t, newTransport(t, base, quick), r)
		base.requireOneKey(t, 2)
		require.NotNil(t, r.GetBody, "the caller's request is not changed")
	}
}

// A summedBody has a trailer that is known when it has been read.
type summedBody struct {
	io.Reader
	trailer http.Header
}

func (b summedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		b.trailer.Set("X-Sum", "42")
	}
	return n, err
}

func TestTrailerArrivesWithEachAttempt(t *testing.T) {
	var sums []string
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if sums = append(sums, r.Trailer.Get("X-Sum")); len(sums) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	for name, c := range map[string]struct {
		ctx  context.Context
		want []string
	}{
		"sent once":  {client.WithoutKey(t.Context()), []string{"42"}},
		"sent again": {t.Context(), []string{"42", "42"}},
	} {
		sums = nil
		r := request(c.ctx, http.MethodPost, s.URL, nil)
		r.Trailer = http.Header{"X-Sum": nil}
		r.Body = io.NopCloser(summedBody{strings.NewReader("body"), r.Trailer})
		r.ContentLength = -1
		answered(t, newTransport(t, newBase(t), quick), r)
		require.Equal(t, c.want, sums, name)
	}
}
