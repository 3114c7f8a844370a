package otelidempotency_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/otelidempotency"
	"example.com/idempotency/store"
)

// A guard logs with the context of the request, so that handlers find its trace.
func TestLogHasTheTrace(t *testing.T) {
	t.Parallel()
	b := newBench(t, away{idempotency.NewMemoryStore()})
	var log bytes.Buffer
	logger := slog.New(otelidempotency.NewLogHandler(slog.NewJSONHandler(&log, nil)))
	g := b.guard.With(idempotency.WithLogger(logger.With("service", "shop")))
	b.serve(t, g.Handler(answering(http.StatusOK, "")), "k", "")

	span := b.spans.GetSpans()[0].SpanContext
	var line map[string]any
	require.NoError(t, json.NewDecoder(&log).Decode(&line))
	require.Equal(t, span.TraceID().String(), line["trace_id"])
	require.Equal(t, span.SpanID().String(), line["span_id"])
	require.Equal(t, "claim", line["op"])
	require.Equal(t, "shop", line["service"])
}

// What is settled after the request has ended belongs to its trace too.
func TestLogOfTheBackgroundHasTheTrace(t *testing.T) {
	t.Parallel()
	b := newBench(t, deaf{idempotency.NewMemoryStore()})
	var log bytes.Buffer
	g := b.guard.With(idempotency.WithLogger(slog.New(otelidempotency.NewLogHandler(slog.NewJSONHandler(&log, nil)))))
	b.serve(t, g.Handler(answering(http.StatusOK, "")), "k", "")
	soon, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, g.Shutdown(soon), context.Canceled)

	trace := b.spans.GetSpans()[0].SpanContext.TraceID().String()
	lost := false
	for lines := json.NewDecoder(&log); lines.More(); {
		var line map[string]any
		require.NoError(t, lines.Decode(&line))
		require.Equal(t, trace, line["trace_id"])
		lost = lost || line["msg"] == "idempotency: run could not be settled"
	}
	require.True(t, lost, "the run that was given up is in the log")
}

// deaf is a store that records no answer.
type deaf struct{ idempotency.Store }

func (deaf) Complete(context.Context, string, store.Owner, store.Completion) error {
	return errors.New("connection refused")
}

func TestLogWithoutATrace(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	slog.New(otelidempotency.NewLogHandler(slog.NewJSONHandler(&log, nil))).WithGroup("g").InfoContext(t.Context(), "started", "n", 1)
	require.NotContains(t, log.String(), "trace_id")
	require.Contains(t, log.String(), `"g":{"n":1}`)
}
