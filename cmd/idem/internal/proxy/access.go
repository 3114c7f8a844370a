package proxy

import (
	"context"
	"encoding/binary"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"example.com/idempotency/event"
	"example.com/idempotency/problem"
)

// This file is around each request: its trace, the time its body may take, and its line in the log.

// bodyTime is how long the body of a protected request may take, and for how long a client may take nothing of an
// answer.
const bodyTime = 30 * time.Second

// buffered is how much of an answer net/http keeps back until its handler has returned. Writing it does not block.
const buffered = 2048

// An entry is what the log tells of a request. A guard says a part of it, from the goroutine of the request.
type entry struct {
	http.ResponseWriter
	stall  time.Duration // for how long the client may take nothing
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
	if e.bytes+int64(len(p)) > buffered {
		defer e.hurry()()
	}
	n, err := e.ResponseWriter.Write(p)
	e.bytes += int64(n)
	return n, err
}

// FlushError serves http.ResponseController.
func (e *entry) FlushError() error {
	defer e.hurry()()
	return http.NewResponseController(e.ResponseWriter).Flush()
}

// hurry bounds a write, until what it returns is called: a client that reads nothing would keep its key in flight. The
// run goes on without it.
func (e *entry) hurry() (done func()) {
	c := http.NewResponseController(e.ResponseWriter)
	_ = c.SetWriteDeadline(time.Now().Add(e.stall))
	return func() { _ = c.SetWriteDeadline(time.Time{}) }
}

func (e *entry) Unwrap() http.ResponseWriter { return e.ResponseWriter }

// access serves a request by its rule, and logs it.
func access(t *table, log slog.Handler, bodyTime time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		rule, sure := t.of(r)
		e := &entry{ResponseWriter: w, stall: bodyTime}
		dropNominated(r.Header)
		r = r.WithContext(context.WithValue(traced(r), entryKey{}, e))
		if r.Header[keyField] != nil && r.Body != http.NoBody && slices.Contains(rule.methods, r.Method) {
			// A guard reads the whole body before it does anything else. net/http lifts the deadline then.
			_ = http.NewResponseController(w).SetReadDeadline(began.Add(bodyTime))
		}
		defer func() { e.log(log, r, rule, time.Since(began)) }()
		if !sure {
			e.met = event.Event{Kind: event.Refused}
			refuseAmbiguous(e)
			return
		}
		rule.handler.ServeHTTP(e, r)
	}
}

// dropNominated takes out the fields that Connection names, which the service does not get (RFC 9110, section 7.6.1),
// so that none counts that it does not see. The key counts all the same.
func dropNominated(h http.Header) {
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			switch name = textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(name)); name {
			case keyField, "Upgrade", "Te", "Trailer", "Keep-Alive", "Http2-Settings": // which have a meaning here
			default:
				delete(h, name)
			}
		}
	}
}

// traced returns the context of a request with its span. One that brings none gets a new one, in its header too.
func traced(r *http.Request) context.Context {
	ctx := r.Context()
	if r.Header["Traceparent"] != nil {
		ctx = propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(r.Header))
	}
	if trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	var id [24]byte
	for at := 0; at < len(id); at += 8 {
		binary.NativeEndian.PutUint64(id[at:], rand.Uint64()|1) //nolint:gosec // it need not be a secret; it must not be zero
	}
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID(id[:16]), SpanID: trace.SpanID(id[16:])})
	delete(r.Header, "Tracestate") // of a span that is not valid
	r.Header["Traceparent"] = []string{"00-" + span.TraceID().String() + "-" + span.SpanID().String() + "-00"}
	return trace.ContextWithSpanContext(ctx, span)
}

// log writes the line. Neither keys nor scopes are in it, nor queries, which may have secrets.
func (e *entry) log(log slog.Handler, r *http.Request, by *rule, took time.Duration) {
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
		slog.String("trace_id", trace.SpanContextFromContext(r.Context()).TraceID().String()))
	if e.met.Attempt > 0 {
		attrs = append(attrs, slog.Int("attempt", e.met.Attempt))
	}
	if e.met.Outcome != 0 {
		attrs = append(attrs, slog.String("outcome", e.met.Outcome.String()))
	}
	if e.met.Code != "" {
		attrs = append(attrs, slog.String("code", string(e.met.Code)))
	}
	line := slog.NewRecord(time.Now(), slog.LevelInfo, "request", 0) // without the place in the code, which costs
	line.AddAttrs(attrs...)
	_ = log.Handle(r.Context(), line)
}
