package idempotency

import (
	"net/http"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/engine"
	"example.com/idempotency/internal/engine/note"
	"example.com/idempotency/internal/response"
	"example.com/idempotency/problem"
)

// respond lets the answer out, after the run was settled.
func (h *handlerRun) respond(w http.ResponseWriter, v engine.Verdict, e engine.Ending) {
	d := decision{id: h.Lease.ID, key: h.Lease.Name, lease: h.Lease}
	defer d.leave(h.route)
	switch {
	case e.Fate == engine.Overtaken && !h.rec.Sent():
		// What another run has recorded counts. Nobody else would ever see our answer.
		rec := e.Record()
		h.route.answerFrom(&rec, h.original, &d)
		switch d.problem.Code { // the client is not told that this request was not run
		case problem.StoreUnavailable, problem.TryLater, problem.KeyReused:
			d.refuse(problem.InFlight)
		}
		h.route.respond(w, h.original, &d)
	case v.Instead != "":
		d.refuse(v.Instead)
		d.cause = v.Cause
		if v.Instead == problem.ResponseNotKept {
			d.problem.OriginalStatus = h.rec.Status()
		}
		h.route.respond(w, h.original, &d)
	case h.route.set.rules.Transaction && v.Outcome == NotExecuted && (h.cutShort || h.RefusesStopped && h.deniesEffect() && !h.rec.Sent()):
		d.refuse(problem.RolledBack)
		h.route.respond(w, h.original, &d)
	case h.cutShort && v.Outcome != Final:
		// The empty 200 that net/http makes of silence would be a lie.
		d.refuse(problem.NoAnswer)
		if v.Lasting() {
			d.refuse(problem.OutcomeUnknown)
		}
		h.route.respond(w, h.original, &d)
	case h.correction(v) != "" && !h.rec.Sent():
		d.refuse(h.correction(v))
		h.route.respond(w, h.original, &d)
	case v.Release.Unbind && e.Fate == engine.Pending && !h.rec.Sent():
		// The client would come back with another request, and meet the record of this one.
		d.refuse(problem.StoreUnavailable)
		h.route.respond(w, h.original, &d)
	case h.past, h.rec.Silent() && v.Outcome != Final:
		// Somebody else may have answered, or be about to.
		h.rec.Yield()
	default:
		if rt := h.route; v.Outcome == Final && e.Fate == engine.Settled && rt.set.tellsExpiry(rt.set.rules.TTL) {
			h.rec.Tell(rt.set.expiryField(rt.set.rules.TTL))
		}
		h.rec.Respond()
	}
}

// correction returns what the client of an [Unknown] run is told instead of the handler's
// answer, and nothing where that answer may be shown. A client takes a plain 4xx for the word
// that nothing was done, and the refusal of a guard behind this one for this guard's own.
// Neither may deny an effect that may have happened here, or invite a retry while the key is
// held.
func (h *handlerRun) correction(v engine.Verdict) problem.Code {
	if v.Outcome != Unknown {
		return ""
	}
	code := problem.Code(h.rec.Get(problem.Header))
	if code == "" && !h.deniesEffect() {
		return ""
	}
	switch code {
	case problem.OutcomeUnknown, problem.ResponseNotKept, problem.AnswerUnreadable:
		return "" // there was a run, and no retry changes what is known of it
	}
	switch {
	case v.Lasting():
		return problem.OutcomeUnknown
	case code == "" && h.promisesAnother():
		return ""
	case code == "", code.NotRun(), code.Undone(), h.HasEffects() && code != problem.InFlight:
		return problem.NoAnswer
	default:
		return ""
	}
}

// deniesEffect reports whether the handler's own answer tells the client that nothing was
// done, although that is not certain. An answer that was judged definite, and could not be
// sealed, is true.
func (h *handlerRun) deniesEffect() bool {
	s := h.rec.Status()
	return !h.Happened && (keepsMethod(s) || s >= http.StatusBadRequest && s < http.StatusInternalServerError)
}

// promisesAnother reports whether the client is told to come back for another answer. That
// denies nothing.
func (h *handlerRun) promisesAnother() bool {
	return h.rec.Status() == http.StatusConflict && h.rec.Get("Retry-After") != ""
}

// respond acts on a decision that needs no handler: it replays or refuses.
func (rt *route) respond(w http.ResponseWriter, r *http.Request, d *decision) {
	if d.kind == replay {
		rt.sendReplay(w, d)
		return
	}
	rt.refuse(w, r, d)
}

// sendReplay sends the recorded answer that was decided on, and reports it.
func (rt *route) sendReplay(w http.ResponseWriter, d *decision) {
	if rt.set.rules.Reporter.Heard() {
		d.lease.Observe(event.Event{
			Kind: event.Replay, Attempt: d.attempt, Status: d.answer.Status, Size: int64(len(d.answer.Body)),
			Age: d.age, Waited: d.waited, Trace: note.Last(d.notes).Trace,
		})
	}
	rt.set.addExpiry(&d.answer, d.goodFor)
	response.Send(w, &d.answer, d.fields)
}
