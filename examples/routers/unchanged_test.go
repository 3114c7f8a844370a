package routers_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/gorilla/mux"
	"github.com/julienschmidt/httprouter"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/frametest"
)

// Routers of net/http handlers lose nothing behind a guard, which they take as it is.
func TestRoutersTakeAGuardAsItIs(t *testing.T) {
	for name, c := range map[string]struct {
		route string
		serve func(app *frametest.App, guard *idempotency.Guard) http.Handler
	}{
		"chi": {"/reply/{name}", func(app *frametest.App, guard *idempotency.Guard) http.Handler {
			r := chi.NewRouter()
			frametest.Register(app, guard, func(r *http.Request) string { return r.PathValue("name") }, r.Method)
			return r
		}},
		"gorilla": {"", func(app *frametest.App, guard *idempotency.Guard) http.Handler {
			r := mux.NewRouter()
			frametest.Register(app, guard, func(r *http.Request) string { return mux.Vars(r)["name"] }, func(method, path string, h http.Handler) {
				r.Handle(path, h).Methods(method)
			})
			return r
		}},
		"httprouter": {"", func(app *frametest.App, guard *idempotency.Guard) http.Handler {
			r := httprouter.New()
			name := func(r *http.Request) string { return httprouter.ParamsFromContext(r.Context()).ByName("name") }
			frametest.Register(app, guard, name, func(method, path string, h http.Handler) {
				r.Handler(method, strings.Replace(path, "{name}", ":name", 1), h)
			})
			return r
		}},
	} {
		t.Run(name, func(t *testing.T) {
			result := frametest.Run(t, frametest.Framework{
				Serve: func(t testing.TB, app *frametest.App, guard *idempotency.Guard) string {
					return frametest.ServeHTTP(t, frametest.Outside(app, c.serve(app, guard)))
				},
				Scope: frametest.HeaderScope,
				Route: c.route,
			})
			require.Equal(t, result.Requests, result.Equal)
		})
	}
}
