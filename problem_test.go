package idempotency_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
)

// Each refusal names its code in a field of its own, whatever the application makes of the
// body; no other answer has the field.
func TestRefusalNamesItsCodeUnderAnErrorWriter(t *testing.T) {
	t.Parallel()
	guard := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithRequired(true),
		idempotency.WithErrorWriter(func(w http.ResponseWriter, _ *http.Request, _ problem.Document) {
			http.Error(w, "no", http.StatusTeapot)
		}))
	s := route(t, guard, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	for _, c := range []struct {
		call guardtest.Call
		want problem.Code
	}{
		{guardtest.Call{}, problem.KeyMissing},
		{lookup(""), problem.KeyUnknown},
		{guardtest.Call{Key: "k"}, ""},
		{guardtest.Call{Key: "k"}, ""},
		{guardtest.Call{Key: "k", Body: "other"}, problem.KeyReused},
		{guardtest.Call{Key: "a,b"}, problem.KeyInvalid},
		{lookup(""), ""},
	} {
		got := s.Do(t, c.call)
		require.Equal(t, string(c.want), got.Header.Get(problem.Header))
		require.Equal(t, c.want != "", got.Status == http.StatusTeapot)
	}
}
