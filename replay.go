package idempotency

import (
	"errors"
	"fmt"
	"net/http"
	"sync"

	"example.com/idempotency/internal/response"
	"example.com/idempotency/problem"
)

// serveRecord answers a request that may not run from the record that stands in its
// way.
func (g *Guard) serveRecord(w http.ResponseWriter, r *http.Request, l *lease, rec Record) {
	switch {
	case rec.Fingerprint != l.claim.Fingerprint:
		p := problem.New(problem.KeyReused)
		p.Status = g.set.mismatchStatus
		g.reject(w, r, l.key, p)
	case rec.State == StateCompleted:
		g.replay(w, r, l, rec)
	case rec.State == StateHeld:
		g.reject(w, r, l.key, problem.New(problem.OutcomeUnknown))
	default:
		g.reject(w, r, l.key, problem.New(problem.InFlight))
	}
}

// fieldSpaces are for the fields of answers, from the time they are read until they are
// sent. Few answers have more.
var fieldSpaces = sync.Pool{New: func() any { return new([12]response.Field) }}

// replay serves the recorded answer, if it is whole and the caller may see it.
func (g *Guard) replay(w http.ResponseWriter, r *http.Request, l *lease, rec Record) {
	space := fieldSpaces.Get().(*[12]response.Field)
	used := len(space)
	defer func() {
		clear(space[:used])
		fieldSpaces.Put(space)
	}()
	a, err := g.set.unseal(rec.Answer, l.key, rec.Fingerprint, space[:])
	if err == nil && a.Kind != response.KindKept && a.Kind != response.KindNotKept {
		err = fmt.Errorf("%w: it is no response", ErrCorrupt)
	}
	if err == nil {
		used = min(used, len(a.Header)+len(a.Trailer))
	}
	switch {
	case errors.Is(err, response.ErrVersion):
		// Written by a newer version of this package, which will serve it.
		l.observe(Event{Kind: EventCorrupt, Err: err})
		g.reject(w, r, l.key, problem.New(problem.StoreUnavailable))
		return
	case err != nil:
		l.observe(Event{Kind: EventCorrupt, Err: err})
		g.reject(w, r, l.key, problem.New(problem.AnswerUnreadable))
		return
	}
	if g.set.authorizeReplay != nil {
		info := newRecordInfo(l.id, rec)
		info.Status = a.Status
		if err := g.set.authorizeReplay(r, info); err != nil {
			g.reject(w, r, l.key, problem.New(problem.ReplayDenied))
			return
		}
	}
	if a.Kind == response.KindNotKept {
		p := problem.New(problem.ResponseNotKept)
		p.OriginalStatus = a.Status
		p.OriginalLocation = a.Location()
		g.reject(w, r, l.key, p)
		return
	}
	if len(g.set.observers) > 0 {
		l.observe(Event{Kind: EventReplay, Method: r.Method, Pattern: r.Pattern, Attempt: rec.Attempt, Status: a.Status})
	}
	a.Send(w, r.Method)
}
