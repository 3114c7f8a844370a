package humaidempotency_test

import (
	"context"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/adapters/humaidempotency"
	"example.com/idempotency/internal/frametest"
)

type (
	protection func(...idempotency.Option) huma.Middlewares
	tenantKey  struct{}
)

// TestFrame sends the requests of frametest. The guard protects an operation, or a group of them.
func TestFrame(t *testing.T) {
	result := frametest.Run(t, frametest.Framework{
		Serve: func(t testing.TB, app *frametest.App, guard *idempotency.Guard) string {
			mux := http.NewServeMux()
			api := humago.New(mux, config())
			api.UseMiddleware(func(ctx huma.Context, next func(huma.Context)) {
				ctx.SetHeader("X-Request-Id", app.RequestID())
				ctx.SetHeader("Vary", "Origin")
				ctx = huma.WithContext(ctx, frametest.WithOuter(ctx.Context(), ctx.AppendHeader))
				next(huma.WithValue(ctx, tenantKey{}, ctx.Header(frametest.TenantHeader)))
			})
			register(api, app, func(opts ...idempotency.Option) huma.Middlewares {
				if guard == nil {
					return nil
				}
				return huma.Middlewares{humaidempotency.Middleware(api, guard.With(opts...))}
			})
			return frametest.ServeHTTP(t, mux)
		},
		Scope: func(r *http.Request) (string, error) {
			tenant, _ := r.Context().Value(tenantKey{}).(string)
			return tenant, nil
		},
		Route:       "POST /reply/{name}",
		OwnProblems: true,
	})
	require.Equal(t, result.Requests, result.Equal)
}

// TestFrameAroundTheRouter sends them to an API that knows nothing of the guard around it.
func TestFrameAroundTheRouter(t *testing.T) {
	result := frametest.Run(t, frametest.Around(func(app *frametest.App) http.Handler {
		inner := http.NewServeMux()
		register(humago.New(inner, config()), app, func(...idempotency.Option) huma.Middlewares { return nil })
		return inner
	}))
	require.Equal(t, result.Requests, result.Equal)
}

func config() huma.Config {
	c := huma.DefaultConfig("frametest", "1.0.0")
	c.OpenAPIPath, c.DocsPath, c.SchemasPath = "", "", ""
	return c
}

type (
	named struct {
		Name string `path:"name"`
	}
	order struct {
		Body struct {
			Amount int `json:"amount"`
		}
	}
	form struct {
		RawBody multipart.Form
	}
)

// register adds the routes of frametest.
func register(api huma.API, app *frametest.App, protect protection) {
	operation := func(method, path string, m huma.Middlewares) huma.Operation {
		return huma.Operation{
			OperationID: strings.NewReplacer("/", "-", "{", "", "}", "").Replace(method + path),
			Method:      method, Path: path, Middlewares: m, MaxBodyBytes: 4 << 20, DefaultStatus: http.StatusOK,
		}
	}
	stream := func(api huma.API, method, path string, m huma.Middlewares, f func(huma.Context, frametest.Reply)) {
		huma.Register(api, operation(method, path, m), func(ctx context.Context, in *named) (*huma.StreamResponse, error) {
			r := app.Begin(ctx, in.Name)
			return &huma.StreamResponse{Body: func(ctx huma.Context) { f(ctx, r) }}, nil
		})
	}
	reply := func(ctx huma.Context, r frametest.Reply) {
		for name, values := range r.Header {
			ctx.SetHeader(name, values[0])
			for _, value := range values[1:] {
				ctx.AppendHeader(name, value)
			}
		}
		ctx.SetStatus(r.Status)
		_, _ = io.WriteString(ctx.BodyWriter(), r.Body)
		for name := range r.Trailer {
			ctx.SetHeader(name, r.Trailer.Get(name))
		}
	}
	replies := huma.NewGroup(api, "/reply")
	for _, m := range protect() {
		replies.UseMiddleware(m)
	}
	for _, method := range []string{http.MethodPost, http.MethodPatch, http.MethodGet} {
		stream(replies, method, "/{name}", nil, reply)
	}
	stream(api, http.MethodPost, "/held/{name}", protect(idempotency.WithRecovery(idempotency.Hold)), reply)
	stream(api, http.MethodPost, "/required/{name}", protect(idempotency.WithRequired(true)), reply)
	stream(api, http.MethodPost, "/panic/{name}", protect(), func(ctx huma.Context, r frametest.Reply) {
		_, _ = io.WriteString(ctx.BodyWriter(), r.Body)
		panic(r.Panic)
	})
	stream(api, http.MethodPost, "/stream/{name}", protect(), func(ctx huma.Context, r frametest.Reply) {
		ctx.SetHeader("Content-Type", r.Header.Get("Content-Type"))
		for _, chunk := range r.Chunks {
			_, _ = io.WriteString(ctx.BodyWriter(), chunk)
			ctx.BodyWriter().(http.Flusher).Flush()
			r.Pause()
		}
	})
	huma.Register(api, operation(http.MethodPost, "/error/{name}", protect()), func(ctx context.Context, in *named) (*struct{}, error) {
		r := app.Begin(ctx, in.Name)
		if r.Status == 0 {
			return nil, fmt.Errorf("plain: %s", r.Body)
		}
		return nil, huma.NewError(r.Status, r.Body)
	})
	huma.Register(api, operation(http.MethodPost, "/request/{name}", protect()), func(ctx context.Context, in *struct {
		Name    string      `path:"name"`
		A       []string    `query:"a,explode"`
		Session http.Cookie `cookie:"session"`
		Type    string      `header:"Content-Type"`
		RawBody []byte
	},
	) (*struct{ Body frametest.Seen }, error) {
		app.Begin(ctx, in.Name)
		return &struct{ Body frametest.Seen }{frametest.Seen{
			Name: in.Name, Query: fmt.Sprint(in.A), Cookie: in.Session.Value, Type: in.Type, Body: string(in.RawBody),
		}}, nil
	})
	huma.Register(api, operation(http.MethodPost, "/form", protect()), func(ctx context.Context, in *form) (*struct{ Body string }, error) {
		app.Begin(ctx, "form")
		content := []byte(nil)
		if files := in.RawBody.File["f"]; len(files) > 0 {
			f, _ := files[0].Open()
			content, _ = io.ReadAll(f)
			_ = f.Close()
		}
		return &struct{ Body string }{fmt.Sprint(in.RawBody.Value["a"], in.RawBody.Value["b"], string(content))}, nil
	})
	bind := operation(http.MethodPost, "/bind", protect())
	bind.DefaultStatus = http.StatusCreated
	huma.Register(api, bind, func(ctx context.Context, in *order) (*order, error) {
		app.Begin(ctx, "bind")
		return in, nil
	})
}

type userKey struct{}

func ExampleMiddleware() {
	guard, err := idempotency.New(idempotency.NewMemoryStore(), func(r *http.Request) (string, error) {
		user, _ := r.Context().Value(userKey{}).(string)
		return user, nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	api := humago.New(mux, huma.DefaultConfig("Charges", "1.0.0"))
	api.UseMiddleware(func(ctx huma.Context, next func(huma.Context)) {
		next(huma.WithValue(ctx, userKey{}, "alice")) // yours verifies a token
	})
	huma.Register(api, huma.Operation{
		OperationID: "charge", Method: http.MethodPost, Path: "/charges",
		Middlewares: huma.Middlewares{humaidempotency.Middleware(api, guard)},
	}, func(ctx context.Context, in *order) (*struct{}, error) {
		op, _ := idempotency.FromContext(ctx)
		return nil, huma.NewError(http.StatusPaymentRequired, fmt.Sprintf("declined in attempt %d", op.Attempt()))
	})
	for _, amount := range []int{100, 100, 999} {
		r := httptest.NewRequest(http.MethodPost, "/charges", strings.NewReader(fmt.Sprintf(`{"amount":%d}`, amount)))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", "order-1")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Printf("%d %s %q %q\n", w.Code, w.Header().Get("Content-Type"), w.Header().Get("Idempotent-Replayed"), w.Header().Get("Idempotency-Error"))
	}
	// Output:
	// 402 application/problem+json "" ""
	// 402 application/problem+json "true" ""
	// 409 application/problem+json "" "key-reused"
}
