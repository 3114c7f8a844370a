package otelidempotency

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/trace"
)

// This file joins log records with traces.

// NewLogHandler returns a handler that adds the attributes trace_id and span_id to each record
// whose context belongs to a trace, and hands it on to h. Guards and clients log with the
// context of the request, so that idempotency.WithLogger with this handler is all that it takes.
// A record that has a trace_id keeps it: the line of a run that another request is told of has the trace of the run.
//
// A handler that finds the trace by itself, such as that of the bridge otelslog, needs no help.
func NewLogHandler(h slog.Handler) slog.Handler { return &logHandler{h} }

type logHandler struct{ slog.Handler }

func (h *logHandler) Handle(ctx context.Context, r slog.Record) error {
	if c := trace.SpanContextFromContext(ctx); c.IsValid() && !traced(&r) {
		r = r.Clone()
		r.AddAttrs(slog.String("trace_id", c.TraceID().String()), slog.String("span_id", c.SpanID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

func traced(r *slog.Record) (is bool) {
	r.Attrs(func(a slog.Attr) bool {
		is = a.Key == "trace_id"
		return !is
	})
	return is
}

func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &logHandler{h.Handler.WithAttrs(attrs)}
}

func (h *logHandler) WithGroup(name string) slog.Handler {
	return &logHandler{h.Handler.WithGroup(name)}
}
