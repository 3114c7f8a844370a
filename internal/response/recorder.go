package response

import (
	"net/http"
	"slices"
	"sync"

	"example.com/idempotency/internal/answer"
)

// A Recorder is the [http.ResponseWriter] of a run. It keeps the answer back, which lets the
// caller record it before the client sees it. A handler cannot get past it to the connection:
// it has no Unwrap method, and offers what [http.ResponseController] can do itself.
//
// A handler may keep its Recorder and write to it after it has returned, so a Recorder is
// never reused. The caller calls Init, lets the handler run, and then calls Close, Answer, Respond and
// DropBuffer.
type Recorder struct {
	mu      sync.Mutex
	w       http.ResponseWriter
	method  string
	limit   int64
	witness Witness

	before      http.Header // what outer handlers had set before the run, without the caller's own field
	header      http.Header // the handler's view, with copies of the outer handlers' fields
	mode        mode
	wroteHeader bool
	informed    bool // an informational answer was sent
	closed      bool
	silent      bool // the handler has returned without an answer
	late        bool // and has written since
	second      int  // a status of 500 or above behind the handler's own answer; rather not 504
	clientGone  bool
	held        bool  // nothing is sent before the caller responds
	overLimit   bool  // and the answer has outgrown its limit, and is gone
	wide        bool  // the header alone is too large to be kept
	judged      bool  // Written will be called
	typed       bool  // the header, as it was written, leaves no type to detect
	outerFields int32 // how many outer handlers and the caller have set
	status      int
	declared    int64 // the handler's Content-Length, or -1
	written     int64
	buf         *answer.Buffer
	diff        headerDiff
	rare        *rareParts
	fields      [6]answer.Field // room for the first of diff.recorded, without an allocation
}

// rareParts are what few answers have.
type rareParts struct {
	trailers []answer.Field // under the names by which the handler set them
	written  http.Header    // the header as it was written, and the trailers
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

// A Witness is told by the goroutine of a handler what the handler does.
type Witness interface {
	// WroteLate says, once, that it has written after it had returned without an answer.
	WroteLate()
	// HeadLeaves says, once, that status and header are about to be sent of an answer that is not
	// complete. Status, Get and Tell may be called.
	HeadLeaves()
	// Unsaid reports whether the status 200 that is being written, as the first, is nothing that the handler has said.
	Unsaid() bool
}

// Settings say what a Recorder keeps.
type Settings struct {
	// Echo is the field in which the caller repeats the key, and Expiry the one in which it says for
	// how long that is good. Either may be empty. The handler does not see the first one, and what it
	// sets in either is neither sent nor recorded.
	Echo, Expiry string
	// Limit is the largest body that is kept.
	Limit int64
	// Judged is set if Written is going to be called.
	Judged bool
	// Drop has the canonical names of further fields that are not recorded.
	Drop answer.Names
}

// Init makes the Recorder ready for a handler that answers a request with this method
// through w. The witness may be nil.
func (rec *Recorder) Init(w http.ResponseWriter, method string, set Settings, late Witness) {
	rec.w, rec.method, rec.witness = w, method, late
	rec.limit, rec.judged = set.Limit, set.Judged
	rec.declared = -1
	rec.diff.rules = rulesOf(&set)
	rec.diff.recorded = rec.fields[:0]
	outer := w.Header()
	rec.outerFields = int32(len(outer))
	rec.header = make(http.Header, len(outer)+2)
	for name, values := range outer {
		if name == set.Echo {
			continue
		}
		if rec.before == nil {
			rec.before = make(http.Header, len(outer))
		}
		n := len(values)
		both := append(append(make([]string, 0, 2*n), values...), values...) // either may be changed in place
		rec.before[name], rec.header[name] = both[:n:n], both[n:]
	}
}

// values returns the values that the answer has under a canonical name, but for those that are added
// to values of outer handlers.
func (rec *Recorder) values(name string) []string {
	for _, fields := range [...][]answer.Field{rec.diff.recorded, rec.diff.live} {
		for _, f := range fields {
			if f.Name == name {
				return f.Values
			}
		}
	}
	values := rec.w.Header()[name]
	for _, f := range rec.diff.more {
		if f.Name == name {
			values = append(slices.Clip(values), f.Values...)
		}
	}
	return values
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
	return rec.buf.Bytes()
}
