package response

import (
	"net/http"

	"example.com/idempotency/internal/answer"
)

// How an answer goes out: its replay, and the rules of HTTP that hold for every answer
// that this library writes.

// ReplayedHeader is the field that marks a replay.
const ReplayedHeader = "Idempotent-Replayed"

// Send replays a decoded answer of [answer.KindKept]. Its length is among the fields if the handler
// declared it. The space may be nil.
func Send(w http.ResponseWriter, a *answer.Answer, space *answer.Space) {
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
