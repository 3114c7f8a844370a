package conform

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/cmd/idem/internal/conform/report"
	"example.com/idempotency/cmd/idem/internal/conform/wrongserver"
)

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
