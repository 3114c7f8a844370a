package idempotency

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"example.com/idempotency/internal/response"
	"example.com/idempotency/problem"
)

// A keyStatus is what a client may know of its own key.
type keyStatus struct {
	State   string `json:"state"`
	Attempt int    `json:"attempt"`
	// Age and expiry in whole seconds.
	Age     int64 `json:"age_seconds"`
	Expires int64 `json:"expires_seconds"`
	Status  int   `json:"status,omitempty"`
}

// LookupHandler returns a handler that tells clients the state of their own keys, so
// that one that has lost track can look before it sends again. It answers GET and HEAD
// requests that carry the key in the guard's header field, for the scope that the
// guard's [ScopeFunc] tells, and belongs behind the same authentication.
//
// The answer is a JSON object with state (claimed, lapsed, released, completed or held),
// attempt, age_seconds, expires_seconds and, if an answer is recorded, its status. The
// answer itself is not shown: it is replayed to whoever repeats the request. Unknown
// keys get 404 key-unknown. Whom the function of [WithAuthorizeReplay] would not let see
// the answer is not told its status either, but gets 403 replay-denied. Other refusals are
// those that the guard gives to requests; other methods get 405.
func (g *Guard) LookupHandler() http.Handler { return http.HandlerFunc(g.serveLookup) }

func (g *Guard) serveLookup(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, http.StatusText(http.StatusMethodNotAllowed), http.StatusMethodNotAllowed)
		return
	}
	key, present, err := requestKey(r.Header, g.set.header, g.set.strictKeys)
	switch {
	case err != nil:
		p := problem.New(problem.KeyInvalid)
		p.Detail = err.Error()
		g.reject(w, r, "", p)
		return
	case !present:
		g.reject(w, r, "", problem.New(problem.KeyMissing))
		return
	}
	w.Header()[g.set.header] = r.Header[g.set.header][:1:1]
	scope, err := scopeOf(g.core.scope, r)
	if err != nil {
		g.reject(w, r, "", problem.New(problem.ScopeUnresolved))
		return
	}
	k := Key{scope, key}
	info, err := g.Lookup(r.Context(), k)
	if err == nil {
		err = g.authorizeLookup(r, info)
	}
	if err != nil {
		g.reject(w, r, k.storeKey(), problem.New(g.lookupRefusal(r, k, err)))
		return
	}
	writeKeyStatus(w, r, info)
}

var errReplayDenied = errors.New("idempotency: replay denied")

// authorizeLookup asks whether the caller may see the answer that is recorded.
func (g *Guard) authorizeLookup(r *http.Request, info RecordInfo) error {
	if info.State != StateCompleted || g.set.authorizeReplay == nil {
		return nil
	}
	if err := g.set.authorizeReplay(r, info); err != nil {
		return errReplayDenied
	}
	return nil
}

// lookupRefusal is the code for an error, which is reported if it is one of the store.
func (g *Guard) lookupRefusal(r *http.Request, k Key, err error) problem.Code {
	switch {
	case errors.Is(err, ErrNotFound):
		return problem.KeyUnknown
	case errors.Is(err, errReplayDenied):
		return problem.ReplayDenied
	case errors.Is(err, ErrCorrupt):
		return problem.AnswerUnreadable
	default:
		g.set.observe(r.Context(), Event{Kind: EventStoreError, Op: "get", KeyHash: keyHash(k.storeKey()), Err: err})
		return problem.StoreUnavailable
	}
}

func writeKeyStatus(w http.ResponseWriter, r *http.Request, info RecordInfo) {
	status := keyStatus{
		State: info.State.String(), Attempt: info.Attempt, Status: info.Status,
		Age: int64(info.Age / time.Second), Expires: int64(info.TTL / time.Second),
	}
	if info.State == StateClaimed && info.Lease <= 0 {
		status.State = "lapsed"
	}
	body, err := json.Marshal(status)
	if err != nil { // cannot happen: strings and integers
		body = nil
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	if response.LengthAllowed(h, http.StatusOK, http.MethodGet) { // HEAD tells the length that GET has
		h.Set("Content-Length", strconv.Itoa(len(body)))
	}
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // a client that is gone can ask again
	}
}
