package otelidempotency

import (
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"example.com/idempotency"
)

// This file holds the options that the functions of the package share.

// scopeName names the instrumentation, for those who filter by it.
const scopeName = "example.com/idempotency/otelidempotency"

// An Option changes how [Options], [ObserveGuard] and [ObserveClient] report. A nil Option
// changes nothing, and an option that does not concern the function has no effect there.
type Option func(*config)

type config struct {
	meters metric.MeterProvider
	tracer trace.Tracer
	scopes func(string) string
	store  idempotency.Store
	census time.Duration
	routes []*idempotency.Guard
}

func newConfig(opts []Option) config {
	c := config{meters: otel.GetMeterProvider()}
	for _, o := range opts {
		if o != nil {
			o(&c)
		}
	}
	return c
}

func (c *config) meter() metric.Meter { return c.meters.Meter(scopeName) }

// WithMeterProvider sets where metrics go. The default, and nil, is the global provider of
// package otel.
func WithMeterProvider(p metric.MeterProvider) Option {
	return func(c *config) {
		if p == nil {
			p = otel.GetMeterProvider()
		}
		c.meters = p
	}
}

// WithTracerProvider makes [Options] start a span for each step, as a child of the span that
// the run has. By default, and with nil, there are no spans besides those of the program:
// attributes and links go to the live one.
//
// The span of a step begins and ends at the right times, but is made when the step has ended.
// So a span that the function of the step starts is its neighbour and not its child.
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(c *config) {
		c.tracer = nil
		if p != nil {
			c.tracer = p.Tracer(scopeName)
		}
	}
}

// WithScopes adds the attribute idempotency.scope to the metric idempotency.requests, with what
// f makes of the scope of a request, so that a query can tell clients apart. By default, and
// with nil, no metric knows a scope.
//
// f should return one of a few names: that of a plan, a region, or one of a hundred clients.
// From the two-thousandth combination on, an unknown name becomes "_OTHER". Where f returns
// "", the attribute is left out. It is called for each request, by several at once.
func WithScopes(f func(scope string) string) Option {
	return func(c *config) { c.scopes = f }
}
