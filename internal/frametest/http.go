package frametest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"testing"

	"example.com/idempotency"
)

// The server of net/http, which all others are compared with.

// HTTP returns net/http as a framework.
func HTTP() Framework {
	return Framework{
		Serve: func(t testing.TB, app *App, guard *idempotency.Guard) string {
			mux := http.NewServeMux()
			Register(app, guard, func(r *http.Request) string { return r.PathValue("name") }, func(method, path string, h http.Handler) {
				mux.Handle(method+" "+path, h)
			})
			return ServeHTTP(t, Outside(app, mux))
		},
		Scope: HeaderScope,
		Route: "POST /reply/{name}",
	}
}

// Around returns a router as a framework that knows nothing of the guard around it. It has the routes of
// app.go, and must be a handler of net/http.
func Around(router func(*App) http.Handler) Framework {
	return Framework{
		Serve: func(t testing.TB, app *App, guard *idempotency.Guard) string {
			h := router(app)
			if guard != nil {
				mux := http.NewServeMux()
				mux.Handle("/", guard.Handler(h))
				mux.Handle("/held/", guard.With(idempotency.WithRecovery(idempotency.Hold)).Handler(h))
				mux.Handle("/required/", guard.With(idempotency.WithRequired(true)).Handler(h))
				h = mux
			}
			return ServeHTTP(t, Outside(app, h))
		},
		Scope:        HeaderScope,
		Route:        "/",
		RouterInside: true,
	}
}

// HalfAnswers are the differences of a framework in which outer middleware, of that name, can answer after
// a handler that has panicked in the middle of its answer.
func HalfAnswers(middleware string) map[string][]Allowed {
	why := "The bare client gets half an answer as if it were whole. The guard drops it, and " + middleware + " can answer 500."
	var all []Allowed
	for _, part := range []string{"status", "body", "header Content-Type", "header Content-Length"} {
		all = append(all, Allowed{Between: First, Part: part, Why: why})
	}
	return map[string][]Allowed{"panic-late": all}
}

// HeaderScope takes the tenant from the request.
func HeaderScope(r *http.Request) (string, error) {
	tenant := r.Header.Get(TenantHeader)
	if tenant == "" {
		return "", errors.New("no tenant")
	}
	return tenant, nil
}

// Outside is what stands outside the guard on a server of net/http handlers.
func Outside(app *App, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Request-Id", app.RequestID())
		w.Header().Set("Vary", "Origin")
		next.ServeHTTP(w, r.WithContext(WithOuter(r.Context(), w.Header().Add)))
	})
}

// Register adds the routes of app.go as handlers of net/http to a router that has its own way of finding
// the parameter {name} of a path. A nil guard leaves them bare.
func Register(app *App, guard *idempotency.Guard, name func(*http.Request) string, handle func(method, path string, h http.Handler)) {
	post := func(path string, h http.HandlerFunc, opts ...idempotency.Option) {
		handle(http.MethodPost, path, protect(guard, h, opts...))
	}
	reply := func(w http.ResponseWriter, r *http.Request) { answerHTTP(w, app.Begin(r.Context(), name(r))) }
	for _, method := range []string{http.MethodPost, http.MethodPatch, http.MethodGet} {
		handle(method, "/reply/{name}", protect(guard, http.HandlerFunc(reply)))
	}
	post("/held/{name}", reply, idempotency.WithRecovery(idempotency.Hold))
	post("/required/{name}", reply, idempotency.WithRequired(true))
	post("/error/{name}", func(w http.ResponseWriter, r *http.Request) {
		reply := app.Begin(r.Context(), name(r))
		if reply.Status == 0 {
			reply.Status = http.StatusInternalServerError
		}
		http.Error(w, reply.Body, reply.Status)
	})
	post("/panic/{name}", func(w http.ResponseWriter, r *http.Request) {
		reply := app.Begin(r.Context(), name(r))
		_, _ = io.WriteString(w, reply.Body)
		panic(reply.Panic)
	})
	post("/stream/{name}", func(w http.ResponseWriter, r *http.Request) {
		reply := app.Begin(r.Context(), name(r))
		maps.Copy(w.Header(), reply.Header)
		for _, chunk := range reply.Chunks {
			_, _ = io.WriteString(w, chunk)
			_ = http.NewResponseController(w).Flush()
			reply.Pause()
		}
	})
	post("/request/{name}", func(w http.ResponseWriter, r *http.Request) {
		app.Begin(r.Context(), name(r))
		body, _ := io.ReadAll(r.Body)
		cookie, _ := r.Cookie("session")
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(Seen{
			r.Method, r.URL.Path, name(r), r.URL.RawQuery, fmt.Sprint(cookie), r.Header.Get("Content-Type"), r.UserAgent(),
			r.Header["X-Many"], r.ContentLength, string(body),
		})
	})
	post("/form", func(w http.ResponseWriter, r *http.Request) {
		app.Begin(r.Context(), "form")
		content := []byte(nil)
		if f, _, err := r.FormFile("f"); err == nil {
			content, _ = io.ReadAll(f)
		}
		_, _ = fmt.Fprintf(w, "%s,%s,%s", r.FormValue("a"), r.FormValue("b"), content)
	})
	post("/bind", func(w http.ResponseWriter, r *http.Request) {
		app.Begin(r.Context(), "bind")
		var order struct {
			Amount int `json:"amount"`
		}
		if err := json.NewDecoder(r.Body).Decode(&order); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(order)
	})
}

func protect(guard *idempotency.Guard, h http.Handler, opts ...idempotency.Option) http.Handler {
	if guard == nil {
		return h
	}
	return guard.With(opts...).Handler(h)
}

func answerHTTP(w http.ResponseWriter, reply Reply) {
	maps.Copy(w.Header(), reply.Header)
	w.WriteHeader(reply.Status)
	_, _ = io.WriteString(w, reply.Body)
	maps.Copy(w.Header(), reply.Trailer)
}
