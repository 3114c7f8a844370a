package guardtest

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
)

// Broken is a handler after whose run nobody knows what has happened.
func Broken(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }

// AfterStep is [Broken] after a step that is recorded.
func AfterStep(name string, opts ...idempotency.TaskOption) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = idempotency.Step(r.Context(), name, func(context.Context) (string, error) { return "done", nil }, opts...)
		Broken(w, r)
	}
}

// InDoubt is [Broken] after a step that must not be made twice, and that may have been made.
func InDoubt(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		hangs := func(context.Context) (string, error) { return "", errors.New("the provider hangs") }
		_, _ = idempotency.Step(r.Context(), name, hangs, idempotency.AtMostOnce())
		Broken(w, r)
	}
}

// RequireGolden compares a text with a file, or writes the file.
func RequireGolden(t testing.TB, file, got string, write bool) {
	t.Helper()
	if write {
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), got, "the test writes %s with -write", file)
}
