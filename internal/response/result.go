package response

import (
	"net/http"

	"example.com/idempotency/internal/answer"
)

// The caller's side of a Recorder: what the handler has answered, and how the client gets it.

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

// Reason is Get for a field that may say why nothing was done. No field does below the statuses that do, which most
// answers have.
func (rec *Recorder) Reason(name string) string {
	if rec.status < http.StatusTemporaryRedirect {
		return ""
	}
	return rec.Get(name)
}

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
func (rec *Recorder) Answer() answer.Answer {
	if rec.mode == passing || rec.overLimit {
		return rec.NotKept()
	}
	if rec.mode == buffering {
		rec.detectType(rec.body())
	}
	a := answer.Answer{
		Kind:    answer.KindKept,
		Status:  rec.status,
		Header:  rec.diff.recorded,
		Added:   rec.diff.added,
		Trailer: rec.trailer(true),
		Body:    rec.body(),
	}
	if !a.Fits(rec.limit) {
		rec.overLimit = rec.held
		return rec.NotKept()
	}
	return a
}

// NotKept returns the answer to record in place of one that is too large, or not whole. Its Location
// is among the recorded fields. The header of outer handlers is not searched: their fields do not
// belong to the answer, and once its header is out, all of the handler's are there too.
func (rec *Recorder) NotKept() answer.Answer {
	a := answer.Answer{Status: rec.status, Header: rec.diff.recorded}
	return a.Brief(rec.limit)
}

// Respond sends the client the handler's answer, or what is left of it to send. It must be
// called after Answer, whether or not that is what is recorded. Nobody but the handler declares
// a length, as net/http has it: an outer handler may add to the body. A guard around this one learns too that
// the handler has failed behind its answer. Nobody between hears of that: a writer that holds the status back would send it.
func (rec *Recorder) Respond() {
	if outer := outerOf(rec.w); outer != nil && rec.second != 0 {
		defer outer.WriteHeader(rec.second)
	}
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
func (rec *Recorder) Tell(f answer.Field) { rec.diff.live = append(rec.diff.live, f) }

// Yield leaves the answer to outer handlers, with the fields that the handler has set.
func (rec *Recorder) Yield() { rec.setFields(rec.w.Header()) }

// outerOf returns the nearest Recorder that a writer writes to, or nil.
func outerOf(w http.ResponseWriter) *Recorder {
	for {
		switch of := w.(type) {
		case *Recorder:
			return of
		case interface{ Unwrap() http.ResponseWriter }:
			w = of.Unwrap()
		default:
			return nil
		}
	}
}
