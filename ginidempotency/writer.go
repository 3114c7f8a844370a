package ginidempotency

import (
	"bufio"
	"io"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"
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
	if status > 0 && !w.Written() {
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
