package proxy

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"example.com/idempotency/event"
	"example.com/idempotency/problem"
)

// This file is around each request: its trace, the time its body may take, and its line in the log.

// bodyTime is how long the body of a protected request may take.
const bodyTime = 30 * time.Second

// An entry is what the log tells of a request. A guard says a part of it, from the goroutine of the request.
type entry struct {
	http.ResponseWriter
	status int
	bytes  int64

	mu  sync.Mutex
	met event.Event
}

type entryKey struct{}

// observe notes what a guard has made of the request.
func observe(ctx context.Context, e event.Event) {
	switch e.Kind {
	case event.Run, event.Replay, event.Refused, event.Bypassed:
	default:
		return
	}
	if known, ok := ctx.Value(entryKey{}).(*entry); ok {
		known.mu.Lock()
		known.met = e
		known.mu.Unlock()
	}
}

func (e *entry) WriteHeader(status int) {
	if e.status == 0 && (status >= http.StatusOK || status == http.StatusSwitchingProtocols) {
		e.status = status
	}
	if h := e.Header(); status == http.StatusUnauthorized && h.Get(problem.Header) != "" && h["Www-Authenticate"] == nil {
		h.Set("WWW-Authenticate", "Bearer") // a guard leaves the scheme to what is around it
	}
	e.ResponseWriter.WriteHeader(status)
}

func (e *entry) Write(p []byte) (int, error) {
	if e.status == 0 {
		e.status = http.StatusOK
	}
	n, err := e.ResponseWriter.Write(p)
	e.bytes += int64(n)
	return n, err
}

func (e *entry) Unwrap() http.ResponseWriter { return e.ResponseWriter }

// access serves a request by its rule, and logs it.
func access(t *table, log *slog.Logger, bodyTime time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		began, rule := time.Now(), t.of(r)
		e := &entry{ResponseWriter: w}
		ctx := context.WithValue(traced(r), entryKey{}, e)
		r = r.WithContext(ctx)
		if r.Header[keyField] != nil && r.Body != http.NoBody && slices.Contains(rule.methods, r.Method) {
			// A guard reads the whole body before it does anything else. net/http lifts the deadline then.
			_ = http.NewResponseController(w).SetReadDeadline(began.Add(bodyTime))
		}
		defer func() { e.log(log, r, rule, time.Since(began)) }()
		rule.handler.ServeHTTP(e, r)
	}
}

// traced returns the context of a request with its span, or with a new one if it brings none.
func traced(r *http.Request) context.Context {
	ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	if trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	var id [24]byte
	_, _ = rand.Read(id[:]) // never fails
	return trace.ContextWithSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID(id[:16]), SpanID: trace.SpanID(id[16:]),
	}))
}

// log writes the line. Neither keys nor scopes are in it, nor queries, which may have secrets.
func (e *entry) log(log *slog.Logger, r *http.Request, by *rule, took time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	result := string(e.met.Kind)
	if result == "" {
		result = "passed"
	}
	client, _, _ := net.SplitHostPort(r.RemoteAddr)
	attrs := make([]slog.Attr, 0, 12)
	attrs = append(attrs,
		slog.String("method", r.Method), slog.String("path", r.URL.Path), slog.String("route", by.Match),
		slog.Int("status", e.status), slog.Int64("bytes", e.bytes), slog.Duration("took", took),
		slog.String("result", result), slog.String("client", client),
		slog.String("trace", trace.SpanContextFromContext(r.Context()).TraceID().String()))
	if e.met.Attempt > 0 {
		attrs = append(attrs, slog.Int("attempt", e.met.Attempt))
	}
	if e.met.Outcome != 0 {
		attrs = append(attrs, slog.String("outcome", e.met.Outcome.String()))
	}
	if e.met.Code != "" {
		attrs = append(attrs, slog.String("code", string(e.met.Code)))
	}
	log.LogAttrs(r.Context(), slog.LevelInfo, "request", attrs...)
}
