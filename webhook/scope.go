package webhook

import (
	"errors"
	"net/http"
	"strings"

	"example.com/idempotency/internal/reserved"
)

var errNotVerified = errors.New("webhook: no Verify stands before this guard, so nobody knows whose delivery this is")

// Scope is an [idempotency.ScopeFunc]: deliveries of one sender are a scope of their own. It
// fails if neither [Verify] nor [VerifyWith] has let the request in. So a guard with this scope
// refuses deliveries that were not verified, with 403. A ScopeFunc of the program may call it for
// deliveries and return something else for other requests, which never get the scope of a sender.
func Scope(r *http.Request) (string, error) {
	scope := reserved.In(r.Context())
	if !strings.HasPrefix(scope, scopeOf("")) {
		return "", errNotVerified
	}
	return scope, nil
}

// scopeOf returns the scope of a sender's deliveries.
func scopeOf(name string) string { return reserved.Scope("webhook", name) }
