package idempotency

import (
	"net/http"

	"example.com/idempotency/internal/answer"
	"example.com/idempotency/internal/rendering"
	"example.com/idempotency/problem"
)

// writeProblem is the default of WithErrorWriter.
func writeProblem(w http.ResponseWriter, r *http.Request, p problem.Document) {
	text := rendering.Of(&p)
	h := w.Header()
	space := answer.NewSpace()
	h["Content-Type"] = space.Value(problem.ContentType)
	if lengthAllowed(h, r.Method) {
		h["Content-Length"] = space.Value(text.Length)
	}
	space.Free()
	w.WriteHeader(p.Status)
	_, _ = w.Write(text.Body) // a client that is gone needs no answer
}

// lengthAllowed reports whether a refusal may carry its length. The header h, which outer handlers may
// have set fields in, can forbid it: with a trailer HTTP/1.1 needs the chunked coding instead, and an
// outer handler with a content coding of its own sends a body of another length. An answer of a handler
// has the length that the handler has declared, or none.
func lengthAllowed(h http.Header, method string) bool {
	return method != http.MethodHead && len(h["Trailer"]) == 0 && len(h["Content-Encoding"]) == 0
}

// retryAfter is the Retry-After, in seconds, of the refusals that a retry with the same key
// can end. One second is the smallest value that every client understands.
const retryAfter = "1"
