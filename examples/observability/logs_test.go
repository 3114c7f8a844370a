package observability_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/contrib/bridges/otelslog"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/trace"

	"example.com/idempotency"
)

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
	t.Parallel()
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
