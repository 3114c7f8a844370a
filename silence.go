package idempotency

import (
	"errors"
	"sync"
)

// This file says what becomes of a handler that returns without an answer. net/http makes an
// empty 200 of that, and some handlers mean it. More often the real answer went past the
// guard, because an adapter gave the framework a writer of its own.

var (
	errSilent = errors.New("idempotency: the handler returned without a status and without a byte; usually an adapter lets the framework answer past the guard")
	errLate   = errors.New("idempotency: the handler wrote after it had returned without an answer; it must not return before its goroutines have answered")
)

// silences remembers which routes were reported, so that each is reported once.
type silences struct{ reported sync.Map }

// A silentRoute is a route, as far as requests tell it, and what was wrong with it.
type silentRoute struct {
	method, pattern string
	err             error
}

func (s *silences) isNew(r silentRoute) bool {
	_, known := s.reported.LoadOrStore(r, nil)
	return !known
}

// silence returns what it means on this route that the handler has returned without an
// answer, or 0 if the empty 200 is to be judged as any other answer. Silence that is not
// meant is reported.
func (h *handlerRun) silence() Outcome {
	if h.guard.set.silence != Final {
		h.reportSilence(errSilent)
	}
	return h.guard.set.silence
}

// WroteLate implements [response.Witness]. If the run is not judged yet, its outcome becomes
// Unknown.
func (h *handlerRun) WroteLate() { h.reportSilence(errLate) }

func (h *handlerRun) reportSilence(err error) {
	pattern := h.req.Pattern // a router inside the guard may have set it
	if pattern == "" {
		pattern = h.original.Pattern
	}
	r := silentRoute{h.original.Method, pattern, err}
	if h.guard.core.silences.isNew(r) {
		h.lease.observe(Event{Kind: EventSilent, Method: r.method, Pattern: r.pattern, Err: err})
	}
}
