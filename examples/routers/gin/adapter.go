package main

import (
	"bufio"
	"io"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"

	"example.com/idempotency"
)

// idempotent turns a guard into a gin middleware.
//
// gin's handlers write to c.Writer, not to the ResponseWriter that a net/http middleware
// passes down. With an adapter that only calls c.Next in the guard's handler, they write past
// the guard: their answer goes out at once, the guard sees a handler that wrote nothing, and
// records an empty 200. So during the run this adapter replaces c.Writer by a writer on top of
// the guard's.
func idempotent(guard *idempotency.Guard) gin.HandlerFunc {
	return func(c *gin.Context) {
		outer, request := c.Writer, c.Request
		ran := false
		guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ran = true
			inner := &writer{ResponseWriter: w, status: http.StatusOK, size: notWritten}
			c.Writer, c.Request = inner, r
			// Deferred, because after a panic an outer middleware answers.
			defer func() { c.Writer, c.Request = outer, request }()
			c.Next()
			// A handler may have set only a status. gin does this too, but for its own
			// writer.
			inner.WriteHeaderNow()
		})).ServeHTTP(outer, request)
		if !ran {
			// The guard has answered. Without this, gin would call the next handler.
			c.Abort()
		}
	}
}

// A writer is a gin.ResponseWriter on top of the guard's writer. Like gin's own, it holds the
// status back until there is something to write.
type writer struct {
	http.ResponseWriter
	status, size int
}

var _ gin.ResponseWriter = (*writer)(nil)

const notWritten = -1

func (w *writer) Status() int   { return w.status }
func (w *writer) Size() int     { return w.size }
func (w *writer) Written() bool { return w.size != notWritten }

func (w *writer) WriteHeader(status int) {
	if status > 0 && !w.Written() {
		w.status = status
	}
}

func (w *writer) WriteHeaderNow() {
	if !w.Written() {
		w.size = 0
		w.ResponseWriter.WriteHeader(w.status)
	}
}

func (w *writer) Write(p []byte) (int, error) {
	w.WriteHeaderNow()
	n, err := w.ResponseWriter.Write(p)
	w.size += n
	return n, err
}

func (w *writer) WriteString(s string) (int, error) {
	w.WriteHeaderNow()
	n, err := io.WriteString(w.ResponseWriter, s)
	w.size += n
	return n, err
}

func (w *writer) Flush() {
	w.WriteHeaderNow()
	_ = http.NewResponseController(w.ResponseWriter).Flush()
}

// Unwrap serves http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack returns the guard's refusal, because nothing records what goes out on a bare
// connection.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

// Pusher returns nil, because a recorded answer cannot push.
func (w *writer) Pusher() http.Pusher { return nil }

// CloseNotify never fires, because a run outlives its client.
func (w *writer) CloseNotify() <-chan bool { return nil }
