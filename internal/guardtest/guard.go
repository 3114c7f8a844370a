package guardtest

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
)

// TenantScope takes the scope from a header: fine for a test, wrong for an API.
func TenantScope(r *http.Request) (string, error) {
	tenant := r.Header.Get("X-Tenant")
	switch tenant {
	case "":
		return "acme", nil
	case "unknown":
		return "", errors.New("no such tenant")
	case "empty":
		return "", nil
	}
	return tenant, nil
}

// NewGuard returns a guard on a store that is shut down at the end of the test, which
// fails if work is left over.
func NewGuard(t testing.TB, store idempotency.Store, opts ...idempotency.Option) *idempotency.Guard {
	t.Helper()
	return NewGuardOf(t, store, TenantScope, opts...)
}

// NewGuardOf is [NewGuard] with another scope.
func NewGuardOf(t testing.TB, store idempotency.Store, scope idempotency.ScopeFunc, opts ...idempotency.Option) *idempotency.Guard {
	t.Helper()
	opts = append([]idempotency.Option{idempotency.WithLogger(slog.New(slog.DiscardHandler))}, opts...)
	g, err := idempotency.New(store, scope, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = g.Shutdown(context.Background()) })
	return g
}
