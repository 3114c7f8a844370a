package response

import (
	"bufio"
	"crypto/sha256"
	"hash"
	"io"
	"net"
	"net/http"
)

// A Tap passes an answer on as it comes, and takes its measure. It must not be used by several
// goroutines at once, as no [http.ResponseWriter] may.
type Tap struct {
	http.ResponseWriter
	status int
	size   int64
	sum    hash.Hash
}

// NewTap returns a Tap in front of w.
func NewTap(w http.ResponseWriter) *Tap { return &Tap{ResponseWriter: w, sum: sha256.New()} }

// Status returns the status of the answer, and 0 if there is none yet.
func (t *Tap) Status() int { return t.status }

// Size returns the number of bytes of the body.
func (t *Tap) Size() int64 { return t.size }

// Sum returns the SHA-256 of the body.
func (t *Tap) Sum() []byte { return t.sum.Sum(nil) }

// WriteHeader notes the first status that is not informational.
func (t *Tap) WriteHeader(status int) {
	t.ResponseWriter.WriteHeader(status)
	t.see(status)
}

func (t *Tap) see(status int) {
	if t.status == 0 && (status >= http.StatusOK || status == http.StatusSwitchingProtocols) {
		t.status = status
	}
}

// Write passes p on.
func (t *Tap) Write(p []byte) (int, error) {
	t.see(http.StatusOK)
	n, err := t.ResponseWriter.Write(p)
	t.size += int64(n)
	t.sum.Write(p[:n])
	return n, err
}

// ReadFrom copies through Write: what the kernel copied would not be seen.
func (t *Tap) ReadFrom(src io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{t}, src)
}

// Flush sends what has been written, if the writer behind can do that.
func (t *Tap) Flush() {
	if http.NewResponseController(t.ResponseWriter).Flush() == nil {
		t.see(http.StatusOK)
	}
}

// Hijack hands the connection over, if the writer behind can do that.
func (t *Tap) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(t.ResponseWriter).Hijack()
	if err == nil {
		t.see(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}

// CloseNotify serves frameworks that still ask for it.
func (t *Tap) CloseNotify() <-chan bool {
	if w, ok := t.ResponseWriter.(interface{ CloseNotify() <-chan bool }); ok {
		return w.CloseNotify()
	}
	return nil
}

// Unwrap is for [http.ResponseController].
func (t *Tap) Unwrap() http.ResponseWriter { return t.ResponseWriter }
