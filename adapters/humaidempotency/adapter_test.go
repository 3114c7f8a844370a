package humaidempotency_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/danielgtaylor/huma/v2/adapters/humahttprouter"
	"github.com/julienschmidt/httprouter"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/adapters/humaidempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/frametest"
	"example.com/idempotency/problem"
)

// serve serves one operation behind the middleware that f makes, outermost first.
func serve[I, O any](t *testing.T, handler func(context.Context, *I) (*O, error), f func(huma.API) huma.Middlewares) string {
	mux := http.NewServeMux()
	api := humago.New(mux, config())
	huma.Register(api, huma.Operation{OperationID: "charge", Method: http.MethodPost, Path: "/charges", Middlewares: f(api)}, handler)
	return frametest.ServeHTTP(t, mux) + "/charges"
}

func guarded(guard *idempotency.Guard) func(huma.API) huma.Middlewares {
	return func(api huma.API) huma.Middlewares { return huma.Middlewares{humaidempotency.Middleware(api, guard)} }
}

func charge(_ context.Context, o *order) (*order, error) { return o, nil }

// Refusals have huma's format, with the code as the value of their error.
func TestRefusalsAreHumasErrors(t *testing.T) {
	guard, _ := frametest.NewGuard(t, frametest.HeaderScope, idempotency.WithStrictKeys(true), idempotency.WithPolicyURL("https://example.com/keys"))
	got := frametest.Post(t, serve(t, charge, guarded(guard)))
	require.Equal(t, http.StatusBadRequest, got.Status)
	var model huma.ErrorModel
	require.NoError(t, json.Unmarshal([]byte(got.Body), &model))
	require.Equal(t, http.StatusBadRequest, model.Status)
	require.Equal(t, "https://example.com/keys#key-invalid", model.Type)
	require.NotEmpty(t, model.Detail)
	require.Len(t, model.Errors, 1)
	require.Equal(t, string(problem.KeyInvalid), model.Errors[0].Value)
	require.Contains(t, got.Body, "$schema", "what the API's transformers add")
}

// An API with one guard for all and another one for an operation runs it once.
func TestNestedMiddleware(t *testing.T) {
	guard, events := frametest.NewGuard(t, frametest.HeaderScope)
	url := serve(t, charge, func(api huma.API) huma.Middlewares { return append(guarded(guard)(api), guarded(guard)(api)...) })
	first, retry := frametest.Post(t, url), frametest.Post(t, url)
	require.Equal(t, http.StatusOK, first.Status, first.Body)
	require.True(t, retry.Replayed)
	require.Equal(t, first.Body, retry.Body)
	require.Len(t, events(event.Nested), 1)
}

// The functions of a guard find the context.
func TestContext(t *testing.T) {
	guard, _ := frametest.NewGuard(t, func(r *http.Request) (string, error) {
		ctx, ok := humaidempotency.Context(r.Context())
		require.True(t, ok)
		require.Equal(t, "charge", ctx.Operation().OperationID)
		return "tenant", nil
	}, idempotency.WithReference(func(r *http.Request, body []byte) string {
		ctx, _ := humaidempotency.Context(r.Context())
		read, err := io.ReadAll(ctx.BodyReader())
		require.NoError(t, err)
		require.Equal(t, body, read)
		return ""
	}))
	require.Equal(t, http.StatusOK, frametest.Post(t, serve(t, charge, guarded(guard))).Status)
	_, ok := humaidempotency.Context(t.Context())
	require.False(t, ok)
}

// The adapter's own writer leads past the guard. It can be had only where there is no run.
func TestUnwrapIsRefusedInARun(t *testing.T) {
	guard, _ := frametest.NewGuard(t, frametest.HeaderScope)
	unwrap := func(ctx huma.Context, next func(huma.Context)) {
		defer func() {
			if v := recover(); v != nil {
				ctx.SetStatus(http.StatusTeapot)
			}
		}()
		humago.Unwrap(ctx)
		next(ctx)
	}
	url := serve(t, charge, func(api huma.API) huma.Middlewares { return append(guarded(guard)(api), unwrap) })
	require.Equal(t, http.StatusTeapot, frametest.Post(t, url).Status)
	unprotected := guard.With(idempotency.WithMethods(http.MethodPut))
	url = serve(t, charge, func(api huma.API) huma.Middlewares { return append(guarded(unprotected)(api), unwrap) })
	require.Equal(t, http.StatusOK, frametest.Post(t, url).Status)
}

// An adapter without net/http's request is refused when the middleware is made, or, in a group,
// with the first request.
func TestOtherAdaptersAreRefused(t *testing.T) {
	guard, _ := frametest.NewGuard(t, frametest.HeaderScope)
	router := httprouter.New()
	api := humahttprouter.New(router, config())
	require.PanicsWithError(t, "humaidempotency: contexts of humahttprouter do not have the request of net/http: "+
		"put the guard into the router: guard.Handler with httprouter and bunrouter, ginidempotency with gin, echo4idempotency with echo",
		func() { humaidempotency.Middleware(api, guard) })

	group := huma.NewGroup(api, "/group")
	var refused any
	group.UseMiddleware(func(ctx huma.Context, next func(huma.Context)) {
		defer func() {
			refused = recover()
			ctx.SetStatus(http.StatusInternalServerError)
		}()
		next(ctx)
	}, humaidempotency.Middleware(group, guard))
	huma.Register(group, huma.Operation{OperationID: "charge", Method: http.MethodPost, Path: "/charges"}, charge)
	require.Equal(t, http.StatusInternalServerError, frametest.Post(t, frametest.ServeHTTP(t, router)+"/group/charges").Status)
	require.ErrorContains(t, refused.(error), "put the guard into the router")

	require.Panics(t, func() { humaidempotency.Middleware(nil, guard) })
	require.Panics(t, func() { humaidempotency.Middleware(humago.New(http.NewServeMux(), config()), nil) })
}

// The middleware that comes to mind first lets huma answer past the guard. The guard notices,
// says what to do, and replays nothing.
func TestNaiveMiddlewareIsReported(t *testing.T) {
	guard, events := frametest.NewGuard(t, frametest.HeaderScope)
	url := serve(t, charge, func(huma.API) huma.Middlewares {
		return huma.Middlewares{func(ctx huma.Context, next func(huma.Context)) {
			r, w := humago.Unwrap(ctx)
			guard.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				next(huma.WithContext(ctx, r.Context()))
			})).ServeHTTP(w, r)
		}}
	})
	require.Equal(t, http.StatusBadRequest, frametest.Post(t, url).Status, "the guard has read the body")
	require.Equal(t, http.StatusConflict, frametest.Post(t, url).Status)
	silent := events(event.Silent)
	require.Len(t, silent, 1)
	require.ErrorContains(t, silent[0].Err, "humaidempotency")
}

// Middleware outside finds the status of the answer in its context: of a run, a replay, a refusal,
// and beside a guard that only looks on, which also leaves the adapter's Unwrap and the writers of
// other middleware alone.
func TestContextOutsideHasTheStatus(t *testing.T) {
	for name, opts := range map[string][]idempotency.Option{
		"live":   nil,
		"strict": {idempotency.WithStrictKeys(true)},
		"shadow": {idempotency.WithShadow(true)},
	} {
		t.Run(name, func(t *testing.T) {
			var seen []int
			observe := func(ctx huma.Context, next func(huma.Context)) {
				next(ctx)
				seen = append(seen, ctx.Status())
			}
			guard, events := frametest.NewGuard(t, frametest.HeaderScope, opts...)
			url := serve(t, func(context.Context, *order) (*order, error) { return nil, huma.Error409Conflict("declined") },
				func(api huma.API) huma.Middlewares {
					unwraps := func(ctx huma.Context, next func(huma.Context)) {
						if name == "shadow" {
							_, w := humago.Unwrap(ctx)
							require.NotNil(t, w)
						}
						next(ctx)
					}
					// The second guard meets the context of the first.
					return append(huma.Middlewares{observe}, append(guarded(guard)(api), append(guarded(guard)(api), unwraps)...)...)
				})
			status := map[string]int{"strict": http.StatusBadRequest}[name]
			if status == 0 {
				status = http.StatusConflict
			}
			for range 2 {
				require.Equal(t, status, frametest.Post(t, url).Status)
			}
			require.Equal(t, []int{status, status}, seen)
			if name != "shadow" {
				return
			}
			require.Eventually(t, func() bool { return len(events(event.Shadow)) == 4 }, 10*time.Second, time.Millisecond)
			would := map[event.Kind]int{}
			for _, e := range events(event.Shadow) {
				require.NoError(t, e.Err)
				require.Equal(t, status, e.Status)
				would[e.Would]++
			}
			require.Equal(t, map[event.Kind]int{event.Run: 1, event.Replay: 1, event.Nested: 2}, would)
		})
	}
}

// serveUpper serves a handler whose stream goes through a middleware outside that writes capitals.
func serveUpper(t *testing.T, guard *idempotency.Guard) string {
	mux := http.NewServeMux()
	api := humago.New(mux, config())
	upper := func(ctx huma.Context, next func(huma.Context)) { next(&upperContext{ctx}) }
	huma.Register(api, huma.Operation{
		OperationID: "charge", Method: http.MethodPost, Path: "/charges",
		Middlewares: append(huma.Middlewares{upper}, guarded(guard)(api)...),
	}, func(_ context.Context, in *struct{ RawBody []byte }) (*huma.StreamResponse, error) {
		return &huma.StreamResponse{Body: func(ctx huma.Context) {
			w := ctx.BodyWriter()
			_, _ = w.Write(in.RawBody)
			w.(http.Flusher).Flush()
			_, _ = w.Write(in.RawBody)
		}}, nil
	})
	return frametest.ServeHTTP(t, mux) + "/charges"
}

// The answers of a guard, its replays and its refusals go through the writer of middleware outside.
func TestOuterContextWritesTheBody(t *testing.T) {
	guard, _ := frametest.NewGuard(t, frametest.HeaderScope)
	url := serveUpper(t, guard)
	const want = `{"AMOUNT":100}{"AMOUNT":100}`
	require.Equal(t, frametest.Answer{Status: http.StatusOK, Body: want}, frametest.PostSettled(t, url))
	require.Equal(t, frametest.Answer{Status: http.StatusOK, Body: want, Replayed: true}, frametest.PostSettled(t, url))
	refusing, _ := frametest.NewGuard(t, frametest.HeaderScope, idempotency.WithStrictKeys(true))
	require.Contains(t, frametest.Post(t, serveUpper(t, refusing)).Body, "KEY-INVALID")
}

// Beside a guard that only looks on, a handler's stream goes through the writer of other middleware.
func TestShadowLeavesTheBodyWriterAlone(t *testing.T) {
	guard, events := frametest.NewGuard(t, frametest.HeaderScope, idempotency.WithShadow(true))
	require.Equal(t, `{"AMOUNT":100}{"AMOUNT":100}`, frametest.Post(t, serveUpper(t, guard)).Body)
	require.Equal(t, http.StatusOK, frametest.LastShadow(t, events, 1).Status)
}

type inner huma.Context

// An upperContext writes capitals.
type upperContext struct{ inner }

func (c *upperContext) Unwrap() huma.Context { return c.inner }

func (c *upperContext) BodyWriter() io.Writer { return upperWriter{c.inner.BodyWriter()} }

type upperWriter struct{ io.Writer }

func (w upperWriter) Write(p []byte) (int, error) { return w.Writer.Write(bytes.ToUpper(p)) }

func (w upperWriter) Flush() { w.Writer.(http.Flusher).Flush() }
