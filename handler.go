package idempotency

import (
	"net/http"

	"example.com/idempotency/internal/response"
	"example.com/idempotency/problem"
)

// A handlerRun is the run of an http.Handler. All its parts are one allocation.
type handlerRun struct {
	run
	next     http.Handler
	original *http.Request
	req      http.Request // the handler's copy
	body     bodyReader
	rec      response.Recorder

	// Set by close, if the handler has returned.
	recorded response.Answer
	// cutShort says that the handler was told to stop and answered nothing.
	cutShort bool
}

// runHandler runs the handler under the claim that was decided on, and answers.
func (g *Guard) runHandler(w http.ResponseWriter, r *http.Request, next http.Handler, d *decision) {
	h := &handlerRun{next: next, original: r}
	h.init(r.Context(), g, d.lease, g.set.clientCancel)
	h.req = *r.WithContext(&h.ctx)
	putBack(&h.req, &h.body, d.body)
	h.rec.Init(w, r.Method, response.Settings{Echo: g.set.header, Limit: g.set.maxResponseLen, Drop: g.set.dropped}, h)
	defer h.rec.DropBuffer()
	v, e := h.perform(h)
	h.respond(w, v, e)
}

func (h *handlerRun) execute(*runContext) { h.next.ServeHTTP(&h.rec, &h.req) }

func (h *handlerRun) close(returned bool) {
	removeForm(&h.req, h.original)
	h.rec.Close(returned)
	if returned {
		h.recorded = h.rec.Answer()
		h.cutShort = h.rec.Silent() && h.ctx.toldToStop()
	}
}

// answer returns the handler's answer. If a handler says that a run counts whose body is
// shorter than it declared, only that is recorded: half an answer must not be replayed as a
// whole one.
func (h *handlerRun) answer() (*response.Answer, error) {
	if h.rec.Short() {
		a := h.rec.NotKept()
		return &a, nil
	}
	return &h.recorded, nil
}

func (h *handlerRun) summary() summary {
	return summary{h.rec.Status(), h.rec.Header()["Location"]}
}

func (h *handlerRun) report(e *Event) {
	e.Method, e.Pattern, e.Status = h.original.Method, h.original.Pattern, h.rec.Status()
}

// respond lets the answer out, after the run was settled.
func (h *handlerRun) respond(w http.ResponseWriter, v verdict, e ending) {
	d := decision{id: h.lease.id, key: h.lease.key, lease: h.lease}
	defer d.leave(h.guard.core)
	switch {
	case e.fate == overtaken && !h.rec.Sent():
		// What another run has recorded counts. Nobody else would ever see our answer.
		h.guard.answerFrom(e.record, h.original, &d)
		h.guard.respond(w, h.original, &d)
	case h.cutShort && v.outcome != Final:
		// The empty 200 that net/http makes of silence would be a lie.
		d.refuse(problem.NoAnswer)
		if v.lasting() {
			d.refuse(problem.OutcomeUnknown)
		}
		h.guard.respond(w, h.original, &d)
	case v.outcome == Unknown && v.lasting() && h.invitesRetry() && !h.rec.Sent():
		// The guard behind this one says that a retry can help. While the key is held, none can.
		d.refuse(problem.OutcomeUnknown)
		h.guard.respond(w, h.original, &d)
	case h.rec.Silent() && v.outcome != Final:
		// Somebody else may have answered, or be about to.
		h.rec.Yield()
	default:
		h.rec.Respond()
	}
}

// invitesRetry reports whether the answer is the refusal of another guard that the client
// would answer with a retry.
func (h *handlerRun) invitesRetry() bool {
	return problem.Code(h.rec.Header().Get(problem.Header)).Retryable()
}
