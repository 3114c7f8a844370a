package conform

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/idempotency/cmd/idem/internal/conform/report"
	"example.com/idempotency/cmd/idem/internal/conform/wrongserver"
)

// ttl is how long servers keep a key where that is tried.
const ttl = 4 * time.Second

// configOf tests a server as fast as it goes.
func configOf(url, profile string) Config {
	return Config{
		Template: Template{
			Method: http.MethodPost, URL: url + "/charges", Body: `{"amount":{{unique}},"currency":"eur"}`,
			Header: http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer alice"}},
		},
		Profile: profile, Effects: Source{URL: url + "/count", Pointer: "/effects"},
		Credential: "Authorization: Bearer bob", OtherPath: "/refunds",
		AtOnce: 6, MaxRequests: 1000, Rate: 100_000, Timeout: 10 * time.Second, Patience: 400 * time.Millisecond, Late: 600 * time.Millisecond,
	}
}

// test tests a server that is wrong in one way, or in none.
func test(t *testing.T, defect, profile string, ttl time.Duration) *report.Report {
	t.Helper()
	wrong := wrongserver.New(defect, cmp.Or(ttl, time.Hour), 20*time.Millisecond)
	server := httptest.NewServer(wrong)
	t.Cleanup(server.Close)
	c := configOf(server.URL, profile)
	c.TTL = ttl
	c.Restart = func(context.Context) error { wrong.Crash(); return nil }
	r, err := Run(t.Context(), c)
	require.NoError(t, err)
	return r
}

// failing returns the checks that fail, of MUST alone or of all levels.
func failing(r *report.Report, levels ...report.Level) (all []string) {
	for _, f := range r.Findings {
		if f.Result == report.Fails && slices.Contains(levels, f.Level) {
			all = append(all, f.Check)
		}
	}
	return all
}

func TestRightServerHasNoFault(t *testing.T) {
	t.Parallel()
	for _, profile := range []string{"ours", Published} {
		r := test(t, "", profile, ttl)
		require.Empty(t, failing(r, report.Must, report.Should, report.Info))
		require.Zero(t, r.Count(report.Must, report.NotTried))
	}
}

// Each defect is found by the check that is about it, and no other MUST fails but those that follow from it.
func TestDefectsAreFound(t *testing.T) {
	require.GreaterOrEqual(t, len(wrongserver.Defects), 20)
	var all sync.WaitGroup
	free := make(chan bool, 8) // what is concurrent has to be at once on two busy processors
	for defect, found := range wrongserver.Defects {
		all.Go(func() {
			free <- true
			defer func() { <-free }()
			var life time.Duration
			if strings.HasPrefix(found[0], "ttl-") {
				life = ttl
			}
			r := test(t, defect, "ours", life)
			assert.Contains(t, failing(r, report.Must, report.Should), found[0], defect)
			for _, check := range failing(r, report.Must) {
				follows := slices.ContainsFunc(found, func(pattern string) bool {
					one, _ := path.Match(pattern, check)
					two, _ := path.Match(pattern, strings.TrimPrefix(check, "published-"))
					return one || two
				})
				assert.True(t, follows, "%s: %s fails, too", defect, check)
			}
		})
	}
	all.Wait()
}

// A refusal shows the first answer in whatever spelling, and does not if it repeats only what its own request has sent,
// or what other answers say, too.
func TestRefusalsThatShowTheFirstAnswer(t *testing.T) {
	t.Parallel()
	const first = `{"id":17,"ref":"chg_8Hq2Lm4Z","amount":123456,"key":"k12345678","host":"pod-7f3a9c21"}`
	const place = "/charges/17"
	escaped, err := json.Marshal("it was " + first)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		body, field string
		shows       bool
	}{
		"as it is":                  {`{"first":` + first + `}`, "", true},
		"in a text":                 {`{"detail":` + string(escaped) + `}`, "", true},
		"in a field":                {"{}", first, true},
		"percent-encoded":           {"{}", "/?x=" + url.QueryEscape(first), true},
		"in base64":                 {`{"x":"` + base64.StdEncoding.EncodeToString([]byte(first)) + `"}`, "", true},
		"in base64, in a URL":       {"{}", "/?x=" + url.QueryEscape(base64.StdEncoding.EncodeToString([]byte("+"+first))), true},
		"the place":                 {"{}", place, true},
		"its ID alone":              {"see chg_8Hq2Lm4Z", "", true},
		"what only the first sent":  {`{"title":"123456 before"}`, "", true},
		"a part of another number":  {`{"title":"91234567"}`, "", false},
		"what the second has sent":  {`{"title":"k12345678 is not for 654321"}`, "", false},
		"what another answer shows": {`{"host":"pod-7f3a9c21"}`, "", false},
		"the time":                  {fmt.Sprintf(`{"at":%d}`, time.Now().Unix()), "", false},
		"nothing":                   {`{"title":"Refused"}`, "", false},
	} {
		ok := func(body string) answer { return answer{status: http.StatusCreated, body: body} }
		refused := answer{status: http.StatusConflict, body: c.body, header: http.Header{"Location": {c.field}}}
		now := fmt.Sprintf(`,"at":%d}`, time.Now().Unix())
		made := ok(first[:len(first)-1] + now)
		if c.shows {
			made = ok(first)
		}
		made.header = http.Header{"Location": {place}}
		trial := &trial{
			lab:     &lab{trials: map[string]*trial{"pair": {answers: []answer{ok(`{"host":"pod-7f3a9c21"}`)}}}},
			answers: []answer{ok(`{"id":16,"ref":"chg_9Kw3Xn5Y","amount":654321}`), made, refused},
			shots:   []shot{{}, {}, {body: `{"amount":654321}`, keys: []string{"k12345678"}}},
		}
		want := map[bool]report.Result{true: report.Fails, false: report.Holds}[c.shows]
		require.Equal(t, want, mismatchSilent(&Profile{}, trial).result, name)
	}
}

// result returns what a check has shown.
func result(r *report.Report, check string) report.Result {
	return r.Findings[slices.IndexFunc(r.Findings, func(f report.Finding) bool { return f.Check == check })].Result
}

// A right server may make its effects after its answer. If that is too late to be seen, nothing is said of effects.
func TestLateEffectsAreNoFault(t *testing.T) {
	t.Parallel()
	for late, want := range map[time.Duration]report.Result{100 * time.Millisecond: report.Holds, time.Hour: report.NotTried} {
		wrong := wrongserver.New("", time.Hour, 0)
		wrong.Late = late
		server := httptest.NewServer(wrong)
		t.Cleanup(server.Close)
		r, err := Run(t.Context(), configOf(server.URL, "ours"))
		require.NoError(t, err)
		require.Empty(t, failing(r, report.Must, report.Should))
		for _, check := range []string{"replay-effect", "lost-effect", "concurrent-effect"} {
			require.Equal(t, want, result(r, check), check)
		}
		require.Equal(t, want == report.Holds, len(r.Notes) == 1)
	}
}

// Where effects show whose they are, those of others do not count; and one of its own does, however late it is.
func TestEffectsOfOthers(t *testing.T) {
	t.Parallel()
	for defect, want := range map[string]report.Result{"": report.Holds, "retry-runs-late": report.Fails} {
		wrong := wrongserver.New(defect, time.Hour, 0)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			wrong.Effect("of somebody else")
			wrong.ServeHTTP(w, r)
		}))
		t.Cleanup(server.Close)
		c := configOf(server.URL, "ours")
		c.Effects.Pointer = "/made"
		r, err := Run(t.Context(), c)
		require.NoError(t, err)
		require.Equal(t, want, result(r, "replay-effect"), defect)
		require.Equal(t, report.Holds, result(r, "key-case"), defect)
	}
}

// A counter that does not come to rest says nothing.
func TestRestlessCounters(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	wrong := wrongserver.New("", time.Hour, 0)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/count" {
			fmt.Fprintf(w, `{"effects":%d}`, n.Add(1))
			return
		}
		wrong.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	c := configOf(server.URL, "ours")
	c.Late = 20 * time.Millisecond
	r, err := Run(t.Context(), c)
	require.NoError(t, err)
	require.Empty(t, failing(r, report.Must))
	require.Contains(t, reason(r, "replay-effect"), "nobody can tell")
}
