package client

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"example.com/idempotency/internal/digest"
	"example.com/idempotency/internal/keyheader"
	"example.com/idempotency/internal/stepcall"
)

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

// KeyFor returns the key of an intent that has an identity of its own: what is intended,
// and which one, as in
//
//	client.KeyFor("charge", order.ID)
//
// Whoever intends the same computes the same key, also after a crash, in another process
// and on another machine. The parts are told apart, whatever is in them: ("ab", "c") and
// ("a", "bc") have different keys. So have ("charge", id) and ("refund", id), and with a
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

// A chosenKey is what the caller has decided about the key of its requests.
type chosenKey struct {
	key   string
	none  bool
	since time.Time // when the key was made, if it is known
	// resumed: it may have been sent before, by a process that has ended.
	resumed bool
}

type chosenKeyContext struct{}

// WithKey returns a context whose request is sent with the given key, whatever its method
// is, as long as that is not a safe one (GET, HEAD, OPTIONS, TRACE). It is for one
// request: two different ones with the same key are refused by the server. A key has the
// form that the header field has, abc or "abc"; another one makes the request fail with
// [ErrKeyInvalid].
//
// The key counts as a new one, which was never sent: the caller sees to it that it is not
// older than the server remembers, and that a 401 now does not pass for the end of what was
// sent before. [Entry.Context] hands on a key with its age and that doubt.
func WithKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, chosenKeyContext{}, chosenKey{key: key})
}

// WithoutKey returns a context whose requests get no key. Such a request is sent once, if
// its method is not an idempotent one.
func WithoutKey(ctx context.Context) context.Context {
	return context.WithValue(ctx, chosenKeyContext{}, chosenKey{none: true})
}

// A requestKey is the key of one logical request.
type requestKey struct {
	value   string    // of the header field; empty if there is none
	since   time.Time // when it was made; zero: now
	resumed bool      // it may have been sent before
	end     func()    // ends the call of a step; nil outside
}

// keyOf finds or makes the key of a request.
func (t *Transport) keyOf(r *http.Request) (requestKey, error) {
	before := t.redirectedKey(r)
	if values, ok := t.keyField(r); ok {
		if len(values) != 1 || strings.TrimSpace(values[0]) == "" {
			return requestKey{}, fmt.Errorf("%w: the request needs one field %s with a value", ErrKeyInvalid, t.set.header)
		}
		if before.value == values[0] {
			return before, nil // http.Client has copied the field
		}
		return requestKey{value: values[0]}, nil
	}
	if before.value != "" {
		return before, nil
	}
	chosen, ok := r.Context().Value(chosenKeyContext{}).(chosenKey)
	switch {
	case ok && chosen.none:
		return requestKey{}, nil
	case ok && !isSafe(r.Method):
		if _, err := keyheader.Parse(chosen.key, false); err != nil {
			return requestKey{}, fmt.Errorf("%w: %w", ErrKeyInvalid, err)
		}
		return requestKey{value: t.field(chosen.key), since: chosen.since, resumed: chosen.resumed}, nil
	case !slices.Contains(t.set.methods, method(r)):
		return requestKey{}, nil
	}
	step, ok := stepcall.From(r.Context())
	if !ok {
		return requestKey{value: t.field(NewKey())}, nil
	}
	key, resumed, err := step.BeginCall()
	if err != nil {
		return requestKey{}, err
	}
	return requestKey{value: t.field(key), resumed: resumed, end: step.EndCall}, nil
}

// keyField returns the values of the field that carries the key, however its name is
// spelled in the map.
func (t *Transport) keyField(r *http.Request) (values []string, ok bool) {
	for name, v := range r.Header {
		if t.isKeyField(name) {
			values, ok = append(values, v...), true
		}
	}
	return values, ok
}

func (t *Transport) isKeyField(name string) bool { return strings.EqualFold(name, t.set.header) }

type historyContext struct{}

// answered returns the request of an answer. With a redirect http.Client comes back, and
// what is known of the key has to be known then.
func (c *call) answered(resp *http.Response) *http.Request {
	if resp.StatusCode/100 != 3 || c.key.value == "" {
		return c.req
	}
	key := requestKey{value: c.key.value, since: c.key.since, resumed: c.unknown}
	return c.req.WithContext(context.WithValue(c.req.Context(), historyContext{}, key))
}

// redirectedKey returns the key of the request that was answered with the redirect that
// http.Client follows with this one; none if there was no such request. It is the same
// request at another place.
func (t *Transport) redirectedKey(r *http.Request) requestKey {
	if r.Response == nil || r.Response.Request == nil || method(r.Response.Request) != method(r) {
		return requestKey{}
	}
	if key, ok := r.Response.Request.Context().Value(historyContext{}).(requestKey); ok {
		return key
	}
	return requestKey{value: r.Response.Request.Header.Get(t.set.header)}
}

// field returns the value of the header field that carries a key.
func (t *Transport) field(key string) string {
	if !t.set.strictKeys || strings.HasPrefix(strings.TrimSpace(key), `"`) {
		return key
	}
	return `"` + strings.ReplaceAll(key, `\`, `\\`) + `"`
}

// method returns the method of a request, of which net/http allows the short form of GET.
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
