package response_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/response"
)

// Each event of a stream reaches the client before the handler writes the next one. The
// replay is the whole stream.
func TestStreamIsLiveAndReplayedWhole(t *testing.T) {
	guardtest.OnEachServer(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		const events = 3
		seen := make(chan struct{})
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			w.Header().Set("Content-Type", "text/event-stream")
			c := http.NewResponseController(w)
			for range events {
				_, _ = io.WriteString(w, "data: event\n\n")
				assert.NoError(t, c.Flush(), "flush")
				<-seen
			}
		}}
		s := serve(record(h))
		resp, err := s.Client.Do(s.Request(t.Context(), guardtest.Call{Key: "k"}))
		require.NoError(t, err)
		defer resp.Body.Close()
		event := make([]byte, len("data: event\n\n"))
		for range events {
			_, err := io.ReadFull(resp.Body, event)
			require.NoError(t, err)
			require.Equal(t, "data: event\n\n", string(event))
			seen <- struct{}{}
		}
		rest, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Empty(t, rest)

		again := s.Do(t, guardtest.Call{Key: "k"})
		require.True(t, again.Replayed())
		require.Equal(t, strings.Repeat("data: event\n\n", events), again.Body)
		require.Equal(t, "text/event-stream", again.Header.Get("Content-Type"))
		require.EqualValues(t, 1, h.Runs.Load())
	})
}

// With large pieces a write fails first, and with small ones a flush. The handler sees
// neither.
func TestStreamIsRecordedWhenTheClientIsGone(t *testing.T) {
	guardtest.OnEachServer(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		for _, size := range []int{10, 10_000} {
			gone := make(chan struct{})
			h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
				for i := range 50 {
					_, err := w.Write(make([]byte, size))
					err = errors.Join(err, http.NewResponseController(w).Flush())
					assert.NoError(t, err, i)
					if i == 0 {
						<-gone
					}
				}
			}}
			s := serve(guardtest.Noticing(gone, record(h)))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			resp, err := s.Client.Do(s.Request(ctx, guardtest.Call{Key: "k"}))
			require.NoError(t, err)
			cancel()
			resp.Body.Close()

			got := s.Do(t, guardtest.Call{Key: "k"})
			require.True(t, got.Replayed())
			require.Equal(t, string(make([]byte, 50*size)), got.Body)
			require.EqualValues(t, 1, h.Runs.Load())
		}
	})
}

// The limit counts the bytes that the handler writes: in one piece, in many, streamed before
// or after the body has grown too large.
func TestAnswerAtTheLimit(t *testing.T) {
	const limit = 100
	flush := func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }
	writers := map[string]func(w http.ResponseWriter, body string){
		"one write": func(w http.ResponseWriter, body string) { _, _ = io.WriteString(w, body) },
		"many writes": func(w http.ResponseWriter, body string) {
			for i := range body {
				_, _ = io.WriteString(w, body[i:i+1])
			}
		},
		"io.Copy": func(w http.ResponseWriter, body string) {
			_, _ = io.Copy(w, struct{ io.Reader }{strings.NewReader(body)})
		},
		"flush first": func(w http.ResponseWriter, body string) {
			flush(w)
			_, _ = io.WriteString(w, body)
		},
		"flush in the middle": func(w http.ResponseWriter, body string) {
			_, _ = io.WriteString(w, body[:50])
			flush(w)
			_, _ = io.WriteString(w, body[50:])
			flush(w)
		},
		"flush at the end": func(w http.ResponseWriter, body string) {
			_, _ = io.WriteString(w, body[:50])
			_, _ = io.WriteString(w, body[50:])
			flush(w)
		},
	}
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		for name, write := range writers {
			t.Run(name, func(t *testing.T) {
				body := "<!DOCTYPE html>" + strings.Repeat("x", limit-len("<!DOCTYPE html>"))
				h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { write(w, body) })
				s := serve(&recording{handler: h, limit: limit})
				first, again := s.Do(t, guardtest.Call{Key: "k"}), s.Do(t, guardtest.Call{Key: "k"})
				guardtest.RequireReplay(t, first, again)
				require.Equal(t, body, first.Body)

				body += "y"
				s = serve(&recording{handler: h, limit: limit})
				first = s.Do(t, guardtest.Call{Key: "k"})
				require.Equal(t, http.StatusOK, first.Status)
				require.Equal(t, body, first.Body)
				if s.Real() {
					bare := serve(h).Do(t, guardtest.Call{})
					require.Equal(t, bare.Header.Values("Content-Type"), first.Header.Values("Content-Type"))
				}
				require.Equal(t, notKept, s.Do(t, guardtest.Call{Key: "k"}).Status)
			})
		}
	})
}

// A handler may go on to use the memory of its header. The record has the values that were
// sent.
func TestHeaderOfAStreamIsRecordedAsItWasSent(t *testing.T) {
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			state := []string{"begun"}
			w.Header()["X-State"] = state
			_ = http.NewResponseController(w).Flush()
			state[0] = "ended"
		}}
		s := serve(record(h))
		s.Do(t, guardtest.Call{Key: "k"})
		again := s.Do(t, guardtest.Call{Key: "k"})
		require.True(t, again.Replayed())
		require.Equal(t, "begun", again.Header.Get("X-State"))
	})
}

// bare hides all abilities of the writer in it.
type bare struct{ http.ResponseWriter }

// outward shows the writer in it to http.ResponseController.
type outward struct{ http.ResponseWriter }

func (w outward) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// delegating is a wrapper that has the method and passes the call on.
type delegating struct{ outward }

func (w delegating) FlushError() error {
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// A flush that no writer can do sends nothing, and leaves the answer to the handler.
func TestFlushThatCannotBeDoneChangesNothing(t *testing.T) {
	heldBack := func(w http.ResponseWriter) http.ResponseWriter {
		rec := started(w, response.Settings{Limit: 100}, nil)
		require.True(t, rec.HoldBack())
		return rec
	}
	writers := map[string]struct {
		wrap    func(http.ResponseWriter) http.ResponseWriter
		flushes bool
	}{
		"flushes":                    {func(w http.ResponseWriter) http.ResponseWriter { return w }, true},
		"unwraps":                    {func(w http.ResponseWriter) http.ResponseWriter { return outward{w} }, true},
		"delegates":                  {func(w http.ResponseWriter) http.ResponseWriter { return delegating{outward{w}} }, true},
		"tap":                        {func(w http.ResponseWriter) http.ResponseWriter { return response.NewTap(w).Writer() }, true},
		"hides":                      {func(w http.ResponseWriter) http.ResponseWriter { return bare{w} }, false},
		"unwraps what hides":         {func(w http.ResponseWriter) http.ResponseWriter { return outward{bare{w}} }, false},
		"delegates to what hides":    {func(w http.ResponseWriter) http.ResponseWriter { return delegating{outward{bare{w}}} }, false},
		"tap in front of what hides": {func(w http.ResponseWriter) http.ResponseWriter { return response.NewTap(bare{w}).Writer() }, false},
		"another one holds back":     {heldBack, false},
	}
	for name, c := range writers {
		t.Run(name, func(t *testing.T) {
			client := httptest.NewRecorder()
			rec := started(c.wrap(client), response.Settings{Limit: 100}, nil)
			err := http.NewResponseController(rec).Flush()
			if c.flushes {
				require.NoError(t, err)
				require.True(t, rec.Sent())
				require.True(t, client.Flushed)
				return
			}
			require.ErrorIs(t, err, http.ErrNotSupported)
			require.False(t, rec.Sent())
			require.Zero(t, rec.Status())
			rec.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(rec, "failed")
			rec.Flush()
			require.False(t, rec.Sent())
			require.False(t, client.Flushed)
			rec.Close(true)
			require.Equal(t, http.StatusInternalServerError, rec.Answer().Status)
		})
	}
}

// Behind a TimeoutHandler nothing can be asked of the connection. The handler hears of it, and its
// answer is the one that it gives afterwards.
func TestAbilitiesThatAreMissingBehindATimeoutHandler(t *testing.T) {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := new(response.Recorder)
		rec.Init(w, r.Method, response.Settings{Limit: 100}, nil)
		c := http.NewResponseController(rec)
		_, _, hijacked := c.Hijack()
		for _, err := range []error{
			c.Flush(), c.EnableFullDuplex(), c.SetReadDeadline(time.Time{}), c.SetWriteDeadline(time.Time{}), hijacked,
		} {
			assert.ErrorIs(t, err, http.ErrNotSupported)
		}
		assert.Zero(t, rec.Status())
		rec.WriteHeader(http.StatusInternalServerError)
		rec.Close(true)
		assert.False(t, rec.Sent())
		assert.Equal(t, http.StatusInternalServerError, rec.Answer().Status)
		rec.Respond()
	})
	client := httptest.NewRecorder()
	http.TimeoutHandler(h, time.Minute, "").ServeHTTP(client, httptest.NewRequest(http.MethodPost, "/", http.NoBody))
	require.Equal(t, http.StatusInternalServerError, client.Code)
}

// A Tap sees the header that a flush sends, also where the writer that flushes is behind others.
func TestTapSeesAFlushBehindUnwrap(t *testing.T) {
	client := httptest.NewRecorder()
	tap := response.NewTap(outward{client})
	require.NoError(t, http.NewResponseController(tap.Writer()).Flush())
	require.True(t, client.Flushed)
	require.Equal(t, http.StatusOK, tap.Status())
	require.ErrorIs(t, http.NewResponseController(response.NewTap(bare{client}).Writer()).Flush(), http.ErrNotSupported)
}
