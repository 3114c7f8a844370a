package idempotency

import (
	"context"
	"errors"
	"net/http"
	"time"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/answer"
	"example.com/idempotency/internal/engine"
	"example.com/idempotency/internal/frameworks"
	"example.com/idempotency/internal/reread"
	"example.com/idempotency/internal/response"
	"example.com/idempotency/problem"
)

// A handlerRun is the run of an http.Handler. All its parts are one allocation.
type handlerRun struct {
	engine.Run
	route    *route
	next     http.Handler
	original *http.Request
	req      http.Request // the handler's copy
	body     bodyReader
	rec      response.Recorder
	waited   time.Duration // for another run, before this one

	// Set by close, if the handler has returned.
	recorded answer.Answer
	// cutShort says that the handler was told to stop and answered nothing.
	cutShort bool
	// past says that it has answered past the guard.
	past bool

	// late says that a framework may call its handlers when the guard is done.
	late bool
}

func (h *handlerRun) Execute(context.Context) { h.next.ServeHTTP(&h.rec, &h.req) }

func (h *handlerRun) Close(returned bool) {
	h.body.end()
	reread.RemoveForm(&h.req, h.original)
	h.rec.Close(returned)
	if returned {
		h.recorded = h.rec.Answer()
		h.cutShort = h.rec.Silent() && h.ToldToStop()
	}
}

// answer returns the handler's answer. If a handler says that a run counts whose body is
// shorter than it declared, only that is recorded: half an answer must not be replayed as a
// whole one. Of an answer that went past the guard nothing is known.
func (h *handlerRun) Answer() (*answer.Answer, error) {
	switch {
	case h.past:
		a := answer.NotKept(0, nil)
		return &a, nil
	case h.rec.Short():
		a := h.rec.NotKept()
		return &a, nil
	}
	return &h.recorded, nil
}

func (h *handlerRun) OverLimit() bool { return h.rec.OverLimit() }

func (h *handlerRun) Report(e event.Event) event.Event {
	e.Status, e.Size, e.Waited = h.rec.Status(), int64(len(h.recorded.Body)), h.waited
	return e
}

// This file says what becomes of a handler that returns without an answer. net/http makes an
// empty 200 of that, and some handlers mean it. More often the real answer went past the
// guard, because an adapter gave the framework a writer of its own.

var (
	errSilent = errors.New("idempotency: the handler returned without a status and without a byte; either it says nothing, or an adapter lets a framework answer past the guard: use the framework's module, and keep what answers errors inside the guard")
	errPast   = errors.New("idempotency: the handler answered past the guard, so its answer is not recorded, and retries are refused: use the module for the framework, such as ginidempotency or humaidempotency, and inside it neither the writer of the framework nor its router")
	errLater  = errors.New("idempotency: the handler returned without a status and without a byte, and iris may have answered by a writer of its own: the answer is not recorded, and retries are refused. Put the guard around the whole application of iris, or WithSilence(Final) where a handler of net/http means an empty 200")
	errLate   = errors.New("idempotency: the handler wrote after it had returned without an answer; it must not return before its goroutines have answered")
)

// silence returns what it means on this route that the handler has returned without an
// answer, or 0 if the empty 200 is to be judged as any other answer. Silence that is not
// meant is reported.
func (h *handlerRun) silence() Outcome {
	past, sure := h.rec.Bypassed()
	if open := h.route.set.silence == 0; past && (sure || open) || h.late && open {
		h.past = true
		err := errPast
		if !past {
			err = errLater
		}
		h.ReportOnce(event.Silent, err)
		return Final // there was a run
	}
	if h.route.set.silence != Final {
		h.ReportOnce(event.Silent, errSilent)
	}
	return h.route.set.silence
}

// WroteLate implements [response.Witness]. If the run is not judged yet, its outcome becomes
// Unknown.
func (h *handlerRun) WroteLate() { h.ReportOnce(event.Silent, errLate) }

// ReportOnce implements [engine.Task]. A router inside the guard may have set the pattern.
func (h *handlerRun) ReportOnce(kind event.Kind, err error) {
	h.Lease.ReportOnce(kind, err, h.req.Pattern, h.original.URL.Path)
}

// Refused reports whether the handler has answered with an error, or has sent its client elsewhere.
func (h *handlerRun) Refused() bool {
	return h.rec.Status() >= http.StatusBadRequest || response.KeepsMethod(h.rec.Status())
}

// Unsaid implements [response.Witness]. A framework that answers 200 for a handler which was told to stop, and has said
// nothing, would make silence an answer.
func (h *handlerRun) Unsaid() bool { return h.ToldToStop() && frameworks.Unsaid() }

// Judge asks the route's function about a complete answer. An answer that is shorter than
// declared, or silence because the handler was told to stop, is not an answer, and nor is one behind which
// the handler has failed.
func (h *handlerRun) Judge() Outcome {
	if h.rec.Short() || h.cutShort || h.failedLate() {
		return Unknown
	}
	var outcome Outcome
	if h.rec.Silent() {
		outcome = h.silence()
	}
	if outcome == 0 {
		outcome = h.route.set.judge(h.rec.Status(), h.judgedHeader())
		h.lookInside(outcome)
	}
	if h.rec.Late() {
		return Unknown
	}
	return outcome
}

// failedLate reports whether a status that came too late says that the answer is not to be believed. A timeout
// inside the guard says 504 after any handler that has taken too long: a success is one all the same, and a
// refusal may be about the time. Any other says of a success that half of it is missing. Behind a refusal, which has
// sent all that its client needs, it comes from a middleware that answers what the handler has refused for.
func (h *handlerRun) failedLate() bool {
	second := h.rec.Second()
	return second != 0 && (second == http.StatusGatewayTimeout) == h.Refused()
}

// lookInside reports an answer that counts as a success by its status, and tells of a failure.
func (h *handlerRun) lookInside(o Outcome) {
	if o == Final && h.rec.Status() == http.StatusOK && !h.route.set.rules.OutcomeChosen &&
		frameworks.HidesFailure(h.rec.Get("Content-Type"), h.recorded.Body) {
		h.ReportOnce(event.HiddenFailure, frameworks.ErrHidden)
	}
}

// judgedHeader returns the header that the route's function judges: the one that was written, whatever the
// handler has done to it since. [DefaultOutcome] gets the two fields that it looks at.
func (h *handlerRun) judgedHeader() http.Header {
	if h.route.set.rules.OutcomeChosen {
		return h.rec.Written()
	}
	code, retry := h.rec.Reason(problem.Header), h.rec.Reason("Retry-After")
	if code == "" && retry == "" {
		return nil
	}
	return http.Header{problem.Header: {code}, "Retry-After": {retry}}
}

// Redirected implements [engine.Task]. The key goes to the other place with the request, which has
// another path there, and so another fingerprint.
func (h *handlerRun) Redirected() bool { return response.KeepsMethod(h.rec.Status()) }
