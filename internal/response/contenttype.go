package response

import (
	"net/http"
	"slices"

	"example.com/idempotency/internal/answer"
)

// The Content-Type of answers whose handler sets none. Left to itself, net/http detects it
// from the bytes that it sends first. The Recorder detects it before it sends any, so that
// the first answer and its replays agree.

// hasType reports whether the header, as it is now, leaves no type to detect. The bytes of a
// body that the handler has encoded do not show its type; those of a body that an outer
// handler is going to encode do.
func (rec *Recorder) hasType() bool {
	coding := rec.header["Content-Encoding"]
	encoded := len(coding) > 0 && !slices.Equal(coding, rec.w.Header()["Content-Encoding"])
	_, ok := rec.header["Content-Type"]
	return ok || encoded
}

// detectType records the type of the body if the header leaves it open. It reports whether
// there is a type or none is to be sent.
func (rec *Recorder) detectType(body []byte) bool {
	if rec.typed {
		return true
	}
	if len(body) == 0 || !BodyAllowed(rec.status) {
		return false
	}
	rec.diff.recorded = append(rec.diff.recorded,
		answer.Field{Name: "Content-Type", Values: []string{http.DetectContentType(body)}})
	return true
}
