package ginidempotency

import (
	"bufio"
	"io"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"

	"example.com/idempotency/internal/frame"
)

// A writer is a gin.ResponseWriter on top of the guard's. Like gin's own, it holds the status back
// until there is something to write.
type writer struct {
	http.ResponseWriter
	status, size int
	set          bool   // the status, by the handler
	commit       func() // makes gin's own writer send its header; or nil
}

var _ gin.ResponseWriter = (*writer)(nil)

const notWritten = -1

func newWriter(w http.ResponseWriter, status int) *writer {
	return &writer{ResponseWriter: w, status: status, size: notWritten}
}

func (w *writer) Status() int   { return w.status }
func (w *writer) Size() int     { return w.size }
func (w *writer) Written() bool { return w.size != notWritten }

func (w *writer) WriteHeader(status int) {
	switch {
	case w.Written():
		w.ResponseWriter.WriteHeader(status) // too late for the client; the guard learns of a failure
	case status > 0:
		w.status, w.set = status, true
	}
}

func (w *writer) WriteHeaderNow() {
	if !w.Written() {
		w.size = 0
		w.ResponseWriter.WriteHeader(w.status)
		if w.commit != nil {
			w.commit()
		}
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

// An outer is gin's writer, as the guard gets it.
type outer struct {
	gin.ResponseWriter
	size int // before the run
}

// Bypassed tells the guard that a handler has answered past it: with Engine.HandleContext, which
// gives it a new writer.
func (w *outer) Bypassed() bool { return w.Size() != w.size }

// Unwrap serves http.ResponseController.
func (w *outer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// A notingWriter is the writer of handlers beside a guard that only looks on: the one that they
// would have without it.
type notingWriter struct {
	gin.ResponseWriter
	tap frame.Tap
}

func (w *notingWriter) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	w.tap.Note(w.Status(), p[:n])
	return n, err
}

func (w *notingWriter) WriteString(s string) (int, error) {
	n, err := w.ResponseWriter.WriteString(s)
	w.tap.Note(w.Status(), []byte(s[:n]))
	return n, err
}

// Unwrap serves http.ResponseController.
func (w *notingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
