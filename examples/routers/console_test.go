package routers_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/console"
	"example.com/idempotency/internal/pagetest"
	"example.com/idempotency/store"
)

// A Mount of chi leaves the path as it is, and serves the console at the address without a slash, too.
func TestConsoleBelowChi(t *testing.T) {
	g, err := idempotency.New(idempotency.NewMemoryStore(), idempotency.SharedScope, idempotency.WithRecovery(idempotency.Hold))
	require.NoError(t, err)
	screens, err := console.New(g, console.Options{Authorize: func(*http.Request) (console.Actor, error) {
		return console.Actor{Name: "ada", Decide: true}, nil
	}})
	require.NoError(t, err)
	router := chi.NewRouter()
	router.Mount("/ops", screens)
	router.Route("/{tenant}/admin", func(r chi.Router) { r.Mount("/console", screens) })
	router.Route("/desk", func(r chi.Router) { r.Mount("/", screens) })
	do := func(method, target, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if body == "" {
			r.Header.Set("Accept", "application/json")
		}
		w := httptest.NewRecorder()
		router.ServeHTTP(w, r)
		return w
	}
	for _, at := range []string{"/ops", "/acme/admin/console", "/desk"} {
		k := idempotency.Key{Scope: "s", Value: at}
		_, _, err = idempotency.Do(t.Context(), g, k, func(context.Context) (int, error) { return 0, errors.New("nobody knows") })
		require.Error(t, err)
		led := do(http.MethodGet, at, "")
		to, err := (&url.URL{Path: at}).Parse(led.Header().Get("Location"))
		require.NoError(t, err)
		require.Equal(t, at+"/", to.Path)
		require.Greater(t, pagetest.Walk(t, router, at+"/"), 5)
		require.Equal(t, http.StatusNotFound, do(http.MethodGet, at+at, "").Code)

		seen, err := g.Lookup(t.Context(), k)
		require.NoError(t, err)
		record := at + "/records/" + seen.Record
		require.Contains(t, do(http.MethodGet, record, "").Body.String(), `"state":"held"`)
		form := url.Values{"seen": {seen.Seen().String()}, "decision": {"resume"}, "reason": {"the bank has nothing"}}
		require.Equal(t, http.StatusOK, do(http.MethodPost, record, form.Encode()).Code)
		seen, err = g.Lookup(t.Context(), k)
		require.NoError(t, err)
		require.Equal(t, store.Released, seen.State)
	}
}
