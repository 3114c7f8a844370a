package client

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"example.com/idempotency/client/profile"
	"example.com/idempotency/internal/digest"
	"example.com/idempotency/internal/keyheader"
	"example.com/idempotency/internal/stepcall"
)

// This file makes keys, and finds the key of a request.

// NewKey returns a new random key: a UUID of version 4. A [Transport] makes one for each
// request that has none; a caller that wants to keep the key makes it itself and hands it
// on with [WithKey].
func NewKey() string {
	var u [16]byte
	_, _ = rand.Read(u[:]) // never fails: crypto/rand ends the program instead
	u[6] = u[6]&0x0f | 0x40
	u[8] = u[8]&0x3f | 0x80
	b := make([]byte, 0, 36)
	for i, end := range []int{4, 6, 8, 10, 16} {
		if i > 0 {
			b = append(b, '-')
		}
		start := []int{0, 4, 6, 8, 10}[i]
		b = hex.AppendEncode(b, u[start:end])
	}
	return string(b)
}

// KeyFor returns the key of an intent that has an identity of its own, as in
//
//	client.KeyFor("charge", order.ID)
//
// A program that intends the same computes the same key, also after a crash, in another
// process and on another machine. The parts are told apart, whatever is in them: ("ab", "c")
// and ("a", "bc") have different keys. So have ("charge", id) and ("refund", id), and with a
// further part a second charge on purpose has another key than the first.
//
// The key has 43 characters: base64url of a SHA-256 of the parts, each behind its length.
// It is the same in all versions of this package. It does not hide parts that can be
// guessed.
func KeyFor(purpose string, identity ...string) string {
	sum := digest.Intent(append([]string{purpose}, identity...)...)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// keyHash is what events, errors and logs show of the value of a header field.
func keyHash(value string) string {
	const bytesOf8Characters = 6
	key, err := keyheader.Parse(value, false)
	if err != nil {
		key = value
	}
	sum := digest.Key("", key)
	return base64.RawURLEncoding.EncodeToString(sum[:bytesOf8Characters])
}

// An Intent is a key with its history. A later request needs it to count as the same one. An [*Error] has one, and so has an entry of package journal.
type Intent struct {
	// Key is the key, as the header field has it.
	Key string
	// Since is when the key was made. The zero Time stands for now.
	Since time.Time
	// Expires is when the server forgets the key, as far as it has said. A key that is past it
	// is not sent. The zero Time stands for a time that is not known.
	Expires time.Time
	// Resumed says that the key may have been sent before. An answer that says nothing about
	// that, such as a 401, then ends the call with [ErrOutcomeUnknown].
	Resumed bool
}

// Context returns a context for the one request that carries out the intent. A [Transport]
// sends it with the key, and not at all if the key is older than the server remembers
// ([WithTTL]).
func (i Intent) Context(ctx context.Context) context.Context {
	return context.WithValue(ctx, stepcall.ChosenKey{}, chosenKey{Intent: i})
}

// A chosenKey is what the caller has decided about the key of its requests.
type chosenKey struct {
	Intent
	none bool
}

// Chosen implements [stepcall.Chosen].
func (c chosenKey) Chosen() (key string, expires time.Time, none bool) {
	return c.Key, c.Expires, c.none
}

// WithKey returns a context whose request is sent with the given key, whatever its method
// is, unless the method is safe (GET, HEAD, OPTIONS, TRACE). It is for one request: the
// server refuses two different ones with the same key. A key has the form that the header
// field has, abc or "abc"; a key in another form makes the request fail with
// [ErrKeyInvalid].
//
// The key counts as a new one that was never sent. For a key that was, use
// [Error.Context] or [Intent.Context], which hand on its age and the doubt.
func WithKey(ctx context.Context, key string) context.Context {
	return Intent{Key: key}.Context(ctx)
}

// WithoutKey returns a context whose requests get no key. Such a request is sent once,
// unless its method is idempotent.
//
// A request that http.Client sends because of a redirect has the key of the first one, also at
// another host. CheckRedirect can withhold it:
//
//	if req.URL.Host != via[0].URL.Host {
//		*req = *req.WithContext(client.WithoutKey(req.Context()))
//	}
func WithoutKey(ctx context.Context) context.Context {
	return context.WithValue(ctx, stepcall.ChosenKey{}, chosenKey{none: true})
}

// A requestKey is the key of one logical request.
type requestKey struct {
	value   string    // empty if there is none
	field   string    // the header field that carries it; empty if the body does
	since   time.Time // when it was made; zero: now
	expires time.Time // when the server forgets it, as far as it has said
	resumed bool      // it may have been sent before
	end     func()    // ends the call of a step; nil outside

	// given says that the caller has put the key into the header field itself.
	given bool
	// withheld says that the caller's CheckRedirect has taken the key away.
	withheld bool
}

// keyOf finds or makes the key of a request.
func (t *Transport) keyOf(r *http.Request, server *profile.Server) (requestKey, error) {
	if server.KeyMember != "" {
		return t.keyInBody(r, server)
	}
	field := server.KeyHeader
	before := redirectedKey(r, field)
	values, ok := keyField(r.Header, field)
	if before.isWithheld(r, values, ok) {
		return requestKey{withheld: true}, nil
	}
	if ok {
		if len(values) != 1 || strings.TrimSpace(values[0]) == "" {
			return requestKey{}, fmt.Errorf("%w: the request needs one field %s with a value", ErrKeyInvalid, field)
		}
		if before.value == values[0] {
			return before, nil // http.Client has copied the field
		}
		return requestKey{value: values[0], field: field, given: true}, nil
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
		return requestKey{value: t.quoted(chosen.Key), field: field, since: chosen.Since, expires: chosen.Expires, resumed: chosen.Resumed}, nil
	case !slices.Contains(t.set.methods, method(r)):
		return requestKey{}, nil
	}
	step, ok := stepcall.From(r.Context())
	if !ok {
		return requestKey{value: t.quoted(NewKey()), field: field}, nil
	}
	key, resumed, err := step.BeginCall()
	if err != nil {
		return requestKey{}, err
	}
	return requestKey{value: t.quoted(key), field: field, resumed: resumed, end: step.EndCall}, nil
}

// keyInBody finds the key in the JSON body of a request. One without it has no key.
func (t *Transport) keyInBody(r *http.Request, server *profile.Server) (requestKey, error) {
	chosen, ok := r.Context().Value(stepcall.ChosenKey{}).(chosenKey)
	if noBody(r) || isSafe(r.Method) || ok && chosen.none {
		return requestKey{}, nil
	}
	if err := pin(r, t.set.maxBody); err != nil {
		return requestKey{}, err
	}
	body, err := r.GetBody()
	if err != nil {
		return requestKey{}, fmt.Errorf("client: reading the request body: %w", err)
	}
	defer func() { _ = body.Close() }()
	var object map[string]json.RawMessage
	var value string
	if err := json.NewDecoder(io.LimitReader(body, t.set.maxBody)).Decode(&object); err == nil {
		if err := json.Unmarshal(object[server.KeyMember], &value); err != nil {
			value = "" // a member of another type is not a key
		}
	}
	key := requestKey{value: value}
	if ok && chosen.Key != value {
		return requestKey{}, fmt.Errorf("%w: %s reads it from the member %s of the body, which has another one",
			ErrKeyInvalid, server.Name, server.KeyMember)
	}
	if ok {
		key.since, key.expires, key.resumed = chosen.Since, chosen.Expires, chosen.Resumed
	}
	return key, nil
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
// history of the key has to be known then. [Expires] asks for it too.
func (c *call) answered(resp *http.Response) *http.Request {
	isRedirect := resp.StatusCode/100 == 3
	if c.key.value == "" && !c.key.withheld || !isRedirect && c.key.expires.IsZero() {
		return c.req
	}
	key := c.key
	key.resumed, key.end = c.doubt, nil
	return c.req.WithContext(context.WithValue(c.req.Context(), historyContext{}, key))
}

// redirectedKey returns the key of the request that was answered with the redirect that
// http.Client follows with this one; none if there was no such request. It is the same
// request at another place, which may expect the key in another field.
func redirectedKey(r *http.Request, field string) requestKey {
	if r.Response == nil || r.Response.Request == nil || method(r.Response.Request) != method(r) {
		return requestKey{}
	}
	key, ok := r.Response.Request.Context().Value(historyContext{}).(requestKey)
	if !ok {
		key.value = r.Response.Request.Header.Get(field)
	}
	key.field = field
	return key
}

// isWithheld reports whether the caller's CheckRedirect does not want the key to go where a
// redirect leads: it has put the request under WithoutKey, emptied the field, or removed one
// that http.Client had copied from the first request.
func (k requestKey) isWithheld(r *http.Request, values []string, present bool) bool {
	if k.value == "" {
		return k.withheld
	}
	chosen, _ := r.Context().Value(stepcall.ChosenKey{}).(chosenKey)
	return chosen.none || present && len(values) == 0 || k.given && !present
}

// quoted returns the value of the header field that carries a key.
func (t *Transport) quoted(key string) string {
	if !t.set.strictKeys || strings.HasPrefix(strings.TrimSpace(key), `"`) {
		return key
	}
	return `"` + strings.ReplaceAll(key, `\`, `\\`) + `"`
}

// method returns the method of a request. In net/http, the empty one is short for GET.
func method(r *http.Request) string {
	if r.Method == "" {
		return http.MethodGet
	}
	return r.Method
}

// isSafe reports whether a method is a safe one (RFC 9110 section 9.2.1).
func isSafe(method string) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// isIdempotent reports whether a request may be repeated by its definition (RFC 9110
// section 9.2.2).
func isIdempotent(method string) bool {
	return isSafe(method) || method == http.MethodPut || method == http.MethodDelete
}
