package idempotency

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"

	"example.com/idempotency/internal/response"
	"example.com/idempotency/problem"
)

// retryAfterSeconds is the Retry-After of the refusals that a retry with the same key
// can end. One second is the smallest value that every client understands.
var retryAfterSeconds = []string{strconv.Itoa(1)}

// refuse answers a request with a problem and reports it. Every refusal of a guard goes
// through here.
func (g *Guard) refuse(w http.ResponseWriter, r *http.Request, d *decision) {
	p := d.problem
	if g.set.heard() || d.cause != nil {
		e := Event{
			Kind: EventRefused, Attempt: d.attempt, Age: d.age, Waited: d.waited, Held: p.Code == problem.OutcomeUnknown,
			Status: p.Status, Code: p.Code, Err: d.cause, Trace: lastNote(d.notes).trace, Differs: d.differs,
		}
		if d.lease != nil {
			d.lease.observe(e)
		} else {
			e.Record, e.Scope, e.Method, e.Route = d.key, d.id.Scope, r.Method, g.set.routeOf(r)
			g.set.observe(r.Context(), e)
		}
	}
	if p.Code == problem.BodyTooLarge || d.lease == nil && r.Header.Get("Expect") != "" {
		leaveBody(w, r)
	}
	h := w.Header()
	h["Cache-Control"] = []string{"no-store"}
	h[problem.Header] = []string{string(p.Code)}
	if p.Code.Retryable() {
		h["Retry-After"] = retryAfterSeconds
	}
	g.set.setExpiry(h, d.goodFor)
	p.Type = "about:blank"
	if g.set.policyURL != "" {
		p.Type = g.set.policyURL + "#" + string(p.Code)
		h.Add("Link", "<"+g.set.policyURL+`>; rel="describedby"`)
	}
	g.set.errorWriter(w, r, p)
}

// leaveBody tells net/http that the rest of the body will not be read, so that the client can
// read the refusal while it still sends. Without it, net/http waits for up to 256 KiB of the body
// before it answers, or closes the connection at once and the reset overtakes the answer. Only
// http.MaxBytesReader can tell it, and only to net/http's own writer.
func leaveBody(w http.ResponseWriter, r *http.Request) {
	inner := w
	for {
		u, ok := inner.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			break
		}
		inner = u.Unwrap()
	}
	overLimit := http.MaxBytesReader(inner, io.NopCloser(strings.NewReader("x")), 0)
	_, _ = overLimit.Read(make([]byte, 1))
	if r.ProtoMajor == 1 { // in case that is a writer without Unwrap
		w.Header()["Connection"] = []string{"close"}
	}
}

// writeProblem is the default of WithErrorWriter.
func writeProblem(w http.ResponseWriter, r *http.Request, p problem.Document) {
	body, err := json.Marshal(p)
	if err != nil { // cannot happen: strings and an int
		body = nil
	}
	h := w.Header()
	h["Content-Type"] = []string{problem.ContentType}
	if response.LengthAllowed(h, p.Status, r.Method) {
		h["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // a client that is gone needs no answer
}
