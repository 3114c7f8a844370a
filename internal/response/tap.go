package response

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"time"

	"example.com/idempotency/internal/answer"
)

// A Tap passes an answer on as it comes, and takes its measure. It must not be used by several
// goroutines at once, as no [http.ResponseWriter] may.
type Tap struct {
	http.ResponseWriter
	kept   []answer.Field // whatever the handler does to them
	status int
	size   int64
	sum    hash.Hash // nil if nobody asks for it
	judged uint8
}

// NewTap returns a Tap in front of w. A handler gets its Writer.
func NewTap(w http.ResponseWriter) *Tap { return &Tap{ResponseWriter: w, sum: sha256.New()} }

// Keep returns a Tap through which fields go out as they are in the header of w now, or do not go out if
// they are not there, whatever the handler sets under their names. An empty name is none. The Tap has no
// Sum. KeepFields must be called when the handler has returned.
func Keep(w http.ResponseWriter, names ...string) *Tap {
	t := &Tap{ResponseWriter: w}
	for _, name := range names {
		if name != "" {
			t.kept = append(t.kept, answer.Field{Name: name, Values: slices.Clone(w.Header()[name])})
		}
	}
	return t
}

// KeepFields sets the fields of Keep again. It has no effect once the header is out.
func (t *Tap) KeepFields() {
	if t.status != 0 {
		return
	}
	for _, f := range t.kept {
		h := t.Header()
		maps.DeleteFunc(h, func(name string, _ []string) bool { return isSpelled(name, f.Name) })
		if f.Values != nil {
			h[f.Name] = slices.Clone(f.Values)
		}
	}
}

// Status returns the status of the answer, and 0 if there is none yet.
func (t *Tap) Status() int { return t.status }

// Size returns the number of bytes of the body.
func (t *Tap) Size() int64 { return t.size }

// Sum returns the SHA-256 of the body.
func (t *Tap) Sum() []byte { return t.sum.Sum(nil) }

// Note measures a part of an answer that does not come through the Tap. An adapter calls it for a
// framework whose handlers keep their own writer.
func (t *Tap) Note(status int, part []byte) {
	t.see(status)
	t.size += int64(len(part))
	if t.sum != nil {
		t.sum.Write(part)
	}
}

// Judge says what the outcome of the answer is, whatever its status. An adapter calls it where it
// would tell the run.
func (t *Tap) Judge(outcome uint8) { t.judged = outcome }

// Judged returns what Judge was told, or 0.
func (t *Tap) Judged() uint8 { return t.judged }

// WriteHeader notes the first status that is not informational.
func (t *Tap) WriteHeader(status int) {
	t.KeepFields()
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
	t.KeepFields()
	t.see(http.StatusOK)
	n, err := t.ResponseWriter.Write(p)
	t.Note(http.StatusOK, p[:n])
	return n, err
}

// WriteString passes s on. Only [io.WriteString] can tell whether the writer behind has that
// method, and it does the same without it.
func (t *Tap) WriteString(s string) (int, error) {
	t.KeepFields()
	t.see(http.StatusOK)
	n, err := io.WriteString(t.ResponseWriter, s)
	t.Note(http.StatusOK, []byte(s[:n]))
	return n, err
}

// FlushError passes a flush on. It is no ability that a handler can ask for by itself: a handler calls
// it through [http.ResponseController], which would find the writer behind otherwise, past the Tap.
func (t *Tap) FlushError() error {
	t.KeepFields()
	err := http.NewResponseController(t.ResponseWriter).Flush()
	if !errors.Is(err, http.ErrNotSupported) {
		t.see(http.StatusOK)
	}
	return err
}

// Unwrap is for [http.ResponseController].
func (t *Tap) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// What a writer offers besides is a type each, because a handler asks for it with a type assertion:
// the Writer of a Tap has those that the writer behind it has. See taps.go.
type (
	flusher       struct{ tap *Tap }
	hijacker      struct{ tap *Tap }
	pusher        struct{ tap *Tap }
	readerFrom    struct{ tap *Tap }
	closeNotifier struct{ tap *Tap }
	controls      struct{ tap *Tap }
)

// A controller is what [http.ResponseController] asks for besides Flush and Hijack.
type controller interface {
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
	EnableFullDuplex() error
}

func (f flusher) Flush() { _ = f.tap.FlushError() } // as Flush has no result

func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := h.tap.ResponseWriter.(http.Hijacker).Hijack()
	if err == nil {
		h.tap.see(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}

func (p pusher) Push(target string, opts *http.PushOptions) error {
	return p.tap.ResponseWriter.(http.Pusher).Push(target, opts)
}

// ReadFrom leaves the copying to the writer behind, which frames the answer by how it is written.
// It measures what has been read.
func (r readerFrom) ReadFrom(src io.Reader) (int64, error) {
	r.tap.KeepFields()
	return r.tap.ResponseWriter.(io.ReaderFrom).ReadFrom(io.TeeReader(src, noter(r)))
}

// A noter measures what is written to it.
type noter struct{ tap *Tap }

func (n noter) Write(p []byte) (int, error) {
	n.tap.Note(http.StatusOK, p)
	return len(p), nil
}

func (c closeNotifier) CloseNotify() <-chan bool {
	return c.tap.ResponseWriter.(oldCloseNotifier).CloseNotify()
}

// An oldCloseNotifier is an http.CloseNotifier, which is deprecated, and which frameworks still ask
// for.
type oldCloseNotifier interface{ CloseNotify() <-chan bool }

func (c controls) SetReadDeadline(t time.Time) error {
	return c.tap.ResponseWriter.(controller).SetReadDeadline(t)
}

func (c controls) SetWriteDeadline(t time.Time) error {
	return c.tap.ResponseWriter.(controller).SetWriteDeadline(t)
}

func (c controls) EnableFullDuplex() error {
	return c.tap.ResponseWriter.(controller).EnableFullDuplex()
}
