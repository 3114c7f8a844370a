package frame

import (
	"errors"
	"net/http"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/engine"
)

// Mark is the name of a value that a middleware leaves in the context of its framework: the request that the
// context serves. When the chain has returned, the framework gives the context to another request, and clears
// its values first. A timeout outside the guard that goes on without the handler makes it do so in the middle of
// a run, whose middleware finds another value then.
const Mark = engine.Mark

var errLost = errors.New("idempotency: the framework has given the context of a run to another request, because a timeout outside the guard has gone on without the handler: nothing is recorded, and either request can get the data of the other. Put the timeout around the whole server, http.TimeoutHandler(server, d, text), or set only a deadline, which the handler obeys")

// Lost tells the guard that the context of a run has gone to another request, and the answer of the run to
// nobody knows where. Its outcome is Unknown, and the guard reports that as an [event.Silent], once for each route.
func Lost(r *http.Request) {
	if op, ok := engine.FromContext(r.Context()); ok {
		op.SetOutcome(event.Unknown)
		op.ReportOnce(event.Silent, errLost, r.Pattern, r.URL.Path)
	}
}
