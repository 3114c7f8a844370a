package policy_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/policy"
	"example.com/idempotency/problem"
)

var charges = policy.Policy{
	Route: "POST /charges", Methods: []string{"POST"}, Key: policy.Key{Header: "Idempotency-Key", MaxBytes: 255},
	Binding: policy.Exact, ErrorHeader: "Idempotency-Error", ReplayedHeader: "Idempotent-Replayed", Problems: true,
	Refusals: []policy.Refusal{policy.NewRefusal(problem.InFlight)},
}

// get asks a handler. The fields are names and values in turn.
func get(h http.Handler, method string, fields ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "/keys", http.NoBody)
	for i := 0; i < len(fields); i += 2 {
		r.Header.Add(fields[i], fields[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestFormIsNegotiated(t *testing.T) {
	h := policy.Handler(charges)
	const page, document = "text/html; charset=utf-8", "application/json"
	for accept, want := range map[string]string{
		"":                            page,
		"*/*":                         page,
		"text/html":                   page,
		"application/json":            document,
		"Application/JSON":            document,
		"application/*":               document,
		"application/json, text/html": page,
		"text/html;q=0.5, */*":        document,
		"application/json;q=0.9, */*": page,
		"application/json, */*;q=0.8": document,
		"application/json;q=0, */*":   page,
		"text/*;q=0, */*;q=0.1":       document,
		"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8": page, // a browser
		"application/json;q=0.5, application/json;q=7":                    document,
		"application/problem+json":                                        page,
		"image/png":                                                       page,
		";;;,,, application/json":                                         document,
		"application/json;q=NaN":                                          page,
	} {
		w := get(h, http.MethodGet, "Accept", accept)
		require.Equal(t, http.StatusOK, w.Code)
		require.Equal(t, want, w.Header().Get("Content-Type"), accept)
		require.Equal(t, []string{"Accept"}, w.Header().Values("Vary"))
		require.Equal(t, want == document, json.Valid(w.Body.Bytes()), accept)
	}
	w := get(h, http.MethodGet, "Accept", "text/html;q=0.1", "Accept", "application/json")
	require.Equal(t, document, w.Header().Get("Content-Type"), "the field may be there twice")
}

// A cache may keep each form, and asks by its tag.
func TestHandlerIsThatOfAStaticFile(t *testing.T) {
	h := policy.Handler(charges)
	tags := make(map[string]bool)
	for _, accept := range []string{"text/html", "application/json"} {
		w := get(h, http.MethodGet, "Accept", accept)
		tag := w.Header().Get("Etag")
		require.Regexp(t, `^"[A-Za-z0-9_-]{16}"$`, tag)
		tags[tag] = true
		require.Equal(t, "public, max-age=300", w.Header().Get("Cache-Control"))
		require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))

		same := get(h, http.MethodGet, "Accept", accept, "If-None-Match", tag)
		require.Equal(t, http.StatusNotModified, same.Code)
		require.Empty(t, same.Body.String())
		require.Equal(t, tag, same.Header().Get("Etag"))
		require.Equal(t, http.StatusOK, get(h, http.MethodGet, "Accept", accept, "If-None-Match", `"other"`).Code)

		head := get(h, http.MethodHead, "Accept", accept)
		require.Equal(t, http.StatusOK, head.Code)
		require.Empty(t, head.Body.String())
		require.Equal(t, w.Header().Get("Content-Length"), head.Header().Get("Content-Length"))
	}
	require.Len(t, tags, 2)

	changed := charges
	changed.Required = true
	require.NotContains(t, tags, get(policy.Handler(changed), http.MethodGet).Header().Get("Etag"))
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions} {
		w := get(h, method)
		require.Equal(t, http.StatusMethodNotAllowed, w.Code)
		require.Equal(t, "GET, HEAD", w.Header().Get("Allow"))
	}
}

func TestRoutesMustDiffer(t *testing.T) {
	nameless := charges
	nameless.Route = ""
	payouts := charges
	payouts.Route = "POST /payouts"
	require.NotPanics(t, func() { policy.Handler(nameless) })
	require.NotPanics(t, func() { policy.Handler(charges, payouts) })
	require.PanicsWithValue(t, `policy: Handler: no policy`, func() { policy.Handler() })
	require.Panics(t, func() { policy.Handler(charges, nameless) })
	require.Panics(t, func() { policy.Handler(charges, payouts, charges) })
}

// A problem has the statuses that the routes give it, and its usual one if none has it.
func TestProblemHasTheStatusesOfAllRoutes(t *testing.T) {
	statuses := func(n int) policy.Policy {
		p := charges
		p.Route = http.StatusText(n)
		p.Refusals = []policy.Refusal{policy.NewRefusal(problem.KeyReused)}
		p.Refusals[0].Statuses = []int{n}
		return p
	}
	var published struct {
		Routes   []json.RawMessage
		Problems []policy.Refusal
	}
	body := get(policy.Handler(statuses(422), statuses(400)), http.MethodGet, "Accept", "application/json").Body.Bytes()
	require.NoError(t, json.Unmarshal(body, &published))
	require.Len(t, published.Routes, 2)
	require.Len(t, published.Problems, len(problem.Codes()))
	for _, p := range published.Problems {
		want := []int{problem.New(p.Code).Status}
		if p.Code == problem.KeyReused {
			want = []int{400, 422}
		}
		require.Equal(t, want, p.Statuses, p.Code)
	}
}
