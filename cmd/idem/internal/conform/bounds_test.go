package conform

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/idempotency/cmd/idem/internal/conform/report"
	"example.com/idempotency/cmd/idem/internal/conform/wrongserver"
)

// This file is about what the program does to others: whom it calls, how often, and what it shows.

// A server cannot lead the program to a host that nobody has named.
func TestNothingIsSentToOtherHosts(t *testing.T) {
	t.Parallel()
	var strayed atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { strayed.Add(1) }))
	t.Cleanup(other.Close)
	named := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "<"+other.URL+`/policy>; rel="describedby"`)
		if r.Header.Get("Idempotency-Key") == "" {
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		}
	}))
	t.Cleanup(named.Close)
	r, err := Run(t.Context(), configOf(named.URL, "ours"))
	require.NoError(t, err)
	require.Zero(t, strayed.Load())
	require.Contains(t, reason(r, "published"), errHost.Error())
}

// reason says why a check was not tried.
func reason(r *report.Report, check string) string {
	for _, f := range r.Findings {
		if f.Check == check {
			return f.Reason
		}
	}
	return "no such check"
}

// The number of requests is bounded, and what there were no requests for was not tried.
func TestRequestsAreBounded(t *testing.T) {
	t.Parallel()
	wrong := wrongserver.New("", time.Hour, 0)
	var served atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		wrong.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	c := configOf(server.URL, "ours")
	c.MaxRequests = 40
	r, err := Run(t.Context(), c)
	require.NoError(t, err)
	require.LessOrEqual(t, served.Load(), int64(40))
	require.LessOrEqual(t, r.Requests, 40)
	require.Equal(t, errBudget.Error(), reason(r, "lost-effect"))
	require.Empty(t, failing(r, report.Must, report.Should, report.Info))
}

// A second has no more requests than the rate allows, however many are sent at once.
func TestRateIsBounded(t *testing.T) {
	t.Parallel()
	c := configOf("http://127.0.0.1", "ours")
	c.Rate = 1000
	w, begin := newWire(&c), time.Now()
	for range 5 {
		require.NoError(t, w.take(t.Context(), 10))
	}
	require.GreaterOrEqual(t, time.Since(begin), 49*time.Millisecond)
}

// Reports are sent around: they have no credential.
func TestCredentialsAreNotShown(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	r := test(t, "retry-runs", "ours", 0)
	for _, format := range report.Formats() {
		require.NoError(t, report.Print(&text, format, r))
	}
	require.Contains(t, text.String(), "retry")
	require.NotContains(t, text.String(), "Bearer")
}

// Effects are counted in three ways, and what cannot be known is not tried.
func TestEffectsAreCounted(t *testing.T) {
	t.Parallel()
	address := func() string {
		free := httptest.NewServer(nil)
		defer free.Close()
		return free.Listener.Addr().String()
	}()
	for name, c := range map[string]struct {
		source      Source
		works       bool
		seesOthers  bool // also an effect whose answer did not arrive
		whyNot      string
		defectFound bool
	}{
		"by sink":           {Source{Sink: address}, true, true, "", true},
		"by ID":             {Source{ID: "/id"}, true, false, "", true},
		"by nothing":        {Source{}, false, false, "no way to learn of effects", false},
		"by a wrong URL":    {Source{URL: "/nowhere", Pointer: "/effects"}, false, false, "cannot be read", false},
		"by a dead counter": {Source{URL: "/dead", Pointer: "/list"}, false, false, "has not moved", false},
	} {
		for _, defect := range []string{"", "retry-runs"} {
			wrong := wrongserver.New(defect, time.Hour, 0)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/dead" {
					_, _ = w.Write([]byte(`{"list":[1,2]}`))
					return
				}
				wrong.ServeHTTP(w, r)
			}))
			t.Cleanup(server.Close)
			if c.source.Sink != "" {
				wrong.Downstream = "http://" + c.source.Sink
			}
			cfg := configOf(server.URL, "ours")
			cfg.Effects = c.source
			if c.source.URL != "" {
				cfg.Effects.URL = server.URL + c.source.URL
			}
			r, err := Run(t.Context(), cfg)
			require.NoError(t, err)
			assert.Equal(t, c.defectFound && defect != "", slices.Contains(failing(r, report.Must), "replay-effect"), "%s %s", name, defect)
			assert.Contains(t, reason(r, "replay-effect"), c.whyNot, name)
			assert.Equal(t, c.seesOthers, reason(r, "gone-effect") == "", name)
		}
	}
}

func TestPointers(t *testing.T) {
	t.Parallel()
	const document = `{"a":{"b/c":[1,{"~":2}]},"n":3}`
	for pointer, want := range map[string]any{
		"/n": 3.0, "/a/b~1c/0": 1.0, "/a/b~1c/1/~0": 2.0, "/x": nil, "/n/x": nil, "/a/b~1c/2": nil, "/a/b~1c/x": nil,
	} {
		got, ok := point([]byte(document), pointer)
		require.Equal(t, want, got, pointer)
		require.Equal(t, want != nil, ok, pointer)
	}
	whole, ok := point([]byte(`[1,2,3]`), "")
	require.True(t, ok)
	n, ok := number(whole)
	require.True(t, ok)
	require.Equal(t, 3, n.n)
	_, ok = number("three")
	require.False(t, ok)
}

// A fast route answers before it is known that the others have arrived: that is no fault of the server.
func TestRequestsHaveSurelyMet(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	after := func(sent, answered time.Duration) answer {
		return answer{status: http.StatusOK, wrote: begin.Add(sent), began: begin.Add(answered)}
	}
	for name, c := range map[string]struct {
		typical time.Duration
		crowd   []answer
		met     bool
	}{
		"slow route": {100 * time.Millisecond, []answer{after(0, 100*time.Millisecond), after(1, 101*time.Millisecond), {}}, true},
		"one late":   {100 * time.Millisecond, []answer{after(0, 100*time.Millisecond), after(80*time.Millisecond, 101*time.Millisecond), {}}, false},
		"fast route": {time.Millisecond, []answer{after(0, 80*time.Millisecond), after(1, 81*time.Millisecond), {}}, false},
	} {
		trial := &trial{lab: &lab{typical: c.typical}, answers: c.crowd}
		require.Equal(t, c.met, trial.met(), name)
		v := crowdStatus(&Profile{}, trial)
		require.Equal(t, map[bool]report.Result{true: report.Fails, false: report.NotTried}[c.met], v.result, name)
	}
}

// A long answer is compared as a whole and not kept, and one without an end is left.
func TestLongAnswers(t *testing.T) {
	t.Parallel()
	var changed atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for n := 0; r.URL.Path == "/endless" || n < 3*maxKept; n += 1 << 10 {
			text := strings.Repeat("x", 1<<10)
			if n == 2*maxKept && changed.Load() {
				text = strings.Repeat("y", 1<<10)
			}
			if _, err := w.Write([]byte(text)); err != nil {
				return
			}
		}
	}))
	t.Cleanup(server.Close)
	c := configOf(server.URL, "ours")
	w := newWire(&c)
	get := func(path string) answer { return w.send(t.Context(), shot{method: "GET", url: server.URL + path}, "") }
	first, again := get("/long"), get("/long")
	changed.Store(true)
	other, endless := get("/long"), get("/endless")
	require.True(t, first.sameBody(again))
	require.False(t, first.sameBody(other))
	for _, a := range []answer{first, other, endless} {
		require.Len(t, a.body, maxKept)
	}
	require.Equal(t, int64(maxAnswer), endless.size)
	require.Contains(t, endless.String(), "and more that were not read")
	require.Contains(t, (&lab{wire: w}).notes()[0], "1 answers were longer than 16 MiB")
}
