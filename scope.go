package idempotency

import (
	"errors"
	"net/http"
)

// A ScopeFunc tells whose key a request carries: the tenant, account or principal
// that was authenticated before the guard ran. Keys of different scopes never meet,
// so one caller cannot read another's answers or block another's keys.
//
// It sees the *http.Request alone: frameworks that keep the authenticated principal in a
// context of their own have to put it into the request's context before the guard.
//
// An error, or an empty scope, refuses the request with 403 before anything is read
// or claimed. Take the scope from what authentication has established, typically a
// context value, and never from a header that the client fills in freely. It is
// called once for each protected request that carries a key.
type ScopeFunc func(*http.Request) (string, error)

// Shared is the scope that [SharedScope] returns, for naming its keys in a [Key]. It
// cannot be mistaken for an authenticated name: no principal contains NUL.
const Shared = "\x00shared"

// SharedScope is the [ScopeFunc] that puts the keys of all callers into one
// namespace. It is right only where every caller may see every other caller's
// answers: a service with a single client, or webhooks of a single provider.
func SharedScope(*http.Request) (string, error) { return Shared, nil }

var errEmptyScope = errors.New("idempotency: the scope function returned an empty scope")

// scopeOf applies the rule that a missing scope is a mistake and never a namespace:
// an "anonymous" bucket would be shared by every caller who fails to authenticate.
func scopeOf(f ScopeFunc, r *http.Request) (string, error) {
	scope, err := f(r)
	if err == nil && scope == "" {
		err = errEmptyScope
	}
	return scope, err
}
