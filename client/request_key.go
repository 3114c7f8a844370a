package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"example.com/idempotency/client/profile"
	"example.com/idempotency/internal/keyheader"
	"example.com/idempotency/internal/stepcall"
)

// This file finds the key of a request, and knows its history.

// A requestKey is the key of one logical request.
type requestKey struct {
	value   string    // empty if there is none
	field   string    // the header field that carries it; empty if the body does
	since   time.Time // when it was made; zero: now
	expires time.Time // when the server forgets it, as far as it has said
	resumed bool      // it may have been sent before
	end     func()    // ends the call of a step; nil outside

	// unserved says that no attempt has executed the request, and that another one still may.
	unserved bool

	// given is the field into which the caller has put the key itself; http.Client copies it to
	// each place that a redirect leads to.
	given string
	// withheld says that the key stays behind where a redirect leads, and behind is that key.
	withheld bool
	behind   *requestKey
}

// keyOf finds or makes the key of a request.
func keyOf(r *http.Request, s *settings, server *profile.Server) (requestKey, error) {
	field := server.KeyHeader
	before := redirectedKey(r, field)
	if before.withheld {
		return before, nil
	}
	if server.KeyMember != "" {
		return keyInBody(r, s, server, before)
	}
	if values, ok := keyField(r.Header, field); ok {
		if len(values) != 1 || strings.TrimSpace(values[0]) == "" {
			return requestKey{}, fmt.Errorf("%w: the request needs one field %s with a value", ErrKeyInvalid, field)
		}
		return requestKey{value: values[0], field: field, given: field}.remembered(r, before), nil
	}
	if before.value != "" {
		return before, nil
	}
	chosen, ok := r.Context().Value(stepcall.ChosenKey{}).(chosenKey)
	switch {
	case ok && chosen.none:
		return requestKey{}, nil
	case ok && !isSafe(r.Method):
		if _, err := keyheader.Parse(chosen.Key, false); err != nil {
			return requestKey{}, fmt.Errorf("%w: %w", ErrKeyInvalid, err)
		}
		return requestKey{value: s.quoted(chosen.Key), field: field}.remembered(r, before), nil
	case !slices.Contains(s.methods, method(r)):
		return requestKey{}, nil
	}
	step, ok := stepcall.From(r.Context())
	if !ok {
		return requestKey{value: s.quoted(NewKey()), field: field}, nil
	}
	key, err := step.BeginCall()
	if err != nil {
		return requestKey{}, err
	}
	return requestKey{value: s.quoted(key), field: field, resumed: step.Resumed(), end: step.EndCall}, nil
}

// keyInBody finds the key in the JSON body of a request. One without it has no key.
func keyInBody(r *http.Request, s *settings, server *profile.Server, before requestKey) (requestKey, error) {
	chosen, ok := r.Context().Value(stepcall.ChosenKey{}).(chosenKey)
	if noBody(r) || isSafe(r.Method) || ok && chosen.none {
		return requestKey{}, nil
	}
	if err := pin(r, s.maxBody); err != nil {
		return requestKey{}, err
	}
	body, err := r.GetBody()
	if err != nil {
		return requestKey{}, fmt.Errorf("client: reading the request body: %w", err)
	}
	defer func() { _ = body.Close() }()
	var object map[string]json.RawMessage
	var value string
	if err := json.NewDecoder(io.LimitReader(body, s.maxBody)).Decode(&object); err == nil {
		if err := json.Unmarshal(object[server.KeyMember], &value); err != nil {
			value = "" // a member of another type is not a key
		}
	}
	if ok && chosen.Key != value {
		return requestKey{}, fmt.Errorf("%w: %s reads it from the member %s of the body, which has another one",
			ErrKeyInvalid, server.Name, server.KeyMember)
	}
	return requestKey{value: value}.remembered(r, before), nil
}

// remembered returns a key that the caller has said with its history, in whatever way it has said
// it: the history belongs to the key. Docs/explanation/design-around.md has the table.
func (k requestKey) remembered(r *http.Request, before requestKey) requestKey {
	i, _ := r.Context().Value(historyOf(bare(k.value))).(Intent)
	if bare(before.value) == bare(k.value) {
		i = Intent{Since: before.since, Expires: before.expires, Resumed: before.resumed}
	}
	step, ok := stepcall.From(r.Context())
	k.since, k.expires, k.resumed = i.Since, i.Expires, i.Resumed || ok && step.Resumed()
	return k
}

// keyField returns the values of the field that carries the key, however its name is
// spelled in the map.
func keyField(h http.Header, field string) (values []string, ok bool) {
	for name, v := range h {
		if strings.EqualFold(name, field) {
			values, ok = append(values, v...), true
		}
	}
	return values, ok
}

type historyContext struct{}

// answered returns the request of an answer. With a redirect http.Client comes back, and the
// history of the key has to be known then, with whether the request may have been executed.
// [Expires] asks for it too.
func (k requestKey) answered(req *http.Request, resp *http.Response, executed bool) *http.Request {
	isRedirect := resp.StatusCode/100 == 3
	if k.value == "" && !k.withheld || !isRedirect && k.expires.IsZero() && !k.unserved {
		return req
	}
	k.resumed, k.end = executed, nil
	return req.WithContext(context.WithValue(req.Context(), historyContext{}, k))
}

// Expires returns when the server forgets the key of the request that a [Transport] has sent for
// this response; ok is false if no answer has said so. From then on, the same request with the
// same key would be a new one. The time is by the clock of this machine, and rather too early
// than too late: it counts from when the request was sent.
func Expires(resp *http.Response) (at time.Time, ok bool) {
	if resp == nil || resp.Request == nil {
		return time.Time{}, false
	}
	key, _ := resp.Request.Context().Value(historyContext{}).(requestKey)
	return key.expires, !key.expires.IsZero()
}

// Unserved reports whether a [Transport] has returned this response only because no retry was left. No
// attempt has executed its request, and the same request with the same key may still be served: after
// 429, for example, or 503 of a guard whose store was away. It is false for the response to a request
// without a key.
func Unserved(resp *http.Response) bool {
	if resp == nil || resp.Request == nil {
		return false
	}
	key, _ := resp.Request.Context().Value(historyContext{}).(requestKey)
	return key.unserved
}

// redirectedKey returns the key of the request that was answered with the redirect that
// http.Client follows with this one; none if there was no such request. It is the same
// request at another place, which may expect the key in another field. What http.Client has
// copied is taken out of the header.
//
// The key stays behind, there and further on, if the redirect has made another request of it, or
// if the caller's CheckRedirect does not want it to go there: it has put the request under
// WithoutKey, emptied the field, or removed what http.Client had copied.
func redirectedKey(r *http.Request, field string) requestKey {
	if r.Response == nil || r.Response.Request == nil {
		return requestKey{}
	}
	k, ok := r.Response.Request.Context().Value(historyContext{}).(requestKey)
	if !ok {
		return requestKey{}
	}
	chosen, _ := r.Context().Value(stepcall.ChosenKey{}).(chosenKey)
	values, present := keyField(r.Header, field)
	copied, _ := keyField(r.Header, k.given)
	k.field = field
	if k.withheld || chosen.none || method(r.Response.Request) != method(r) || present && len(values) == 0 || k.given != "" && len(copied) == 0 {
		removeField(r.Header, field)
		removeField(r.Header, k.given)
		behind := k.behind
		if behind == nil {
			behind = &k
		}
		return requestKey{given: k.given, withheld: true, behind: behind}
	}
	if slices.Equal(copied, []string{k.value}) {
		removeField(r.Header, k.given)
	}
	return k
}

// isTooOld reports whether the server may have forgotten the key by then. The clock that never
// steps stands still while the machine sleeps, and the other one may be set back: the later of
// the two counts. A key that was made in the future, by a clock that was ahead, has an unknown
// age; clocks of two machines may differ by a little.
func (k requestKey) isTooOld(at time.Time, ttl time.Duration) bool {
	age := func(since time.Time) time.Duration { return max(at.Sub(since), at.Round(0).Sub(since)) }
	return k.value != "" && (age(k.since) >= ttl || age(k.since) < -ttl/ahead || !k.expires.IsZero() && age(k.expires) >= 0)
}

// ahead is the part of a key's life by which the clock of who made it may be ahead: an hour of a day.
const ahead = 24

// life returns how long it takes from a time until isTooOld, by the clock that never steps.
func (k requestKey) life(at time.Time, ttl time.Duration) time.Duration {
	left := ttl - at.Sub(k.since)
	if !k.expires.IsZero() {
		left = min(left, k.expires.Sub(at))
	}
	return left
}

// learn notes what an answer says about the life of the key. The server counts from later than
// the start of the attempt, so the time is never too late, and the last word counts.
func (k *requestKey) learn(server *profile.Server, resp *http.Response, start time.Time) {
	if d, ok := server.GoodFor(resp); ok && k.value != "" {
		k.expires = start.Add(d)
	}
}
