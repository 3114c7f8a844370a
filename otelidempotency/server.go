package otelidempotency

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"example.com/idempotency"
	"example.com/idempotency/adapter"
	"example.com/idempotency/event"
)

// This file turns the events of guards into metrics, and into attributes and links of spans.

// Options returns the options that make a guard report to OpenTelemetry. Give them to
// idempotency.New; all guards that are made from it with Guard.With report too.
//
// With them, a request costs a few counters. The span that the request's context has, such as
// that of otelhttp outside of the guard, gets attributes that begin with "idempotency."; it is
// the program that starts and ends it. On a replay it also gets a link to the span of the run
// that made the answer, in whichever process that was.
//
// The error is that of the meter, which refuses no name of this package.
func Options(opts ...Option) ([]idempotency.Option, error) {
	c := newConfig(opts)
	f := factory{meter: c.meter()}
	o := &observer{counters: newCounters(&f), scopes: c.scopes, tracer: c.tracer}
	if err := f.err(); err != nil {
		return nil, err
	}
	o.begin()
	return []idempotency.Option{idempotency.WithObserver(o.observe), adapter.WithTraceContext(traceOf), adapter.WithStoreCalls(o.call)}, nil
}

// An observer reports events.
type observer struct {
	counters
	made   measurements
	scopes func(string) string
	tracer trace.Tracer
}

// operations are the calls that a store error can name.
var operations = []string{"claim", "renew", "step", "complete", "release", "hold", "watch", "get"}

// begin makes the counters whose first increase must be seen.
func (o *observer) begin() {
	ctx := context.Background()
	for _, kind := range event.Incidents() {
		causes := []event.Cause{""}
		if kind == event.Held {
			causes = event.Causes()
		}
		for _, cause := range causes {
			o.incidents.Add(ctx, 0, o.made.of(labels{name: keyIncident, value: string(kind), cause: cause}).add...)
		}
	}
	for _, op := range operations {
		o.storeErrors.Add(ctx, 0, o.made.of(labels{name: keyOperation, value: op}).add...)
	}
	for _, action := range []string{idempotency.Final.String(), idempotency.NotExecuted.String(), idempotency.Resume.String(), actionForgotten} {
		o.overrides.Add(ctx, 0, o.made.of(labels{name: keyAction, value: action}).add...)
	}
}

const actionForgotten = "forgotten"

func (o *observer) call(ctx context.Context, op string, took time.Duration) {
	o.calls.Record(ctx, took.Seconds(), o.made.of(labels{name: keyOperation, value: op}).record...)
}

func (o *observer) observe(ctx context.Context, e event.Event) {
	e.Route = routeOf(e.Route)
	o.count(ctx, &e)
	if e.Kind.Incident() {
		o.incidents.Add(ctx, 1, o.made.of(labels{name: keyIncident, value: string(e.Kind), cause: e.Cause}).add...)
	}
	o.describe(ctx, &e)
}

func (o *observer) count(ctx context.Context, e *event.Event) {
	if result := resultOf(e); result != "" {
		o.countRequest(ctx, e, result)
	}
	switch e.Kind {
	case event.Run:
		l := labels{name: keyOutcome, value: e.Outcome.String(), route: e.Route, rerun: firstRun}
		if e.Attempt > 1 {
			l.rerun = laterRun
		}
		o.runDuration.Record(ctx, e.Duration.Seconds(), o.made.of(l).record...)
		o.size.Record(ctx, e.Size, o.made.of(labels{route: e.Route}).record...)
	case event.Replay:
		o.age.Record(ctx, e.Age.Seconds(), o.made.of(labels{route: e.Route}).record...)
	case event.Step:
		o.steps.Add(ctx, 1, o.made.of(labels{name: keyResult, value: string(e.Result)}).add...)
	case event.StoreError:
		o.storeErrors.Add(ctx, 1, o.made.of(labels{name: keyOperation, value: e.Op}).add...)
	case event.Resolved:
		o.overrides.Add(ctx, 1, o.made.of(labels{name: keyAction, value: e.Outcome.String()}).add...)
	case event.Forgotten:
		o.overrides.Add(ctx, 1, o.made.of(labels{name: keyAction, value: actionForgotten}).add...)
	}
}

// resultOf returns what a request got, for the event that tells of that.
func resultOf(e *event.Event) string {
	switch e.Kind {
	case event.Run, event.Replay, event.Bypassed, event.FailOpen, event.Nested:
		return string(e.Kind)
	case event.Refused:
		return string(e.Code)
	case event.Shadow:
		return "would-" + e.Would.String()
	}
	return ""
}

func (o *observer) countRequest(ctx context.Context, e *event.Event, result string) {
	l := labels{name: keyResult, value: result, route: e.Route, method: methodOf(e.Method)}
	if o.scopes != nil {
		l.scope = o.scopes(e.Scope)
	}
	o.requests.Add(ctx, 1, o.made.of(l).add...)
	if e.Waited > 0 {
		o.wait.Record(ctx, e.Waited.Seconds(), o.made.of(labels{route: e.Route}).record...)
	}
}

// describe tells the live span.
func (o *observer) describe(ctx context.Context, e *event.Event) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	if e.Kind == event.Step {
		o.spanOfStep(ctx, e)
		return
	}
	result, incident := resultOf(e), e.Kind.Incident()
	if result == "" && !incident {
		return
	}
	link(span, e.Trace)
	all := make([]attribute.KeyValue, 0, 8)
	if incident {
		all = append(all, attribute.String(keyIncident, string(e.Kind)))
	}
	if result != "" {
		all = append(all, attribute.String(keyResult, result))
	}
	if e.Record != "" {
		all = append(all, attribute.String("idempotency.record", e.Record))
	}
	if e.OperationID != "" {
		all = append(all, attribute.String("idempotency.operation.id", e.OperationID))
	}
	if e.Attempt > 0 {
		all = append(all, attribute.Int("idempotency.attempt", e.Attempt))
	}
	if e.Outcome != 0 {
		all = append(all, attribute.String(keyOutcome, e.Outcome.String()))
	}
	if e.Kind == event.Replay {
		all = append(all, attribute.Float64("idempotency.replay.age", e.Age.Seconds()))
	}
	if e.Differs != 0 {
		all = append(all, attribute.String("idempotency.differs", e.Differs.String()))
	}
	if e.Waited > 0 {
		all = append(all, attribute.Float64("idempotency.wait.duration", e.Waited.Seconds()))
	}
	span.SetAttributes(all...)
}

// traceOf returns the span that a run belongs to, for the note that the store keeps of the run.
func traceOf(ctx context.Context) (t event.TraceContext) {
	if c := trace.SpanContextFromContext(ctx); c.IsValid() {
		t = event.TraceContext{TraceID: c.TraceID(), SpanID: c.SpanID(), Flags: byte(c.TraceFlags())}
	}
	return t
}

// link points from the live span to that of the run that the event is about: the run that made
// the answer of a replay, for example.
func link(span trace.Span, to event.TraceContext) {
	c := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: to.TraceID, SpanID: to.SpanID, TraceFlags: trace.TraceFlags(to.Flags), Remote: true,
	})
	if c.IsValid() && c.SpanID() != span.SpanContext().SpanID() {
		span.AddLink(trace.Link{SpanContext: c})
	}
}

// spanOfStep makes the span of a step that has ended just now.
func (o *observer) spanOfStep(ctx context.Context, e *event.Event) {
	if o.tracer == nil {
		return
	}
	end := time.Now()
	_, span := o.tracer.Start(ctx, "step "+e.Step, trace.WithTimestamp(end.Add(-e.Duration)), trace.WithAttributes(
		attribute.String("idempotency.step", e.Step),
		attribute.String("idempotency.step.result", string(e.Result)),
		attribute.Int("idempotency.attempt", e.Attempt)))
	if e.Err != nil {
		span.SetStatus(codes.Error, string(e.Result))
	}
	span.End(trace.WithTimestamp(end))
}
