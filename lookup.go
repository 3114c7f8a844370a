package idempotency

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/response"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// This file looks at records without changing them, for operators and for clients.

// A keyStatus is what a client may know of its own key.
type keyStatus struct {
	State   string `json:"state"`
	Attempt int    `json:"attempt"`
	// Age and expiry in whole seconds. A record that has no end has no expiry.
	Age     int64  `json:"age_seconds"`
	Expires *int64 `json:"expires_seconds,omitempty"`
	Status  int    `json:"status,omitempty"`
}

// LookupHandler returns a handler that tells clients the state of their own keys, so that
// a client that has lost track can look before it sends again. It answers GET and HEAD
// requests that carry the key in the guard's header field, for the scope that the
// guard's [ScopeFunc] returns. Put it behind the same authentication as the guard.
//
// The answer is a JSON object with state (claimed, lapsed, released, completed or held),
// attempt, age_seconds, expires_seconds unless the record has no end, and, if an answer is
// recorded, its status. The answer itself is not shown: a client that repeats the request gets it replayed. An unknown
// key gets 404 key-unknown. A caller to whom [WithAuthorizeReplay] denies the answer gets 403
// replay-denied. Other refusals are those that the guard gives to requests; other methods
// get 405.
func (g *Guard) LookupHandler() http.Handler { return http.HandlerFunc(g.route.serveLookup) }

func (rt *route) serveLookup(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, http.StatusText(http.StatusMethodNotAllowed), http.StatusMethodNotAllowed)
		return
	}
	var d decision
	rec, ok := rt.lookUp(r, &d)
	if d.echo != "" {
		w.Header()[rt.set.header] = response.Value(d.echo)
	}
	if !ok {
		rt.refuse(w, r, &d)
		return
	}
	writeKeyStatus(w, rec)
}

// lookUp identifies the key as for a request that may run, and looks at its record. If it
// reports false, the request is to be refused.
func (rt *route) lookUp(r *http.Request, d *decision) (rec RecordInfo, ok bool) {
	if present := rt.readKey(rt.set.keyFields(r.Header), d); !present && d.kind != refuse {
		d.refuse(problem.KeyMissing)
	}
	if d.kind == refuse {
		return rec, false
	}
	if rt.readScope(r, d); d.kind == refuse {
		return rec, false
	}
	d.key = d.id.Name()
	rec, err := told(rt.engine.Lookup(r.Context(), d.id))
	switch {
	case err == nil && rec.State == store.Completed && rt.set.authorizeReplay != nil:
		if err := rt.set.authorizeReplay(r, rec); err != nil {
			d.refuseFor(err, problem.ReplayDenied)
		}
		return rec, d.kind != refuse
	case err == nil:
		return rec, true
	case errors.Is(err, ErrNotFound):
		d.refuse(problem.KeyUnknown)
	case errors.Is(err, ErrCorrupt):
		d.refuse(problem.AnswerUnreadable)
	default:
		rt.set.rules.Reporter.Observe(r.Context(), event.Event{
			Kind: event.StoreError, Op: "get", Record: d.key, Scope: d.id.Scope, Method: r.Method, Route: rt.set.routeOf(r), Err: err,
		})
		d.refuse(problem.StoreUnavailable)
	}
	return rec, false
}

func writeKeyStatus(w http.ResponseWriter, info RecordInfo) {
	status := keyStatus{
		State: info.State.String(), Attempt: info.Attempt, Status: info.Status,
		Age: int64(info.Age / time.Second),
	}
	if info.TTL != store.Forever {
		expires := int64(info.TTL / time.Second)
		status.Expires = &expires
	}
	if info.State == store.Claimed && info.Lease <= 0 {
		status.State = "lapsed"
	}
	body, err := json.Marshal(status)
	if err != nil { // cannot happen: strings and integers
		body = nil
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(body) // a client that is gone can ask again; net/http leaves it out with HEAD
}
