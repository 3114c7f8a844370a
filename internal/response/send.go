package response

import (
	"net/http"
	"slices"
)

// How an answer goes out: its replay, and the rules of HTTP that hold for every answer
// that this library writes.

// ReplayedHeader is the field that marks a replay.
const ReplayedHeader = "Idempotent-Replayed"

// Send replays a decoded answer of [KindKept]. Its length is among the fields if the handler
// declared it. The space may be nil.
func (a *Answer) Send(w http.ResponseWriter, space *Space) {
	h := w.Header()
	announce(h, fieldNames(a.Trailer))
	for _, f := range a.Header {
		setField(h, f)
	}
	for _, f := range a.Added {
		addField(h, f)
	}
	h[ReplayedHeader] = space.Value("true")
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
