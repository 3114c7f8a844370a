package observability_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"example.com/idempotency"
	"example.com/idempotency/otelidempotency"
	"example.com/idempotency/store"
)

// This file asks promtool what each alert and each panel of the dashboard says of a live service: when it is well, when a key is
// held, when its store is away, and in a storm of retries.

// A leaving store can go away.
type leaving struct {
	*idempotency.MemoryStore
	away atomic.Bool
}

var errAway = errors.New("connection refused")

func (s *leaving) Claim(ctx context.Context, key string, c store.Claim) (store.Record, error) {
	if s.away.Load() {
		return store.Record{}, errAway
	}
	return s.MemoryStore.Claim(ctx, key, c)
}

func (s *leaving) List(ctx context.Context, q store.Query) (store.Page, error) {
	if s.away.Load() {
		return store.Page{}, errAway
	}
	return s.MemoryStore.List(ctx, q)
}

// A live service exports its metrics.
type live struct {
	t     *testing.T
	store *leaving
	reg   *prometheus.Registry
	guard *idempotency.Guard
}

func newLive(t *testing.T) *live {
	t.Helper()
	s := &live{t: t, store: &leaving{MemoryStore: idempotency.NewMemoryStore()}, reg: prometheus.NewRegistry()}
	reader, err := exporter.New(exporter.WithRegisterer(s.reg), exporter.WithoutScopeInfo(), exporter.WithoutTargetInfo())
	require.NoError(t, err)
	meters := otelidempotency.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader)))
	opts, err := otelidempotency.Options(meters)
	require.NoError(t, err)
	s.guard, err = idempotency.New(s.store, idempotency.SharedScope, append(opts, idempotency.WithRoute("POST /payouts"),
		idempotency.WithLogger(slog.New(slog.DiscardHandler)))...)
	require.NoError(t, err)
	watch, err := otelidempotency.ObserveGuard(s.guard, meters, otelidempotency.WithStore(s.store))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, watch.Unregister()) })
	_, err = otelidempotency.ObserveClient(meters)
	require.NoError(t, err)
	return s
}

// post sends a request that is answered with a status.
func (s *live) post(key, body string, status int, opts ...idempotency.Option) {
	r := httptest.NewRequestWithContext(s.t.Context(), http.MethodPost, "/", strings.NewReader(body))
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
	s.guard.With(opts...).Handler(h).ServeHTTP(httptest.NewRecorder(), r)
}

// scrape returns the value of each series.
func (s *live) scrape() map[string]float64 {
	s.t.Helper()
	families, err := s.reg.Gather()
	require.NoError(s.t, err)
	all := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			series := func(suffix string, value float64, more ...string) {
				labels := []string{`job="shop"`}
				for _, l := range m.GetLabel() {
					if !strings.HasPrefix(l.GetName(), "otel_") {
						labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
					}
				}
				all[f.GetName()+suffix+"{"+strings.Join(append(labels, more...), ",")+"}"] = value
			}
			switch f.GetType() {
			case dto.MetricType_HISTOGRAM:
				h := m.GetHistogram()
				for _, b := range h.GetBucket() {
					series("_bucket", float64(b.GetCumulativeCount()), fmt.Sprintf("le=%q", fmt.Sprint(b.GetUpperBound())))
				}
				series("_bucket", float64(h.GetSampleCount()), `le="+Inf"`)
				series("_count", float64(h.GetSampleCount()))
				series("_sum", h.GetSampleSum())
			case dto.MetricType_COUNTER:
				series("", m.GetCounter().GetValue())
			default:
				series("", m.GetGauge().GetValue())
			}
		}
	}
	return all
}

// isGauge reports whether a series is one that does not count.
func isGauge(series string) bool {
	name, _, _ := strings.Cut(series, "{")
	return !strings.HasSuffix(name, "_total") && !strings.HasSuffix(name, "_bucket") && !strings.HasSuffix(name, "_count") && !strings.HasSuffix(name, "_sum")
}

// panels are the queries of the dashboard, as promtool reads them, by the title of their panel.
func panels(t *testing.T) map[string][]string {
	t.Helper()
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(read(t, "otelidempotency/grafana/dashboard.json")), &board))
	all := make(map[string][]string)
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			all[p.Title] = append(all[p.Title], strings.NewReplacer("$__rate_interval", "5m", "$__range", "15m", "$job", ".*", "$route", ".*").Replace(target.Expr))
		}
	}
	return all
}

// promtool returns where it is, or skips the test: scripts/promtool.sh fetches it.
func promtool(t *testing.T) string {
	t.Helper()
	if path, err := exec.LookPath("promtool"); err == nil {
		return path
	}
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	path := filepath.Join(cache, "idempotency-tools/promtool/promtool")
	if _, err := os.Stat(path); err != nil {
		t.Skip("promtool is not installed: scripts/promtool.sh fetches it")
	}
	return path
}

// ask lets promtool evaluate each query: want says whether it has data. For five minutes the service is as it was, and then the
// state of it lasts for half an hour, with as much happening each minute as between the scrapes. It returns what promtool finds wrong.
func ask(t *testing.T, before, after map[string]float64, want map[string]bool) string {
	t.Helper()
	var text strings.Builder
	rules, err := filepath.Abs("../../otelidempotency/prometheus/rules.yml")
	require.NoError(t, err)
	fmt.Fprintf(&text, "rule_files: [%q]\nevaluation_interval: 1m\ntests:\n- interval: 1m\n  input_series:\n", rules)
	for _, series := range slices.Sorted(maps.Keys(after)) {
		was, known := before[series]
		a, b := after[series], max(0, after[series]-was)
		values := fmt.Sprintf("_x5 %v+%vx30", b, b) // a counter that nobody has begun is not there
		switch {
		case isGauge(series):
			values = fmt.Sprintf("%v+0x35", a)
		case known:
			values = fmt.Sprintf("%v+0x4 %v+%vx30", was, was, b)
		}
		fmt.Fprintf(&text, "  - series: %q\n    values: %q\n", series, values)
	}
	fmt.Fprintf(&text, "  promql_expr_test:\n")
	for _, query := range slices.Sorted(maps.Keys(want)) {
		has := map[bool]int{true: 1}[want[query]]
		fmt.Fprintf(&text, "  - expr: %q\n    eval_time: 35m\n    exp_samples: [{labels: '{}', value: %d}]\n", "(count("+query+") or vector(0)) > bool 0", has)
	}
	file := filepath.Join(t.TempDir(), "state.yml")
	require.NoError(t, os.WriteFile(file, []byte(text.String()), 0o600))
	out, err := exec.CommandContext(t.Context(), promtool(t), "test", "rules", file).CombinedOutput()
	if err == nil {
		return ""
	}
	return string(out)
}

func TestAlertsAndPanelsInEachState(t *testing.T) {
	promtool(t)
	hold := idempotency.WithRecovery(idempotency.Hold)
	all := panels(t)
	require.NotEmpty(t, all)
	var alerts []string
	for line := range strings.Lines(read(t, "otelidempotency/prometheus/rules.yml")) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "- alert: "); ok {
			alerts = append(alerts, name)
		}
	}
	// Panels that show nothing where nothing of the kind is: a percentile of no values, a hold that is not there, steps that
	// are not made, another process that counts, or a client.
	empty := []string{
		"First hold lasts", "First hold ends in", "Wait for another run, 99th percentile", "Age of replays, 99th percentile, and TTL",
		"Steps, by how they ended", "Census: age and failure", "Duration of runs, 50th and 99th percentile, oldest in flight",
		"Store calls, 99th percentile, and their timeout", "Attempts, by what their answers mean",
	}
	traffic := func(s *live, n int) {
		for i := range 20 {
			s.post(fmt.Sprintf("k-%d-%d", n, i), "{}", http.StatusCreated)
		}
	}
	for name, state := range map[string]struct {
		comes         func(*live)
		fires, absent []string // and panels without data besides
		also          []string // panels of those above that have some
	}{
		"well":       {comes: func(*live) {}},
		"held":       {comes: func(s *live) { s.post("held", "{}", http.StatusBadGateway, hold) }, fires: []string{"IdempotencyHeld"}, also: []string{"First hold lasts"}},
		"store away": {comes: func(s *live) { s.store.away.Store(true); traffic(s, 9) }, fires: []string{"IdempotencyStoreRefuses"}, absent: []string{"Held keys", "Records, by state"}},
		"storm": {comes: func(s *live) {
			for i := range 20 {
				s.post(fmt.Sprintf("k-1-%d", i), "another", http.StatusCreated)
				for range 2 {
					s.post(fmt.Sprintf("again-%d", i), "{}", http.StatusBadGateway)
				}
			}
		}, fires: []string{"IdempotencyKeyReused", "IdempotencyReruns"}},
	} {
		t.Run(name, func(t *testing.T) {
			earlier := newLive(t) // what the service was: it counts what is held once in five seconds
			traffic(earlier, 1)
			before := earlier.scrape()
			s := newLive(t)
			traffic(s, 1)
			traffic(s, 2)
			state.comes(s)
			after := s.scrape()
			want := make(map[string]bool)
			for title, queries := range all {
				for i, query := range queries {
					if i > 0 || slices.Contains(empty, title) && !slices.Contains(state.also, title) { // what comes second is a bound
						continue
					}
					want[query] = !slices.Contains(state.absent, title)
				}
			}
			for _, alert := range alerts {
				want[fmt.Sprintf(`ALERTS{alertname=%q}`, alert)] = slices.Contains(state.fires, alert)
			}
			require.Empty(t, ask(t, before, after, want))
		})
	}
}
