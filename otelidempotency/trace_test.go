package otelidempotency_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/otelidempotency"
	"example.com/idempotency/store"
)

// eachStore runs a test with two views of one store, as two processes have.
func eachStore(t *testing.T, test func(t *testing.T, one, other idempotency.Store)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		s := idempotency.NewMemoryStore()
		test(t, s, s)
	})
	t.Run("redis", func(t *testing.T) {
		server := redistest.Start(t)
		open := func() idempotency.Store {
			c := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true})
			t.Cleanup(func() { _ = c.Close() })
			s := idempotency.NewRedisStore(c)
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			return s
		}
		test(t, open(), open())
	})
}

// The trace of a replay leads to the trace of the run, in whichever process that was.
func TestReplayIsLinkedToItsRun(t *testing.T) {
	eachStore(t, func(t *testing.T, one, other idempotency.Store) {
		first, second := newBench(t, one), newBench(t, other)
		h := answering(http.StatusCreated, "charged")
		first.serve(t, first.guard.Handler(h), "k", "1")
		run := first.spans.GetSpans()[0]
		require.Empty(t, run.Links, "a run is not linked to itself")

		w := second.serve(t, second.guard.Handler(h), "k", "1")
		require.Equal(t, "charged", w.Body.String())
		replay := second.spans.GetSpans()[0]
		require.Len(t, replay.Links, 1)
		to := replay.Links[0].SpanContext
		require.Equal(t, run.SpanContext.TraceID(), to.TraceID())
		require.Equal(t, run.SpanContext.SpanID(), to.SpanID())
		require.True(t, to.IsRemote())
		require.True(t, to.IsSampled())
		require.NotEqual(t, run.SpanContext.TraceID(), replay.SpanContext.TraceID())
	})
}

// A run that takes a key over leads to the run that was cut off.
func TestTakeoverIsLinkedToTheEarlierRun(t *testing.T) {
	eachStore(t, func(t *testing.T, one, other idempotency.Store) {
		first, second := newBench(t, dead{one}), newBench(t, other)
		lease := idempotency.WithLease(3 * time.Second) // of which a claim may take a third, on a busy machine too
		h := answering(http.StatusCreated, "charged")
		hung := make(chan bool)
		done := make(chan bool)
		go func() {
			defer close(done)
			first.serve(t, first.guard.With(lease).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hung <- true; <-hung })), "k", "1")
		}()
		select {
		case <-hung:
		case <-done:
			t.Fatal("the first run has not begun")
		}
		require.Eventually(t, func() bool {
			return second.serve(t, second.guard.With(lease).Handler(h), "k", "1").Code == http.StatusCreated
		}, time.Minute, 20*time.Millisecond)
		hung <- true
		<-done
		run := first.spans.GetSpans()[0]
		spans := second.spans.GetSpans()
		takeover := spans[len(spans)-1]
		require.Equal(t, "takeover", second.attributes()["idempotency.incident"])
		require.Len(t, takeover.Links, 1)
		require.Equal(t, run.SpanContext.SpanID(), takeover.Links[0].SpanContext.SpanID())
		require.EqualValues(t, 1, second.values(t, "idempotency.incidents")["idempotency.incident=takeover"])
	})
}

// dead is the store of a process that cannot renew its leases.
type dead struct{ idempotency.Store }

func (dead) Renew(context.Context, string, store.Owner) error {
	return errors.New("connection refused")
}

// A guard logs with the context of the request, so that handlers find its trace.
func TestLogHasTheTrace(t *testing.T) {
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
	b := newBench(t, deaf{idempotency.NewMemoryStore()})
	var log bytes.Buffer
	g := b.guard.With(idempotency.WithLogger(slog.New(otelidempotency.NewLogHandler(slog.NewJSONHandler(&log, nil)))))
	b.serve(t, g.Handler(answering(http.StatusOK, "")), "k", "")
	soon, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, g.Shutdown(soon), context.Canceled)

	trace := b.spans.GetSpans()[0].SpanContext.TraceID().String()
	lost := false
	for text := range strings.Lines(log.String()) {
		var line map[string]any
		require.NoError(t, json.Unmarshal([]byte(text), &line))
		require.Equal(t, trace, line["trace_id"])
		require.Equal(t, 1, strings.Count(text, `"trace_id"`), text)
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
	var log bytes.Buffer
	slog.New(otelidempotency.NewLogHandler(slog.NewJSONHandler(&log, nil))).WithGroup("g").InfoContext(t.Context(), "started", "n", 1)
	require.NotContains(t, log.String(), "trace_id")
	require.Contains(t, log.String(), `"g":{"n":1}`)
}
