package response

import (
	"net/http"

	"example.com/idempotency/internal/answer"
)

// How a Recorder sends the answer to the client, and when it begins to do so before the handler
// has returned.

// startTeeing sends the header and the buffered bytes before the end of the answer is known.
func (rec *Recorder) startTeeing() {
	rec.mode = teeing
	body := rec.body()
	if !rec.detectType(body) && BodyAllowed(rec.status) {
		// There is no body yet that net/http could detect a type from, so the header goes
		// out without one. The replay, which has the body, must not add one.
		rec.diff.recorded = append(rec.diff.recorded, answer.Field{Name: "Content-Type"})
	}
	rec.sendEarly(body)
}

// startPassing gives up the copy of the answer and sends what has not been sent. The
// Content-Type is left to net/http: without a replay there is nothing to agree with.
func (rec *Recorder) startPassing() {
	if rec.mode == buffering {
		rec.mode = passing
		rec.sendEarly(rec.body())
	}
	rec.mode = passing
	rec.DropBuffer()
}

// sendEarly sends status, header and the body so far, before the end of the answer is known.
func (rec *Recorder) sendEarly(body []byte) {
	if rec.witness != nil {
		rec.witness.HeadLeaves()
	}
	announce(rec.w.Header(), rec.diff.trailer)
	rec.sendHead()
	rec.forward(body)
}

// sendHead sends status and header of the first answer.
func (rec *Recorder) sendHead() {
	rec.setFields(rec.w.Header())
	rec.w.WriteHeader(rec.status)
}

// setFields sets the fields of the answer in the header of outer handlers, which may change the values
// in place. If something of the answer is still to be recorded, they get copies.
func (rec *Recorder) setFields(h http.Header) {
	var space *answer.Space
	if rec.mode != buffering {
		space = answer.NewSpace()
		defer space.Free()
	}
	for _, f := range rec.diff.recorded {
		if space != nil {
			f.Values = space.Copy(f.Values)
		}
		setField(h, f)
	}
	for _, f := range rec.diff.added {
		addField(h, f)
	}
	for _, f := range rec.diff.live {
		setField(h, f)
	}
	for _, f := range rec.diff.more {
		addField(h, f)
	}
}

// sendTrailer ends an answer whose header is out. It keeps the names that have
// http.TrailerPrefix as they are: a trailer without the prefix must be announced, and the
// header has gone.
func (rec *Recorder) sendTrailer(h http.Header) {
	if rec.rare == nil {
		return
	}
	for _, f := range rec.rare.trailers {
		setField(h, f)
	}
}

func (rec *Recorder) forward(p []byte) {
	if rec.clientGone || len(p) == 0 {
		return
	}
	if _, err := rec.w.Write(p); err != nil {
		rec.clientGone = true
	}
}
