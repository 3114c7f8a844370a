package idempotency

import (
	"io"
	"net/http"
	"strings"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/answer"
	"example.com/idempotency/internal/engine/note"
	"example.com/idempotency/problem"
)

// refuse answers a request with a problem and reports it. Every refusal of a guard goes
// through here.
func (rt *route) refuse(w http.ResponseWriter, r *http.Request, d *decision) {
	p := d.problem
	if rt.set.rules.Reporter.Heard() || d.cause != nil {
		e := event.Event{
			Kind: event.Refused, Attempt: d.attempt, Age: d.age, Waited: d.waited, Held: p.Code == problem.OutcomeUnknown,
			Status: p.Status, Code: p.Code, Err: d.cause, Trace: note.Last(d.notes).Trace, Differs: d.differs,
		}
		if d.lease != nil {
			d.lease.Observe(e)
		} else {
			e.Record, e.Scope, e.Method, e.Route = d.key, d.id.Scope, r.Method, rt.set.routeOf(r)
			rt.set.rules.Reporter.Observe(r.Context(), e)
		}
	}
	if p.Code == problem.BodyTooLarge || d.lease == nil && r.Header.Get("Expect") != "" {
		leaveBody(w, r)
	}
	h := w.Header()
	space := answer.NewSpace()
	h["Cache-Control"] = space.Value("no-store")
	h[problem.Header] = space.Value(string(p.Code))
	if p.Code.Retryable() {
		h["Retry-After"] = space.Value(retryAfter)
	}
	space.Free()
	rt.set.setExpiry(h, d.goodFor)
	p.Type = "about:blank"
	if rt.set.policyURL != "" {
		p.Type = rt.set.policyURL + "#" + string(p.Code)
		h.Add("Link", "<"+rt.set.policyURL+`>; rel="describedby"`)
	}
	rt.set.errorWriter(w, r, p)
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
