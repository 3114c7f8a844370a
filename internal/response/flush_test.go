package response_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/response"
)

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
	t.Parallel()
	heldBack := func(w http.ResponseWriter) http.ResponseWriter {
		rec := new(response.Recorder)
		rec.Init(w, http.MethodPost, response.Settings{Limit: 100}, nil)
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
			t.Parallel()
			client := httptest.NewRecorder()
			rec := new(response.Recorder)
			rec.Init(c.wrap(client), http.MethodPost, response.Settings{Limit: 100}, nil)
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
	t.Parallel()
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
	t.Parallel()
	client := httptest.NewRecorder()
	tap := response.NewTap(outward{client})
	require.NoError(t, http.NewResponseController(tap.Writer()).Flush())
	require.True(t, client.Flushed)
	require.Equal(t, http.StatusOK, tap.Status())
	require.ErrorIs(t, http.NewResponseController(response.NewTap(bare{client}).Writer()).Flush(), http.ErrNotSupported)
}
