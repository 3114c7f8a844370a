package otelidempotency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/metric"

	"example.com/idempotency"
	"example.com/idempotency/adapter"
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
		w.held = &held{store: lister}
		if c.census > 0 {
			w.census = &census{store: lister, every: c.census}
		}
	}
	reg, err := meter.RegisterCallback(w.observe, w.all()...)
	if err != nil || w.census == nil {
		return reg, err
	}
	ctx, stop := context.WithCancel(context.Background())
	go w.census.run(ctx)
	return registration{reg, stop}, nil
}

// A registration ends a census with the callback that reports it.
type registration struct {
	metric.Registration
	stop func()
}

func (r registration) Unregister() error {
	r.stop()
	return r.Registration.Unregister()
}

// WithStore makes [ObserveGuard] report how many records of the store are held, how long the first
// of them has been, and how long it is until the first one is deleted unresolved. The index of the
// store finds them among millions, and they are counted again after five seconds at the earliest. All processes that
// share a store report the same: take the maximum, not the sum. The store must be a store.Lister.
//
// While they cannot be counted within five seconds, there are no such gauges, and the error handler
// of OpenTelemetry is told so.
func WithStore(s idempotency.Store) Option {
	return func(c *config) { c.store = s }
}

// WithCensus makes [ObserveGuard] also count all other records of the store of [WithStore], by their
// state: at once, and then once in each period. A census reads every record, so let one process of
// many do it, once an hour, say. The shortest period is a minute, and a census that takes longer than its
// period is given up. Gauges tell how old the last complete one is, and whether the last one failed.
// By default, and with zero or less, there is none.
func WithCensus(every time.Duration) Option {
	return func(c *config) {
		c.census = 0
		if every > 0 {
			c.census = max(every, shortestCensus)
		}
	}
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
	held   *held   // nil without a store
	census *census // nil if none is taken
	made   measurements
}

// A ttl is that of a route, which does not change.
type ttl struct {
	seconds float64
	of      *measurement
}

func (w *watch) observe(ctx context.Context, o metric.Observer) error {
	stats := w.guard.Stats()
	o.ObserveInt64(w.waiting, int64(stats.Waiting))
	o.ObserveInt64(w.pending, int64(stats.Pending))
	o.ObserveInt64(w.givingBack, int64(stats.GivingBack))
	o.ObserveInt64(w.abandoned, int64(stats.Abandoned))
	if timeout := adapter.For(w.guard).StoreTimeout(); timeout > 0 {
		o.ObserveFloat64(w.callTimeout, timeout.Seconds())
	}
	running := make(map[*measurement]int64) // several labels of routes may have one
	for _, t := range w.ttls {
		running[t.of] = 0
		o.ObserveFloat64(w.ttl, t.seconds, t.of.observe...)
	}
	for route, n := range stats.ByRoute {
		running[w.made.of(labels{route: routeOf(route)})] += int64(n)
	}
	for of, n := range running {
		o.ObserveInt64(w.running, n, of.observe...)
	}
	told := make(map[*measurement]bool)
	for _, run := range stats.Oldest {
		if of := w.made.of(labels{route: routeOf(run.Route)}); !told[of] { // the oldest comes first
			told[of] = true
			o.ObserveFloat64(w.runAge, time.Since(run.Started).Seconds(), of.observe...)
		}
	}
	w.observeCensus(o)
	return w.observeHeld(ctx, o)
}

// state returns the attribute of a state.
func (w *watch) state(name string) []metric.ObserveOption {
	return w.made.of(labels{name: keyState, value: name}).observe
}
