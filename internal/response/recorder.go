package response

import (
	"net/http"
	"sync"
)

// A Recorder is the [http.ResponseWriter] of a run. It keeps the answer back, which lets the
// caller record it before the client sees it. A handler cannot get past it to the connection:
// it has no Unwrap method, and offers what [http.ResponseController] can do itself.
//
// A handler may keep its Recorder and write to it after it has returned, so a Recorder is
// never reused. This file is the caller's side: Init, then the handler runs, then Close,
// Answer, Respond and DropBuffer. The handler's side is in writer.go.
type Recorder struct {
	mu      sync.Mutex
	w       http.ResponseWriter
	method  string
	echo    string
	limit   int64
	room    int64 // what the header leaves of the limit
	witness Witness

	header      http.Header // the handler's view, with copies of the outer handlers' fields
	mode        mode
	wroteHeader bool
	informed    bool // an informational answer was sent
	closed      bool
	silent      bool // the handler has returned without an answer
	late        bool // and has written since
	clientGone  bool
	held        bool  // nothing is sent before the caller responds
	overLimit   bool  // and the answer has outgrown its limit, and is gone
	judged      bool  // Written will be called
	typed       bool  // the header, as it was written, leaves no type to detect
	outerFields int32 // how many outer handlers have set
	status      int
	declared    int64 // the handler's Content-Length, or -1
	written     int64
	buf         *Buffer
	diff        headerDiff
	rare        *rareParts
	fields      [6]Field // room for the first of diff.recorded, without an allocation
}

// rareParts are what few answers have.
type rareParts struct {
	trailers []Field     // under the names by which the handler set them
	written  http.Header // the header as it was written, and the trailers
}

// A mode is what a Recorder does with the bytes it is given.
type mode uint8

const (
	// buffering keeps header and body back until the caller responds.
	buffering mode = iota
	// teeing sends bytes as they come and keeps a copy. Flush starts it.
	teeing
	// passing only sends. It starts when the answer outgrows the limit.
	passing
)

// A Witness is told, once, that a handler has written after it had returned without an
// answer, from the goroutine that writes.
type Witness interface{ WroteLate() }

// Settings say what a Recorder keeps.
type Settings struct {
	// Echo is a field of the client's header that the caller has set and the handler does not
	// see.
	Echo string
	// Limit is the largest answer that is kept: body, header and trailer.
	Limit int64
	// Judged is set if Written is going to be called.
	Judged bool
	// Drop has the canonical names of further fields that are not recorded.
	Drop []string
}

// Init makes the Recorder ready for a handler that answers a request with this method
// through w. The witness may be nil.
func (rec *Recorder) Init(w http.ResponseWriter, method string, set Settings, late Witness) {
	rec.w, rec.method, rec.witness = w, method, late
	rec.echo, rec.limit, rec.judged = set.Echo, set.Limit, set.Judged
	rec.declared = -1
	rec.diff.rules.drop = set.Drop
	rec.diff.recorded = rec.fields[:0]
	outer := w.Header()
	rec.outerFields = int32(len(outer))
	rec.header = make(http.Header, len(outer)+2)
	for name, values := range outer {
		if name != set.Echo {
			rec.header[name] = append([]string(nil), values...)
		}
	}
}

// Close ends the recording: whatever the handler does to its writer from now on has no
// effect. A handler that has returned without writing anything has answered 200.
func (rec *Recorder) Close(returned bool) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if returned && !rec.wroteHeader {
		rec.silent = true
		rec.writeHeader(http.StatusOK)
	}
	if returned {
		rec.takeTrailers()
	}
	rec.closed = true
}

// Written returns the header as the handler has written it, with the trailer as it was when the handler
// returned, if the settings ask for it. It must be called after Close. The header that the handler has
// may be another one by now.
func (rec *Recorder) Written() http.Header {
	if rec.rare == nil {
		return nil
	}
	return rec.rare.written
}

// Get returns the first value that the answer has under a canonical name. It may be one that is not
// recorded.
func (rec *Recorder) Get(name string) string {
	if values := rec.values(name); len(values) > 0 {
		return values[0]
	}
	return ""
}

// values returns the values that the answer has under a canonical name, but for those that are added
// to values of outer handlers.
func (rec *Recorder) values(name string) []string {
	for _, fields := range [...][]Field{rec.diff.recorded, rec.diff.live} {
		for _, f := range fields {
			if f.Name == name {
				return f.Values
			}
		}
	}
	return rec.w.Header()[name]
}

// Silent reports whether the handler has returned without a status and without a byte. It
// must be called after Close.
func (rec *Recorder) Silent() bool { return rec.silent }

// Bypassed reports whether a handler that was silent has answered all the same, through the writer
// that the answers of this one go to. That writer may have a method of this name, and then it is
// sure. Otherwise only the header tells. It must be called after Close.
func (rec *Recorder) Bypassed() (past, sure bool) {
	if !rec.silent {
		return false, false
	}
	if w, ok := rec.w.(interface{ Bypassed() bool }); ok {
		return w.Bypassed(), true
	}
	outer := rec.w.Header()
	return len(outer) > int(rec.outerFields) && (outer["Content-Type"] != nil || outer["Location"] != nil), false
}

// Late reports whether a handler that was silent has written since.
func (rec *Recorder) Late() bool {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return rec.late
}

// Short reports whether the body is shorter than the handler declared.
func (rec *Recorder) Short() bool { return rec.declared >= 0 && rec.written < rec.declared }

// Sent reports whether the client has seen a part of the answer already.
func (rec *Recorder) Sent() bool { return rec.mode != buffering }

// Status returns the status of the answer, or 0 before there is one.
func (rec *Recorder) Status() int { return rec.status }

// HoldBack keeps the whole answer back until the caller responds: Flush is refused, and an answer
// that outgrows its limit is dropped. It reports false, and does nothing, if the client has seen
// a part of the answer already.
func (rec *Recorder) HoldBack() bool {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.held = rec.held || rec.mode == buffering
	return rec.held
}

// OverLimit reports whether an answer that is held back was dropped. It must be called after
// Answer.
func (rec *Recorder) OverLimit() bool { return rec.overLimit }

// Answer returns the answer to record: its own, or NotKept if that is too large. It must be
// called after Close. The body is valid until DropBuffer is called.
func (rec *Recorder) Answer() Answer {
	if rec.mode == passing || rec.overLimit {
		return rec.NotKept()
	}
	if rec.mode == buffering {
		rec.detectType(rec.body())
	}
	a := Answer{
		Kind:    KindKept,
		Status:  rec.status,
		Header:  rec.diff.recorded,
		Added:   rec.diff.added,
		Trailer: rec.trailer(true),
		Body:    rec.body(),
	}
	if a.Size() > rec.limit {
		rec.overLimit = rec.held
		return rec.NotKept()
	}
	return a
}

// NotKept returns the answer to record in place of one that is too large, or not whole. Its Location
// is among the recorded fields. The header of outer handlers is not searched: their fields do not
// belong to the answer, and once its header is out, all of the handler's are there too.
func (rec *Recorder) NotKept() Answer {
	a := Answer{Status: rec.status, Header: rec.diff.recorded}
	return a.Brief(rec.limit)
}

// Respond sends the client the handler's answer, or what is left of it to send. It must be
// called after Answer, whether or not that is what is recorded. Nobody but the handler declares
// a length, as net/http has it: an outer handler may add to the body.
func (rec *Recorder) Respond() {
	h := rec.w.Header()
	if rec.mode != buffering {
		rec.sendTrailer(h)
		return
	}
	trailer, body := rec.trailer(false), rec.body()
	announce(h, fieldNames(trailer))
	rec.sendHead()
	rec.forward(body)
	for _, f := range trailer {
		setField(h, f)
	}
}

// Tell adds a field that the client gets with this answer, in place of the handler's, and no
// replay has. It has no effect once a part of the answer is out.
func (rec *Recorder) Tell(f Field) { rec.diff.live = append(rec.diff.live, f) }

// Yield leaves the answer to outer handlers, with the fields that the handler has set.
func (rec *Recorder) Yield() { rec.setFields(rec.w.Header()) }

// A Buffer is memory that is used again, for the body of an answer or for its stored form.
type Buffer struct{ bytes []byte }

var buffers = sync.Pool{New: func() any { return new(Buffer) }}

// maxPooledBuffer keeps a few large answers from pinning their memory forever.
const maxPooledBuffer = 2 << 20

// NewBuffer returns an empty buffer.
func NewBuffer() *Buffer { return buffers.Get().(*Buffer) }

// Free gives the memory back. Nobody may have any of it still.
func (b *Buffer) Free() {
	if cap(b.bytes) <= maxPooledBuffer {
		b.bytes = b.bytes[:0]
		buffers.Put(b)
	}
}

// DropBuffer gives the memory of the body back.
func (rec *Recorder) DropBuffer() {
	if rec.buf != nil {
		rec.buf.Free()
	}
	rec.buf = nil
}

func (rec *Recorder) body() []byte {
	if rec.buf == nil {
		return nil
	}
	return rec.buf.bytes
}
