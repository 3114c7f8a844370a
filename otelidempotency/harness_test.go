package otelidempotency_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"example.com/idempotency"
	"example.com/idempotency/otelidempotency"
)

// A bench is a server behind a guard that reports to an SDK in memory.
type bench struct {
	reader *sdkmetric.ManualReader
	meters *sdkmetric.MeterProvider
	spans  *tracetest.InMemoryExporter
	traces *sdktrace.TracerProvider
	guard  *idempotency.Guard
}

func newBench(t testing.TB, store idempotency.Store, opts ...otelidempotency.Option) *bench {
	t.Helper()
	b := &bench{reader: sdkmetric.NewManualReader(), spans: tracetest.NewInMemoryExporter()}
	b.meters = sdkmetric.NewMeterProvider(sdkmetric.WithReader(b.reader))
	b.traces = sdktrace.NewTracerProvider(sdktrace.WithSyncer(b.spans))
	opts = append([]otelidempotency.Option{otelidempotency.WithMeterProvider(b.meters)}, opts...)
	reporting, err := otelidempotency.Options(opts...)
	require.NoError(t, err)
	b.guard, err = idempotency.New(store, scopeOf, append(reporting, idempotency.WithLogger(slog.New(slog.DiscardHandler)))...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.guard.Shutdown(context.Background())) })
	return b
}

func scopeOf(r *http.Request) (string, error) { return r.Header.Get("X-Tenant"), nil }

// serve sends a request with a key through a handler, inside a span as that of otelhttp.
func (b *bench) serve(t testing.TB, h http.Handler, key, body string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/charges", strings.NewReader(body))
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	r.Header.Set("X-Tenant", "acme")
	ctx, span := b.traces.Tracer("test").Start(r.Context(), "POST /charges", trace.WithSpanKind(trace.SpanKindServer))
	defer span.End()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r.WithContext(ctx))
	return w
}

// attributes returns the attributes of the last span.
func (b *bench) attributes() map[string]any {
	all := make(map[string]any)
	spans := b.spans.GetSpans()
	for _, a := range spans[len(spans)-1].Attributes {
		all[string(a.Key)] = a.Value.AsInterface()
	}
	return all
}

// metrics returns what is measured by now.
func (b *bench) metrics(t testing.TB) map[string]metricdata.Metrics { return collect(t, b.reader) }

func collect(t testing.TB, reader *sdkmetric.ManualReader) map[string]metricdata.Metrics {
	t.Helper()
	all, err := tryCollect(t, reader)
	require.NoError(t, err)
	return all
}

func tryCollect(t testing.TB, reader *sdkmetric.ManualReader) (map[string]metricdata.Metrics, error) {
	t.Helper()
	var got metricdata.ResourceMetrics
	err := reader.Collect(t.Context(), &got)
	all := make(map[string]metricdata.Metrics)
	for _, scope := range got.ScopeMetrics {
		require.Equal(t, "example.com/idempotency/otelidempotency", scope.Scope.Name)
		for _, m := range scope.Metrics {
			all[m.Name] = m
		}
	}
	return all, err
}

// values returns the values of a counter, or the counts of a histogram, by attributes.
func (b *bench) values(t testing.TB, name string) map[string]int64 {
	t.Helper()
	m, ok := b.metrics(t)[name]
	require.True(t, ok, name)
	return valuesOf(t, m)
}

func valuesOf(t testing.TB, m metricdata.Metrics) map[string]int64 {
	t.Helper()
	all := make(map[string]int64)
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		require.True(t, data.IsMonotonic)
		for _, p := range data.DataPoints {
			all[text(p.Attributes)] = p.Value
		}
	case metricdata.Gauge[int64]:
		for _, p := range data.DataPoints {
			all[text(p.Attributes)] = p.Value
		}
	case metricdata.Gauge[float64]:
		for _, p := range data.DataPoints {
			all[text(p.Attributes)] = int64(p.Value)
		}
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			all[text(p.Attributes)] = int64(p.Count)
		}
	case metricdata.Histogram[int64]:
		for _, p := range data.DataPoints {
			all[text(p.Attributes)] = int64(p.Count)
		}
	default:
		require.Fail(t, "unknown kind of metric", "%s is a %T", m.Name, m.Data)
	}
	return all
}

// sumOf returns the sum of all that a histogram was told.
func sumOf(t testing.TB, m metricdata.Metrics) (all float64) {
	t.Helper()
	switch data := m.Data.(type) {
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			all += p.Sum
		}
	case metricdata.Histogram[int64]:
		for _, p := range data.DataPoints {
			all += float64(p.Sum)
		}
	default:
		require.Fail(t, "not a histogram", "%s is a %T", m.Name, m.Data)
	}
	return all
}

func text(s attribute.Set) string { return s.Encoded(attribute.DefaultEncoder()) }

func answering(status int, body string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	})
}
