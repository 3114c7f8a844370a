package otelidempotency_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"example.com/idempotency"
)

// A request may cost at most three allocations more than without an observer, besides what the
// SDK needs to keep attributes and a link on a span that is recorded.
func TestAllocations(t *testing.T) {
	const most = 3
	for _, traced := range []bool{false, true} {
		for _, result := range []string{"run", "replay", "refused", "bypassed"} {
			t.Run(result+", span recorded "+strconv.FormatBool(traced), func(t *testing.T) {
				bare, err := idempotency.New(idempotency.NewMemoryStore(), scopeOf, idempotency.WithLogger(slog.New(slog.DiscardHandler)))
				require.NoError(t, err)
				b := newBench(t, idempotency.NewMemoryStore())
				without, with := allocations(t, bare, result, traced, true), allocations(t, b.guard, result, traced, false)
				t.Logf("without an observer %v, with this package %v", without, with)
				require.LessOrEqual(t, with-without, float64(most))
			})
		}
	}
}

// allocations returns how many a request costs. If described is set, the program itself puts
// attributes and a link on the span.
func allocations(t *testing.T, g *idempotency.Guard, result string, traced, described bool) float64 {
	t.Helper()
	h := g.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }))
	r := httptest.NewRequest(http.MethodPost, "/charges", nil)
	r.Header.Set("X-Tenant", "acme")
	keys := make([][]string, 1200)
	for i := range keys {
		keys[i] = []string{"key-" + strconv.Itoa(i)}
	}
	switch result {
	case "refused":
		keys = [][]string{{""}}
	case "replay":
		keys = keys[:1]
	}
	if result != "bypassed" {
		r.Header["Idempotency-Key"] = keys[0]
	}
	w := &discard{header: make(http.Header)}
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(noProcessor{})).Tracer("test")
	attributes := make([]attribute.KeyValue, 6)
	for i := range attributes {
		attributes[i] = attribute.Int("idempotency."+strconv.Itoa(i), i)
	}
	serve := func() {
		if !traced {
			h.ServeHTTP(w, r)
			return
		}
		ctx, span := tracer.Start(t.Context(), "POST /charges")
		h.ServeHTTP(w, r.WithContext(ctx))
		if described {
			span.SetAttributes(attributes...)
			if result == "replay" {
				span.AddLink(trace.Link{SpanContext: span.SpanContext()})
			}
		}
		span.End()
	}
	serve()
	n := 0
	return testing.AllocsPerRun(1000, func() {
		n++
		if result == "run" {
			r.Header["Idempotency-Key"] = keys[n%len(keys)]
		}
		clear(w.header)
		serve()
	})
}

// noProcessor makes the spans of a provider recorded, and does nothing with them.
type noProcessor struct{}

func (noProcessor) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (noProcessor) OnEnd(sdktrace.ReadOnlySpan)                     {}
func (noProcessor) Shutdown(context.Context) error                  { return nil }
func (noProcessor) ForceFlush(context.Context) error                { return nil }

type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(int)             {}
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
