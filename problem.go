package idempotency

import (
	"encoding/json"
	"net/http"
	"strconv"

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
	if len(g.set.observers) > 0 {
		g.set.observe(r.Context(), Event{
			Kind: EventRefused, KeyHash: keyHash(d.key), Method: r.Method, Pattern: r.Pattern,
			Status: p.Status, Code: p.Code,
		})
	}
	h := w.Header()
	h["Cache-Control"] = []string{"no-store"}
	h[problem.Header] = []string{string(p.Code)}
	if p.Code.Retryable() {
		h["Retry-After"] = retryAfterSeconds
	}
	p.Type = "about:blank"
	if g.set.policyURL != "" {
		p.Type = g.set.policyURL + "#" + string(p.Code)
		h.Add("Link", "<"+g.set.policyURL+`>; rel="describedby"`)
	}
	g.set.errorWriter(w, r, p)
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
