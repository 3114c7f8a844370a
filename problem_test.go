package idempotency_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/problem"
)

// Each refusal names its code in a field of its own, whatever the application makes of the
// body; no other answer has the field.
func TestRefusalNamesItsCodeUnderAnErrorWriter(t *testing.T) {
	t.Parallel()
	guard := newGuard(t, idempotency.NewMemoryStore(), idempotency.WithRequired(true),
		idempotency.WithErrorWriter(func(w http.ResponseWriter, _ *http.Request, _ problem.Document) {
			http.Error(w, "no", http.StatusTeapot)
		}))
	s := route(t, guard, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	for _, c := range []struct {
		call call
		want problem.Code
	}{
		{call{}, problem.KeyMissing},
		{lookup(""), problem.KeyUnknown},
		{call{key: "k"}, ""},
		{call{key: "k"}, ""},
		{call{key: "k", body: "other"}, problem.KeyReused},
		{call{key: "a,b"}, problem.KeyInvalid},
		{lookup(""), ""},
	} {
		got := s.do(t, c.call)
		require.Equal(t, string(c.want), got.header.Get(problem.Header))
		require.Equal(t, c.want != "", got.status == http.StatusTeapot)
	}
}
