// Package observability_test compares the names of metrics in the code, as the exporter for
// Prometheus writes them, with those in the rules, the dashboard, the documentation and the
// example without OpenTelemetry.
package observability_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/idempotency/internal/pagetest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/contrib/bridges/otelslog"
	"go.opentelemetry.io/otel/attribute"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"

	"example.com/idempotency"
	"example.com/idempotency/client"
	"example.com/idempotency/event"
	"example.com/idempotency/examples/observability/clientgolang"
	"example.com/idempotency/otelidempotency"
	"example.com/idempotency/problem"
)

// A family is a metric as Prometheus sees it: its type, and its labels.
type family struct {
	kind   string
	labels []string
}

func families(t *testing.T, reg *prometheus.Registry) map[string]family {
	t.Helper()
	gathered, err := reg.Gather()
	require.NoError(t, err)
	all := make(map[string]family)
	for _, f := range gathered {
		if !strings.HasPrefix(f.GetName(), "idempotency_") {
			continue
		}
		labels := make(map[string]bool)
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if !strings.HasPrefix(l.GetName(), "otel_") {
					labels[l.GetName()] = true
				}
			}
		}
		all[f.GetName()] = family{f.GetType().String(), slices.Sorted(maps.Keys(labels))}
	}
	return all
}

// A distant store is one whose calls are measured.
type distant struct{ *idempotency.MemoryStore }

// exported are the metrics of everything that a guard and a client can do.
func exported(t *testing.T) map[string]family {
	t.Helper()
	reg := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(reg))
	require.NoError(t, err)
	meters := otelidempotency.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader)))
	opts, err := otelidempotency.Options(meters)
	require.NoError(t, err)
	store := idempotency.NewMemoryStore()
	g := work(t, distant{store}, opts...)
	watch, err := otelidempotency.ObserveGuard(g, meters, otelidempotency.WithStore(store), otelidempotency.WithCensus(time.Hour))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, watch.Unregister()) })
	require.Eventually(t, func() bool { return families(t, reg)["idempotency_census_age_seconds"].kind != "" }, 10*time.Second, time.Millisecond)

	observed, err := otelidempotency.ObserveClient(meters)
	require.NoError(t, err)
	transport, err := client.New(nil, observed, client.WithAttempts(1))
	require.NoError(t, err)
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	resp, err := (&http.Client{Transport: transport}).Get(server.URL)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return families(t, reg)
}

// work lets a guard do what it can.
func work(t *testing.T, store idempotency.Store, opts ...idempotency.Option) *idempotency.Guard {
	t.Helper()
	g, err := idempotency.New(store, idempotency.SharedScope, append(opts, idempotency.WithRoute("charge"),
		idempotency.WithLogger(slog.New(slog.DiscardHandler)), idempotency.WithWait(time.Minute), idempotency.WithRecovery(idempotency.Hold),
		idempotency.WithRetention(time.Hour))...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Shutdown(context.Background())) })
	running, finish, end := make(chan bool, 1), make(chan bool), make(chan bool)
	t.Cleanup(func() { close(end) })
	lasts := g.With(idempotency.WithLease(100 * time.Millisecond)).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end }))
	h := g.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/panic" {
			panic(http.ErrAbortHandler)
		}
		_, _ = idempotency.Step(r.Context(), "charge", func(context.Context) (int, error) { return 1, nil })
		running <- true
		<-finish
	}))
	send := func(path, key string) {
		r := httptest.NewRequest(http.MethodPost, path, nil)
		r.Header.Set("Idempotency-Key", key)
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	done := make(chan bool, 2)
	for range 2 {
		go func() { send("/", "k"); done <- true }()
	}
	<-running
	require.Eventually(t, func() bool { return g.Stats().Waiting == 1 }, 10*time.Second, time.Millisecond)
	close(finish)
	<-done
	<-done
	go func() {
		r := httptest.NewRequest(http.MethodPost, "/lasts", nil)
		r.Header.Set("Idempotency-Key", "lasts")
		lasts.ServeHTTP(httptest.NewRecorder(), r)
	}()
	require.Eventually(t, func() bool { return len(g.Stats().Long) == 1 }, 10*time.Second, time.Millisecond)
	require.Panics(t, func() { send("/panic", "held") })
	_, _, err = idempotency.Do(t.Context(), g, idempotency.Key{Scope: "shared", Value: "m"}, func(context.Context) (int, error) { return 0, errors.New("declined") })
	require.Error(t, err)
	return g
}

// instruments are the names in the code.
func instruments(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, match := range regexp.MustCompile(`"(idempotency\.[a-z._]+)", *("|$)`).FindAllStringSubmatch(read(t, "otelidempotency/instruments.go"), -1) {
		names = append(names, match[1])
	}
	return names
}

func read(t *testing.T, name string) string {
	t.Helper()
	b := pagetest.File(t, filepath.Join("../..", name))
	return string(b)
}

func TestMetricsAreTheSameEverywhere(t *testing.T) {
	all := exported(t)

	t.Run("code", func(t *testing.T) {
		names := instruments(t)
		require.Len(t, names, len(all), "each instrument was used")
		for _, name := range names {
			require.True(t, slices.ContainsFunc(slices.Collect(maps.Keys(all)), func(exported string) bool {
				return strings.HasPrefix(exported, strings.ReplaceAll(name, ".", "_"))
			}), name)
		}
	})
	t.Run("docs", func(t *testing.T) {
		_, table, ok := strings.Cut(read(t, "docs/reference/events.md"), "\n## Metrics\n")
		require.True(t, ok)
		table, _, _ = strings.Cut(table, "\n#")
		documented := make(map[string]family)
		for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([a-z]+) \\|([^|]*)\\|").FindAllStringSubmatch(table, -1) {
			f := family{kind: strings.ToUpper(row[2])}
			for _, label := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(row[3], -1) {
				f.labels = append(f.labels, label[1])
			}
			slices.Sort(f.labels)
			documented[row[1]] = f
		}
		require.Equal(t, all, documented)
	})
	t.Run("rules", func(t *testing.T) {
		requireKnown(t, all, withoutComments(read(t, "otelidempotency/prometheus/rules.yml")))
		requireKnown(t, all, withoutComments(read(t, "otelidempotency/prometheus/rules_test.yml")))
	})
	t.Run("dashboard", func(t *testing.T) {
		text := read(t, "otelidempotency/grafana/dashboard.json")
		require.True(t, json.Valid([]byte(text)))
		used := requireKnown(t, all, strings.ReplaceAll(text, `\"`, `"`))
		require.Equal(t, slices.Sorted(maps.Keys(all)), used, "the dashboard shows each metric")
	})
	t.Run("runbook", func(t *testing.T) {
		runbook := read(t, "docs/reference/runbook.md")
		requireKnown(t, all, runbook)
		var alerts, sections []string
		for _, alert := range regexp.MustCompile(`alert: (\w+)\n`).FindAllStringSubmatch(read(t, "otelidempotency/prometheus/rules.yml"), -1) {
			alerts = append(alerts, alert[1])
			require.Contains(t, read(t, "otelidempotency/prometheus/rules.yml"), "runbook_url: docs/reference/runbook.md#"+strings.ToLower(alert[1])+"\n")
			require.Contains(t, read(t, "otelidempotency/prometheus/rules_test.yml"), "alertname: "+alert[1]+"\n        exp_alerts:\n", "it fires in a test")
		}
		for _, section := range regexp.MustCompile(`(?m)^## (Idempotency\w+)$`).FindAllStringSubmatch(runbook, -1) {
			sections = append(sections, section[1])
		}
		require.Equal(t, alerts, sections)
		for _, kind := range event.Incidents() {
			require.Contains(t, runbook, "`"+string(kind)+"`", "the runbook says what to do")
		}
	})
	t.Run("client_golang", func(t *testing.T) {
		reg := prometheus.NewRegistry()
		clientgolang.Watch(reg, work(t, idempotency.NewMemoryStore(), clientgolang.Observe(reg)))
		without := families(t, reg)
		require.GreaterOrEqual(t, len(without), 8)
		for name, f := range without {
			require.Equal(t, all[name].kind, f.kind, name)
			for _, label := range f.labels {
				require.Contains(t, all[name].labels, label, name)
			}
		}
	})
}

func withoutComments(yaml string) string {
	return regexp.MustCompile(`(?m)^ *#.*$`).ReplaceAllString(yaml, "")
}

// requireKnown checks the metrics, labels and values that queries in a text name. It returns
// the names of the metrics.
func requireKnown(t *testing.T, all map[string]family, text string) []string {
	t.Helper()
	labels := map[string]bool{"job": true, "instance": true, "le": true, "idempotency_scope": true} // that of WithScopes
	for _, f := range all {
		for _, l := range f.labels {
			labels[l] = true
		}
	}
	used := make(map[string]bool)
	for _, match := range regexp.MustCompile(`\b(idempotency_[a-z_]+|http_[a-z_]+)(\{([^{}]*)\})?`).FindAllStringSubmatch(text, -1) {
		name, selector := match[1], match[3]
		base := name
		for _, suffix := range []string{"_bucket", "_count", "_sum"} {
			if f, ok := all[strings.TrimSuffix(name, suffix)]; ok && f.kind == "HISTOGRAM" {
				base = strings.TrimSuffix(name, suffix)
			}
		}
		f, ok := all[base]
		if !ok {
			require.True(t, labels[name], "%s is neither a metric nor a label", name)
			continue
		}
		used[base] = true
		for _, l := range regexp.MustCompile(`(\w+) *(=~|!~|!=|=) *"([^"]*)"`).FindAllStringSubmatch(selector, -1) {
			require.Contains(t, append(f.labels, "job", "instance", "le"), l[1], "%s has no such label", match[0])
			requireValue(t, l[1], l[3])
		}
	}
	require.NotEmpty(t, used)
	return slices.Sorted(maps.Keys(used))
}

// requireValue checks the values of labels that have few.
func requireValue(t *testing.T, label, value string) {
	t.Helper()
	var known []string
	switch label {
	case "idempotency_incident":
		for _, kind := range event.Incidents() {
			known = append(known, string(kind))
		}
	case "idempotency_cause":
		for _, cause := range event.Causes() {
			known = append(known, string(cause))
		}
	case "idempotency_result":
		known = []string{"run", "replay", "bypassed", "fail-open", "nested"}
		for _, code := range problem.Codes() {
			known = append(known, string(code))
		}
	case "idempotency_state":
		known = []string{"claimed", "lapsed", "released", "completed", "held"}
	case "idempotency_outcome":
		known = []string{idempotency.Final.String(), idempotency.NotExecuted.String(), idempotency.Unknown.String()}
	case "idempotency_rerun":
		known = []string{"true", "false"}
	default:
		return
	}
	for one := range strings.SplitSeq(value, "|") {
		require.Contains(t, known, one, "%s=%q", label, value)
	}
}

// A logStore keeps what would be exported.
type logStore struct {
	mu      sync.Mutex
	records []log.Record
}

func (s *logStore) OnEmit(_ context.Context, r *log.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records = append(s.records, r.Clone())
	return nil
}

func (*logStore) Enabled(context.Context, log.EnabledParameters) bool { return true }
func (*logStore) Shutdown(context.Context) error                      { return nil }
func (*logStore) ForceFlush(context.Context) error                    { return nil }

// The bridge from slog to OpenTelemetry finds the trace by itself: a guard logs an incident with
// the context of its request.
func TestIncidentsAreLoggedWithTheirTrace(t *testing.T) {
	var kept logStore
	logger := slog.New(otelslog.NewHandler("shop", otelslog.WithLoggerProvider(log.NewLoggerProvider(log.WithProcessor(&kept)))))
	g, err := idempotency.New(idempotency.NewMemoryStore(), idempotency.SharedScope, idempotency.WithLogger(logger),
		idempotency.WithRecovery(idempotency.Hold), idempotency.WithRoute("payout"))
	require.NoError(t, err)

	ctx, span := trace.NewTracerProvider().Tracer("shop").Start(t.Context(), "POST /payouts")
	r := httptest.NewRequest(http.MethodPost, "/payouts", nil).WithContext(ctx)
	r.Header.Set("Idempotency-Key", "k")
	g.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })).
		ServeHTTP(httptest.NewRecorder(), r)
	span.End()

	require.Len(t, kept.records, 1)
	held := kept.records[0]
	require.Equal(t, "idempotency: outcome unknown, key held until it is resolved", held.Body().AsString())
	require.Equal(t, span.SpanContext().TraceID(), held.TraceID())
	require.Equal(t, span.SpanContext().SpanID(), held.SpanID())
	attributes := make(map[string]string)
	held.WalkAttributes(func(a attribute.KeyValue) bool {
		attributes[string(a.Key)] = a.Value.String()
		return true
	})
	require.Equal(t, "payout", attributes["route"])
	require.NotEmpty(t, attributes["record"])
	require.NoError(t, g.Shutdown(t.Context()))
}
