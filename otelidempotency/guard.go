package otelidempotency

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/metric"

	"example.com/idempotency"
	"example.com/idempotency/store"
)

// This file reports the state of a guard whenever metrics are collected.

// ObserveGuard reports how busy a guard is in this process (see Guard.Stats), together with all
// guards made from it by Guard.With, and the TTL of its answers. With [WithStore] it also reports
// what is held, and with [WithRoutes] the TTL of each route. Call it once for each guard that New
// has made. Unregister the result when the guard is shut down.
//
// The error is that of the meter, or says that there is no guard, or that the records of the
// store cannot be counted.
func ObserveGuard(g *idempotency.Guard, opts ...Option) (metric.Registration, error) {
	if g == nil {
		return nil, errors.New("otelidempotency: ObserveGuard: nil guard")
	}
	c := newConfig(opts)
	meter := c.meter()
	f := factory{meter: meter}
	w := &watch{gauges: newGauges(&f), guard: g}
	if err := f.err(); err != nil {
		return nil, err
	}
	if len(c.routes) == 0 {
		c.routes = []*idempotency.Guard{g}
	}
	for _, r := range c.routes {
		p := r.Policy()
		w.ttls = append(w.ttls, ttl{p.TTL.Seconds(), w.made.of(labels{route: routeOf(p.Route)})})
	}
	if c.store != nil {
		lister, ok := c.store.(store.Lister)
		if !ok {
			return nil, fmt.Errorf("otelidempotency: WithStore: %w", idempotency.ErrNoLister)
		}
		w.census = &census{store: lister}
	}
	return meter.RegisterCallback(w.observe, w.all()...)
}

// WithStore makes [ObserveGuard] report how many records of each state are in the store, and how
// long it is until the first held record is deleted unresolved. All processes that share a
// store report the same: take the maximum, not the sum. The store must be an
// store.Lister.
//
// The records are counted once a minute at most. A store with more records than can be visited
// within five seconds is not counted, and the error handler of OpenTelemetry is told so.
func WithStore(s idempotency.Store) Option {
	return func(c *config) { c.store = s }
}

// WithRoutes makes [ObserveGuard] report the TTL of these guards, each under the label that
// idempotency.WithRoute gave it, instead of that of the guard itself. Give it the guards that
// serve routes.
func WithRoutes(guards ...*idempotency.Guard) Option {
	return func(c *config) {
		for _, g := range guards {
			if g != nil {
				c.routes = append(c.routes, g)
			}
		}
	}
}

// A watch reports the state of one guard.
type watch struct {
	gauges
	guard  *idempotency.Guard
	ttls   []ttl
	census *census // nil without a store
	made   measurements
}

// A ttl is that of a route, which does not change.
type ttl struct {
	seconds float64
	of      *measurement
}

func (w *watch) observe(ctx context.Context, o metric.Observer) error {
	stats := w.guard.Stats()
	o.ObserveInt64(w.running, int64(stats.Running))
	o.ObserveInt64(w.waiting, int64(stats.Waiting))
	o.ObserveInt64(w.pending, int64(stats.Pending))
	o.ObserveInt64(w.givingBack, int64(stats.GivingBack))
	o.ObserveInt64(w.abandoned, int64(stats.Abandoned))
	for _, t := range w.ttls {
		o.ObserveFloat64(w.ttl, t.seconds, t.of.observe...)
	}
	return w.observeRecords(ctx, o)
}
