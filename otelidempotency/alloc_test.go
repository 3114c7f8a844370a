package otelidempotency_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"example.com/idempotency"
)

// A request may cost at most three allocations more than without an observer, with its span
// recorded too. Most are those of the event itself.
func TestAllocations(t *testing.T) {
	const most = 3
	for _, traced := range []bool{false, true} {
		for _, result := range []string{"run", "replay", "refused", "bypassed"} {
			t.Run(result+", span recorded "+strconv.FormatBool(traced), func(t *testing.T) {
				bare, err := idempotency.New(idempotency.NewMemoryStore(), scopeOf, idempotency.WithLogger(slog.New(slog.DiscardHandler)))
				require.NoError(t, err)
				b := newBench(t, idempotency.NewMemoryStore())
				without, with := allocations(t, bare, result, traced), allocations(t, b.guard, result, traced)
				t.Logf("without an observer %v, with this package %v", without, with)
				require.LessOrEqual(t, with-without, float64(most))
			})
		}
	}
}

func allocations(t *testing.T, g *idempotency.Guard, result string, traced bool) float64 {
	t.Helper()
	h := g.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }))
	ctx := t.Context()
	if traced {
		spans := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(noProcessor{}))
		var span trace.Span
		ctx, span = spans.Tracer("test").Start(ctx, "POST /charges")
		defer span.End()
	}
	r := httptest.NewRequest(http.MethodPost, "/charges", nil).WithContext(ctx)
	r.Header.Set("X-Tenant", "acme")
	keys := make([][]string, 1200)
	for i := range keys {
		keys[i] = []string{"key-" + strconv.Itoa(i)}
	}
	if result == "refused" {
		keys = [][]string{{""}}
	}
	if result == "replay" {
		keys = keys[:1]
	}
	if result != "bypassed" {
		r.Header["Idempotency-Key"] = keys[0]
	}
	w := &discard{header: make(http.Header)}
	h.ServeHTTP(w, r)
	n := 0
	return testing.AllocsPerRun(1000, func() {
		n++
		if result == "run" {
			r.Header["Idempotency-Key"] = keys[n%len(keys)]
		}
		clear(w.header)
		h.ServeHTTP(w, r)
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
