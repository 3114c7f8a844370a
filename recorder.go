package idempotency

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// errHandlerReturned is what a handler gets that writes after it has returned: its
// answer has been recorded, or given up, by then.
var errHandlerReturned = errors.New("idempotency: write after the handler returned")

// A captureMode is what a recorder does with the bytes it is given.
type captureMode uint8

const (
	// buffering keeps header and body back until the run is settled.
	buffering captureMode = iota
	// teeing sends bytes as they come and keeps a copy; entered by Flush.
	teeing
	// passing only sends; entered when the answer outgrows the limit.
	passing
)

// A recorder is the ResponseWriter of a run. It keeps the answer back so that it can
// be recorded before the client sees it, and stands in the way of every method by
// which a handler could reach the connection behind its back: it has no Unwrap, and
// offers what http.ResponseController can do itself.
//
// It is never reused: a handler may keep it and write to it after it has returned.
type recorder struct {
	mu     sync.Mutex
	w      http.ResponseWriter
	method string
	echo   string // the field that echoes the key; the guard's own, not shown to the handler
	limit  int64
	bufs   *sync.Pool

	header      http.Header // the handler's view; outer handlers' fields are copied in
	mode        captureMode
	wroteHeader bool
	closed      bool
	clientGone  bool
	typed       bool // no type is to be detected, by the header as it was sent
	status      int
	declared    int64 // Content-Length as declared by the handler, or -1
	written     int64
	buf         *[]byte
	diff        headerDiff
	fields      [6]field  // the first of diff.recorded, without an allocation
	length      [1]string // the Content-Length that is sent, likewise
}

func (rec *recorder) init(w http.ResponseWriter, method, echo string, limit int64, bufs *sync.Pool) {
	rec.w, rec.method, rec.echo, rec.limit, rec.bufs = w, method, echo, limit, bufs
	rec.declared = -1
	rec.diff.recorded = rec.fields[:0]
	outer := w.Header()
	rec.header = make(http.Header, len(outer)+2)
	for name, values := range outer {
		if name != echo {
			rec.header[name] = append([]string(nil), values...)
		}
	}
}

// Header implements http.ResponseWriter.
func (rec *recorder) Header() http.Header { return rec.header }

// WriteHeader implements http.ResponseWriter. Informational answers pass through at
// once and do not count as the answer.
func (rec *recorder) WriteHeader(status int) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.writeHeader(status)
}

func (rec *recorder) writeHeader(status int) {
	if rec.closed || rec.wroteHeader {
		return
	}
	if status < 100 || status > 999 {
		// The same panic as net/http's, at the same place of the handler.
		panic(fmt.Sprintf("invalid WriteHeader code %v", status))
	}
	if status < 200 && status != http.StatusSwitchingProtocols {
		rec.inform(status)
		return
	}
	rec.wroteHeader = true
	rec.status = status
	diffHeader(rec.w.Header(), rec.header, rec.echo, &rec.diff)
	rec.typed = rec.hasType()
	rec.takeDeclaredLength()
}

// inform sends a 1xx answer with the header as it is now, and takes the fields out
// again, because what outer handlers set is what the answer is compared with.
func (rec *recorder) inform(status int) {
	outer := rec.w.Header()
	saved := outer.Clone()
	maps.Copy(outer, rec.header)
	rec.w.WriteHeader(status)
	clear(outer)
	maps.Copy(outer, saved)
}

// takeDeclaredLength reads the length that the handler promises. Where no body is
// sent the length cannot be recomputed, so that it is recorded as it is, and where it
// means nothing it is no promise.
func (rec *recorder) takeDeclaredLength() {
	values := rec.header["Content-Length"]
	if len(values) == 0 {
		return
	}
	n, err := strconv.ParseInt(values[0], 10, 64)
	if err != nil || n < 0 {
		return
	}
	switch {
	case rec.method == http.MethodHead || rec.status == http.StatusNotModified:
		rec.diff.recorded = append(rec.diff.recorded, field{name: "Content-Length", values: values})
	case bodyAllowed(rec.status):
		rec.declared = n
	}
}

// Write implements http.ResponseWriter. It fails only for mistakes of the handler: an
// error of the client's connection must not stop a run half-way through its answer.
func (rec *recorder) Write(p []byte) (int, error) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if err := rec.accept(len(p)); err != nil {
		return 0, err
	}
	rec.take(p)
	return len(p), nil
}

// WriteString implements io.StringWriter, without a copy while the answer is buffered.
func (rec *recorder) WriteString(s string) (int, error) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if err := rec.accept(len(s)); err != nil {
		return 0, err
	}
	if rec.mode == buffering && rec.method != http.MethodHead {
		*rec.buf = append(*rec.buf, s...)
	} else {
		rec.take([]byte(s))
	}
	return len(s), nil
}

// take keeps and sends p as the mode demands.
func (rec *recorder) take(p []byte) {
	if rec.method == http.MethodHead {
		return
	}
	if rec.mode != passing {
		*rec.buf = append(*rec.buf, p...)
	}
	if rec.mode != buffering {
		rec.forward(p)
	}
}

// accept checks a write of n bytes and makes room for it.
func (rec *recorder) accept(n int) error {
	if rec.closed {
		return errHandlerReturned
	}
	if !rec.wroteHeader {
		rec.writeHeader(http.StatusOK)
	}
	if !bodyAllowed(rec.status) {
		return http.ErrBodyNotAllowed
	}
	if rec.declared >= 0 && rec.written+int64(n) > rec.declared {
		return http.ErrContentLength
	}
	rec.written += int64(n)
	if rec.mode != passing && rec.method != http.MethodHead {
		if rec.written > rec.limit || rec.declared > rec.limit {
			rec.startPassing()
			return nil
		}
		if rec.buf == nil {
			rec.buf = rec.bufs.Get().(*[]byte)
		}
	}
	return nil
}

// ReadFrom implements io.ReaderFrom through Write: handing the reader to the writer
// behind would send what is never recorded.
func (rec *recorder) ReadFrom(r io.Reader) (int64, error) {
	chunk := copyBuffers.Get().(*[copyBufferSize]byte)
	defer copyBuffers.Put(chunk)
	return io.CopyBuffer(struct{ io.Writer }{rec}, struct{ io.Reader }{r}, chunk[:])
}

const copyBufferSize = 32 << 10

var copyBuffers = sync.Pool{New: func() any { return new([copyBufferSize]byte) }}

// Flush implements http.Flusher.
func (rec *recorder) Flush() { _ = rec.FlushError() }

// FlushError sends what has been written so far. From then on bytes go out as they
// are written, and are still kept: the answer is recorded when the run ends.
func (rec *recorder) FlushError() error {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if rec.closed {
		return errHandlerReturned
	}
	flusher := http.NewResponseController(rec.w)
	if !rec.wroteHeader {
		rec.writeHeader(http.StatusOK)
	}
	if rec.mode == buffering {
		rec.startTeeing()
	}
	if rec.clientGone {
		return nil
	}
	if err := flusher.Flush(); err != nil {
		if errors.Is(err, http.ErrNotSupported) {
			return err
		}
		rec.clientGone = true
	}
	return nil
}

// Hijack refuses, by http.ErrNotSupported: an answer sent on a bare connection cannot
// be recorded.
func (rec *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return nil, nil, http.ErrNotSupported
}

// SetReadDeadline serves http.ResponseController.
func (rec *recorder) SetReadDeadline(t time.Time) error {
	return http.NewResponseController(rec.w).SetReadDeadline(t)
}

// SetWriteDeadline serves http.ResponseController.
func (rec *recorder) SetWriteDeadline(t time.Time) error {
	return http.NewResponseController(rec.w).SetWriteDeadline(t)
}

// EnableFullDuplex serves http.ResponseController.
func (rec *recorder) EnableFullDuplex() error {
	return http.NewResponseController(rec.w).EnableFullDuplex()
}

// startTeeing sends the header and what is buffered, before the end of the answer is
// known.
func (rec *recorder) startTeeing() {
	rec.mode = teeing
	body := rec.body()
	if !rec.detectType(body) && bodyAllowed(rec.status) {
		// The header goes out without a type that net/http could tell from the body.
		// The replay, which has the body, must not be cleverer.
		rec.diff.recorded = append(rec.diff.recorded, field{name: "Content-Type"})
	}
	for i, f := range rec.diff.recorded { // what is sent is recorded, whatever the handler goes on to do with it
		rec.diff.recorded[i].values = slices.Clone(f.values)
	}
	announce(rec.w.Header(), rec.diff.trailer)
	rec.sendHead()
	rec.forward(body)
}

// startPassing gives up the copy of the answer, and sends what has not been sent. There
// is no replay whose Content-Type could differ, so that it is left to net/http.
func (rec *recorder) startPassing() {
	if rec.mode == buffering {
		announce(rec.w.Header(), rec.diff.trailer)
		rec.sendHead()
		rec.forward(rec.body())
	}
	rec.mode = passing
	rec.dropBuffer()
}

// detectType settles the Content-Type of an answer without one, as net/http would, so
// that the first answer and its replays agree. It reports whether there is a type or
// none is to be sent.
func (rec *recorder) detectType(body []byte) bool {
	if rec.typed {
		return true
	}
	if len(body) == 0 || !bodyAllowed(rec.status) {
		return false
	}
	rec.diff.recorded = append(rec.diff.recorded,
		field{name: "Content-Type", values: []string{http.DetectContentType(body)}})
	return true
}

// hasType reports whether the header, as it is now, leaves no type to be detected. A body
// that the handler has encoded does not show its type; one that an outer handler is going to
// encode does.
func (rec *recorder) hasType() bool {
	coding := rec.header["Content-Encoding"]
	encoded := len(coding) > 0 && !slices.Equal(coding, rec.w.Header()["Content-Encoding"])
	_, ok := rec.header["Content-Type"]
	return ok || encoded
}

// sendHead sends status and header of the first answer.
func (rec *recorder) sendHead() {
	h := rec.w.Header()
	for _, f := range rec.diff.recorded {
		setField(h, f)
	}
	for _, f := range rec.diff.live {
		setField(h, f)
	}
	rec.w.WriteHeader(rec.status)
}

func (rec *recorder) forward(p []byte) {
	if rec.clientGone || len(p) == 0 {
		return
	}
	if _, err := rec.w.Write(p); err != nil {
		rec.clientGone = true
	}
}

func (rec *recorder) body() []byte {
	if rec.buf == nil {
		return nil
	}
	return *rec.buf
}

// maxPooledBuffer keeps a few large answers from pinning their memory forever.
const maxPooledBuffer = 2 << 20

func (rec *recorder) dropBuffer() {
	if rec.buf != nil && cap(*rec.buf) <= maxPooledBuffer {
		*rec.buf = (*rec.buf)[:0]
		rec.bufs.Put(rec.buf)
	}
	rec.buf = nil
}

// close ends the capture: nothing that the handler does to the writer from now on has
// an effect. A handler that returned without a word has answered 200.
func (rec *recorder) close(returned bool) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if returned && !rec.wroteHeader {
		rec.writeHeader(http.StatusOK)
	}
	rec.closed = true
}

// silent reports whether the handler neither set a status nor wrote a byte. It is
// asked before close.
func (rec *recorder) silent() bool {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return !rec.wroteHeader
}

// short reports whether the body is shorter than the handler declared.
func (rec *recorder) short() bool { return rec.declared >= 0 && rec.written < rec.declared }

// answer returns what is to be recorded. After close. Its body is valid until
// dropBuffer.
func (rec *recorder) answer() answer {
	if rec.mode == passing {
		return *notKept(rec.status, rec.header)
	}
	if rec.mode == buffering {
		rec.detectType(rec.body())
	}
	return answer{
		kind:    answerKept,
		status:  rec.status,
		header:  rec.diff.recorded,
		trailer: trailerFields(rec.header, rec.diff.trailer),
		body:    rec.body(),
	}
}

// respond sends the answer, or what is left of it to send. After answer.
func (rec *recorder) respond(a *answer) {
	h := rec.w.Header()
	if rec.mode != buffering {
		// Under their full names: those with a prefix could not be announced.
		for name, values := range rec.header {
			if strings.HasPrefix(name, http.TrailerPrefix) || slices.Contains(rec.diff.trailer, name) {
				h[name] = values
			}
		}
		return
	}
	announce(h, fieldNames(a.trailer))
	if rec.declared < 0 && lengthAllowed(h, rec.status, rec.method) {
		rec.length[0] = strconv.Itoa(len(a.body))
		h["Content-Length"] = rec.length[:]
	}
	rec.sendHead()
	rec.forward(a.body)
	for _, f := range a.trailer {
		setField(h, f)
	}
}

// sent reports whether the client has seen part of the answer already.
func (rec *recorder) sent() bool { return rec.mode != buffering }
