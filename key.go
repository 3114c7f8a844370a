package idempotency

import (
	"errors"
	"net/http"

	"example.com/idempotency/internal/keyheader"
	"example.com/idempotency/store"
)

// This file says what names a record: the key, whose key it is, and how both are read off a
// request.

// A Key names one record: a client's key and whose it is. [Do], [Guard.Lookup],
// [Guard.Resolve] and [Guard.Forget] refuse a Key without a scope or a value, but the last three
// also take one that has only Record.
type Key struct {
	// Scope is what the guard's [ScopeFunc] returns, or [store.Shared]. For [Do], choose a scope
	// that no ScopeFunc returns: a message and a request are never the same payload, so if they
	// had a key in common the later one would be refused. No caller has a scope that begins with
	// a zero byte, "\x00orders" for example.
	Scope string
	// Value is the key as the client sent it, decoded: abc for both abc and "abc". For
	// Do it is whatever names the work, a message id for example. It has 1 to 255 bytes
	// of any value.
	Value string
	// Record is the name of the record in the store, from an [event.Event] or a listing. It stands for
	// Scope and Value where somebody does not know them, and is empty in any other Key.
	Record string
}

// keyFromHeader returns the key of a request from the values of its field, and whether the request
// has the field at all. The text of an error is a sentence for the client, in which nothing of the
// request appears.
//
// Two fields are an error even if they are equal: a client must not send them, so
// something on the way has added one, and it is not known which.
func keyFromHeader(values []string, strict bool) (key string, present bool, err error) {
	switch len(values) {
	case 0:
		return "", false, nil
	case 1:
		key, err = keyheader.Parse(values[0], strict)
		return key, true, err
	default:
		return "", true, keyheader.ErrRepeated
	}
}

// A ScopeFunc returns whose key a request carries: the tenant, account or principal
// that was authenticated before the guard ran. Keys of different scopes never meet,
// so one caller cannot read another's answers or block another's keys.
//
// It sees only the *http.Request. A framework that keeps the authenticated principal in a
// context of its own must put it into the request's context before the guard runs.
//
// An error, or an empty scope, refuses the request with 403 before anything is read
// or claimed. An error that wraps [ErrUnauthenticated] refuses it with 401, and one that
// wraps [ErrTryLater] with 503. The client does not see the text of the error, which is in
// the log and in Err of the [event.Event]. A 401 needs the field WWW-Authenticate: a handler outside
// the guard, or the function of [WithErrorWriter], sets it.
//
// Take the scope from what authentication has established, typically a
// context value, and never from a header that the client fills in freely. A scope that begins with a
// zero byte is refused with 403: it could be one of this library's own, as [store.Shared] is. The guard calls
// the function once for each protected request that carries a key.
type ScopeFunc func(*http.Request) (string, error)

// SharedScope is the [ScopeFunc] that puts the keys of all callers into one
// namespace, [store.Shared]. It is right only where every caller may see every other caller's
// answers: a service with a single client, or webhooks of a single provider.
func SharedScope(*http.Request) (string, error) { return store.Shared, nil }

var (
	errEmptyScope    = errors.New("idempotency: the scope function returned an empty scope")
	errReservedScope = errors.New("idempotency: the scope function returned a scope that begins with a zero byte; only SharedScope and modules of this library may")
)

// A KeyFunc returns the idempotency key of a request, or an empty string if the request
// has none; see [WithKeyFunc]. It gets a copy of the request that has the body, so it may parse a form. It must not change
// or keep the body.
type KeyFunc func(r *http.Request, body []byte) (string, error)
