package frametest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
)

// The guard around a handler of net/http loses nothing.
func TestHTTP(t *testing.T) {
	result := Run(t, HTTP())
	require.Equal(t, result.Requests, result.Equal)
}

func TestForms(t *testing.T) {
	Forms(t, func(t testing.TB, guard *idempotency.Guard) string {
		return ServeHTTP(t, guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, r.PostFormValue("amount"))
		})))
	}, nil)
}

// A scope function that parses the URL leaves a form with files to the handler.
func TestFormBehindAScope(t *testing.T) {
	guard, _ := NewGuard(t, func(r *http.Request) (string, error) { return r.URL.Path, r.ParseForm() })
	url := ServeHTTP(t, guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.FormValue("amount")) })))
	got, _ := PostBody(t, url, "--x\r\nContent-Disposition: form-data; name=amount\r\n\r\n100\r\n--x--\r\n", map[string]string{"Content-Type": "multipart/form-data; boundary=x"})
	require.Equal(t, Answer{Status: http.StatusOK, Body: "100"}, got)
}

// The requests find what naive adapters get wrong.
func TestNaiveAdapterIsFound(t *testing.T) {
	naive := HTTP()
	var found []string
	naive.report = func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	naive.Serve = func(t testing.TB, app *App, guard *idempotency.Guard) string {
		mux := http.NewServeMux()
		Register(app, nil, func(r *http.Request) string { return r.PathValue("name") }, func(method, path string, h http.Handler) {
			if guard == nil {
				mux.Handle(method+" "+path, h)
				return
			}
			mux.HandleFunc(method+" "+path, func(outer http.ResponseWriter, r *http.Request) {
				guard.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { h.ServeHTTP(outer, r) })).ServeHTTP(outer, r)
			})
		})
		return ServeHTTP(t, Outside(app, mux))
	}
	Run(t, naive)
	all := strings.Join(found, "\n")
	for _, want := range []string{
		`status-201: first and retry: status: "201" became "409"`,
		`status-429: 1 runs instead of 2`,
		`stream: first and retry: body`,
		`the handler of POST /reply/{name} was silent`,
		`refusal held`,
	} {
		require.Contains(t, all, want)
	}
}
