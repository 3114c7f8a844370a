package response

import (
	"net/http"
	"slices"
)

// How an answer goes out: its replay, and the rules of HTTP that hold for every answer
// that this library writes.

// ReplayedHeader is the field that marks a replay.
const ReplayedHeader = "Idempotent-Replayed"

var replayedTrue = []string{"true"}

// Send replays a decoded answer of [KindKept].
func (a *Answer) Send(w http.ResponseWriter, method string) {
	h := w.Header()
	announce(h, fieldNames(a.Trailer))
	if LengthAllowed(h, a.Status, method) {
		h["Content-Length"] = a.length
	}
	for _, f := range a.Header {
		setField(h, f)
	}
	for _, f := range a.Added {
		addField(h, f)
	}
	h[ReplayedHeader] = replayedTrue
	w.WriteHeader(a.Status)
	if len(a.Body) > 0 {
		_, _ = w.Write(a.Body) // a client that is gone can ask again
	}
	for _, f := range a.Trailer {
		setField(h, f)
	}
}

// setField sets a field for this answer alone. Its values replace those of outer handlers:
// adding them would send equal ones twice.
func setField(h http.Header, f Field) {
	if len(f.Values) == 0 {
		h[f.Name] = nil
		return
	}
	h[f.Name] = f.Values
}

// addField puts values behind those of outer handlers.
func addField(h http.Header, f Field) { h[f.Name] = append(slices.Clip(h[f.Name]), f.Values...) }

// BodyAllowed reports whether an answer with this status may have a body
// (RFC 9110 section 6.4.1).
func BodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

// LengthAllowed reports whether the answer to a request with this method may carry the
// length of its body. The header h, which outer handlers may have set fields in, can forbid
// it: with a trailer HTTP/1.1 needs the chunked coding instead, and an outer handler with a
// content coding of its own sends a body of another length.
func LengthAllowed(h http.Header, status int, method string) bool {
	return BodyAllowed(status) && method != http.MethodHead && len(h["Trailer"]) == 0 && len(h["Content-Encoding"]) == 0
}
