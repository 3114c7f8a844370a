package idempotency

import (
	"net/http"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/answer"
	"example.com/idempotency/internal/engine"
	"example.com/idempotency/internal/engine/note"
	"example.com/idempotency/internal/response"
	"example.com/idempotency/internal/rules"
	"example.com/idempotency/problem"
)

// respond lets the answer out, after the run was settled.
func (h *handlerRun) respond(w http.ResponseWriter, v engine.Verdict, e engine.Ending) {
	d := decision{id: h.Lease.ID, key: h.Lease.Name, lease: h.Lease}
	defer d.leave(h.route)
	switch show := rules.Client.Of(h.Reply(&v, e) | h.facts(&v)); show.Action {
	case rules.Recall:
		rec := e.Record()
		h.route.answerFrom(&rec, h.original, &d)
		if code := rules.Overtook(d.problem.Code); code != d.problem.Code {
			d.refuse(code)
		}
		h.route.respond(w, h.original, &d)
	case rules.Replace:
		if show.Code == rules.OfRun {
			show.Code, d.cause = v.Instead, v.Cause
		}
		d.refuse(show.Code)
		if show.Code == problem.ResponseNotKept {
			d.problem.OriginalStatus, d.problem.OriginalLocation = h.rec.Status(), h.recorded.Location()
		}
		h.route.respond(w, h.original, &d)
	case rules.Stay:
		h.rec.Yield()
	case rules.Mark:
		h.rec.Tell(answer.Field{Name: problem.Header, Values: []string{string(show.Code)}})
		h.rec.Respond()
	default:
		if rt := h.route; v.Left == rules.Definite && e.Fate == rules.Settled && rt.set.tellsExpiry(rt.set.rules.TTL) {
			h.rec.Tell(rt.set.expiryField(rt.set.rules.TTL))
		}
		h.rec.Respond()
	}
}

// facts are those about the answer of a handler.
func (h *handlerRun) facts(v *engine.Verdict) rules.Reply {
	f := rules.If(h.rec.Sent(), rules.PartSent, rules.NothingSent) |
		rules.If(v.Release.Unbind, rules.FreesPayload, rules.KeepsPayload) |
		h.message(h.ByStep)
	switch {
	case h.past:
		f |= rules.Past
	case h.rec.Silent():
		f |= rules.Silent
	default:
		f |= rules.Answered
	}
	switch {
	case h.cutShort:
		return f | rules.StoppedSilent
	case h.RefusesStopped:
		return f | rules.StoppedRefusing
	default:
		return f | rules.RanOn
	}
}

// HeadLeaves implements [response.Witness]. The code that the client would be shown if no more becomes known
// than the head says goes out with it: nothing can be taken back later.
func (h *handlerRun) HeadLeaves() {
	outcome, doubt := DefaultOutcome(h.rec.Status(), h.judgedHeader()), h.Doubt(h)
	if doubt == engine.NoDoubt && (h.route.set.rules.OutcomeChosen || outcome == Final || outcome == NotExecuted && !h.HasEffects()) {
		return
	}
	show := rules.Client.Of(h.Unjudged() | h.message(doubt == engine.NoDoubt && outcome == NotExecuted))
	if doubt == engine.Late && show.Action == rules.Show {
		show = rules.Showing{Action: rules.Mark, Code: problem.NoAnswer}
	}
	if show.Action != rules.Show {
		h.rec.Tell(answer.Field{Name: problem.Header, Values: []string{string(show.Code)}})
	}
}

// message is what the answer of a handler says of the effect. An answer that was judged definite, and
// could not be sealed, is true. byStep says that only a step speaks against it.
func (h *handlerRun) message(byStep bool) rules.Reply {
	status := h.rec.Status()
	if code := rules.RefusalBehind(status, h.rec.Reason(problem.Header)); code != "" {
		return rules.MessageOf(code)
	}
	switch {
	case h.Happened:
		return rules.TellsNone
	case status == http.StatusConflict && h.rec.Reason("Retry-After") != "":
		return rules.Promises
	case byStep && response.TurnsAway(status):
		return rules.DeniesButSteps
	case response.KeepsMethod(status), status >= http.StatusBadRequest && status < http.StatusInternalServerError:
		return rules.Denies
	default:
		return rules.TellsNone
	}
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

// runHandler runs the handler under the claim that was decided on, and answers.
func (rt *route) runHandler(w http.ResponseWriter, r *http.Request, next http.Handler, d *decision, late bool) {
	h := &handlerRun{route: rt, next: next, original: r, waited: d.waited, late: late}
	h.Init(r.Context(), d.lease, rt.set.rules.ClientCancel)
	h.req = *r.WithContext(h.Context())
	putBack(&h.req, &h.body, d.body)
	h.SetWriter(&h.rec)
	h.rec.Init(w, r.Method, rt.set.recording, h)
	defer h.rec.DropBuffer()
	v, e := h.Perform(h)
	h.respond(w, v, e)
}
