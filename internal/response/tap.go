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
	"strings"
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
// they are not there, whatever the handler sets under their names, nor as trailers. An empty name is none. The Tap has no
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

// KeepFields sets the fields of Keep again. Once the header is out, it takes away those that would be trailers.
func (t *Tap) KeepFields() {
	if len(t.kept) == 0 {
		return
	}
	h := t.Header()
	for name := range h {
		if bare, ok := strings.CutPrefix(name, http.TrailerPrefix); ok && t.keeps(bare) {
			delete(h, name)
		}
	}
	if t.status != 0 {
		return
	}
	maps.DeleteFunc(h, func(name string, _ []string) bool { return t.keeps(name) })
	for _, f := range t.kept {
		if f.Values != nil {
			h[f.Name] = slices.Clone(f.Values)
		}
	}
	if announced := strings.Join(h["Trailer"], ","); announced != "" { // the others are no trailers
		names := slices.DeleteFunc(strings.Split(announced, ","), func(name string) bool { return t.keeps(strings.TrimSpace(name)) })
		if delete(h, "Trailer"); len(names) > 0 {
			h["Trailer"] = []string{strings.Join(names, ",")}
		}
	}
}

// keeps reports whether a field is one of Keep, however its name is spelled.
func (t *Tap) keeps(name string) bool {
	return slices.ContainsFunc(t.kept, func(f answer.Field) bool { return isSpelled(name, f.Name) })
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

// ReadFrom leaves the copying to the writer behind, which frames the answer by how it is written.
// It measures what has been read.
func (t *Tap) ReadFrom(src io.Reader) (int64, error) {
	t.KeepFields()
	return io.Copy(t.ResponseWriter, io.TeeReader(src, noter{t}))
}

// A noter measures what is written to it.
type noter struct{ tap *Tap }

func (n noter) Write(p []byte) (int, error) {
	n.tap.Note(http.StatusOK, p)
	return len(p), nil
}

// Push returns [http.ErrNotSupported] where the writer behind cannot push, as net/http does for a client
// that wants no pushes.
func (t *Tap) Push(target string, opts *http.PushOptions) error {
	if p, ok := t.ResponseWriter.(http.Pusher); ok {
		return p.Push(target, opts)
	}
	return http.ErrNotSupported
}

// CloseNotify is for frameworks that still ask for an http.CloseNotifier, which is deprecated. The
// channel never gets a value where the writer behind has no such method.
func (t *Tap) CloseNotify() <-chan bool {
	if n, ok := t.ResponseWriter.(interface{ CloseNotify() <-chan bool }); ok {
		return n.CloseNotify()
	}
	return nil
}

// SetReadDeadline serves handlers that ask for it without an [http.ResponseController].
func (t *Tap) SetReadDeadline(deadline time.Time) error {
	return http.NewResponseController(t.ResponseWriter).SetReadDeadline(deadline)
}

// SetWriteDeadline serves handlers that ask for it without an [http.ResponseController].
func (t *Tap) SetWriteDeadline(deadline time.Time) error {
	return http.NewResponseController(t.ResponseWriter).SetWriteDeadline(deadline)
}

// EnableFullDuplex serves handlers that ask for it without an [http.ResponseController].
func (t *Tap) EnableFullDuplex() error {
	return http.NewResponseController(t.ResponseWriter).EnableFullDuplex()
}

// Writer returns the writer that a handler gets. It has Flush and Hijack only if the writer behind the
// Tap has them: a handler that finds them by a type assertion answers in another way.
func (t *Tap) Writer() http.ResponseWriter {
	_, flushes := t.ResponseWriter.(http.Flusher)
	_, hijacks := t.ResponseWriter.(http.Hijacker)
	switch {
	case flushes && hijacks:
		return struct {
			*Tap
			flusher
			hijacker
		}{t, flusher{t}, hijacker{t}}
	case flushes:
		return struct {
			*Tap
			flusher
		}{t, flusher{t}}
	case hijacks:
		return struct {
			*Tap
			hijacker
		}{t, hijacker{t}}
	default:
		return t
	}
}

type (
	flusher  struct{ tap *Tap }
	hijacker struct{ tap *Tap }
)

func (f flusher) Flush() { _ = f.tap.FlushError() } // as Flush has no result

func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := h.tap.ResponseWriter.(http.Hijacker).Hijack()
	if err == nil {
		h.tap.see(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}
