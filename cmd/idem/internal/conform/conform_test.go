package conform

import (
	"cmp"
	"context"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
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
	t.Parallel()
	require.GreaterOrEqual(t, len(wrongserver.Defects), 20)
	var all sync.WaitGroup
	free := make(chan bool, 16)
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
