package idempotency

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/engine"
	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/internal/engine/note"
	"example.com/idempotency/internal/response"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// This file looks at records without changing them, for operators and for clients.

// A RecordInfo is what a guard knows of a key's record; see [Guard.Lookup],
// [WithAuthorizeReplay] and [WithResolver]. It never contains the recorded answer itself.
type RecordInfo struct {
	// Key is the client's key. For a record that was looked up by its name, it is that name,
	// unless the route keeps keys; see [WithKeptKeys].
	Key Key
	// Record is the name of the record in the store.
	Record string
	// ID is that of [Operation.ID]. It is empty if the client's key is not known.
	ID string
	// State of the record.
	State store.State
	// Attempt is the number of the last run.
	Attempt int
	// Lease is how much longer a run in flight is protected from takeover. It is not
	// positive if the lease has lapsed.
	Lease time.Duration
	// Age is the time since the record was last claimed, renewed, completed, released
	// or held. TTL is how much longer it is kept. It is [store.Forever] for a record that is kept
	// until somebody resolves or forgets it.
	Age, TTL time.Duration
	// Status of the recorded answer, or 0 if there is none or it is the result of [Do]. A
	// sealer does not protect it, except where [WithAuthorizeReplay] is asked about a replay.
	Status int
	// Size of the recorded answer in bytes, as it is stored.
	Size int64
	// Route is that of the last run: the label that [WithRoute] gave, or the first 64 bytes of
	// http.Request.Pattern. It is not known during a replay.
	Route string
	// Started is when the last run claimed the key, by the clock of its process, and Trace is the
	// span that it belongs to, if [WithTraceContext] is set.
	Started time.Time
	Trace   event.TraceContext
	// Runs are the last runs of the record, oldest first and at most 16. They are not known
	// during a replay.
	Runs []event.RunInfo
	// Steps are the sorted names of the steps that are recorded, and of those that were
	// begun under [AtMostOnce] and may have happened. They are not known during a replay.
	Steps []string

	owner  store.Owner
	intent intent.Intent
}

// infoOf returns what was found of a key, for programs.
func infoOf(f engine.Found) RecordInfo {
	rec := &f.Record
	last := note.Last(rec.Notes)
	info := RecordInfo{
		Route: rec.Label, Started: last.Started, Trace: last.Trace, Runs: note.Runs(rec),
		Key: Key(f.Key), Record: f.Key.Name(), State: rec.State, Attempt: rec.Attempt,
		Lease: rec.Lease, Age: rec.Age, TTL: rec.TTL, Status: rec.Status, Size: rec.Size,
		Steps: f.Steps, owner: rec.Owner, intent: f.Intent,
	}
	if f.Key.Record == "" {
		info.ID = f.Intent.ID()
	}
	return info
}

// Seen returns what a decision about the key carries; see [Guard.Resolve] and [Guard.Forget].
func (i RecordInfo) Seen() store.Seen {
	return store.Seen{Owner: i.owner, Attempt: i.Attempt, State: i.State}
}

// DeriveKey returns what the function [DeriveKey] returned in the run: the key under
// which to ask a downstream service what happened. It is empty if ID is. Then nobody knows under
// which key to ask, and a service that knows nothing of an empty key has said nothing.
func (i RecordInfo) DeriveKey(purpose string) string {
	if i.ID == "" {
		return ""
	}
	return i.intent.DeriveKey(purpose)
}

// Lookup returns what is known of a key. It changes nothing, and does not read the recorded
// answer, which may be large or in the seal of another process. Of a record that cannot be read
// nothing is known but that: its state is [store.Corrupt], and the error is [ErrCorrupt].
//
// An operator who does not have the client's key has the name of the record, from an [event.Event] or a
// listing: Lookup(ctx, Key{Record: name}). Such a lookup tells everything but the key, ID, and
// what is derived from the key. If the route keeps keys ([WithKeptKeys]) and the guard has its
// sealer, it tells them too.
//
// Errors: [ErrNotFound], [ErrCorrupt], [ErrNoInspector], and those of the store. A record in a
// form that only a newer version of this package knows is [ErrUnreadableHere]: look with the
// newer version.
func (g *Guard) Lookup(ctx context.Context, k Key) (RecordInfo, error) {
	return g.route.lookup(ctx, intent.Key(k))
}

func (rt *route) lookup(ctx context.Context, k intent.Key) (RecordInfo, error) {
	found, err := rt.engine.Lookup(ctx, k)
	switch {
	case errors.Is(err, ErrCorrupt):
		return RecordInfo{Key: Key(k), Record: k.Name(), State: store.Corrupt}, err
	case err != nil:
		return RecordInfo{}, err
	}
	return infoOf(found), nil
}

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
	if present := rt.readKey(r.Header[rt.set.header], d); !present && d.kind != refuse {
		d.refuse(problem.KeyMissing)
	}
	if d.kind == refuse {
		return rec, false
	}
	if rt.readScope(r, d); d.kind == refuse {
		return rec, false
	}
	d.key = d.id.Name()
	rec, err := rt.lookup(r.Context(), d.id)
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
