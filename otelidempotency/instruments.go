package otelidempotency

import (
	"errors"

	"go.opentelemetry.io/otel/metric"
)

// This file holds the instruments: what is measured, under which name, in which unit.

const (
	hour = 60 * 60
	day  = 24 * hour
)

// Bounds of the histograms, in seconds and bytes.
var (
	callBounds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2}
	runBounds  = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	waitBounds = []float64{.01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	// Half of a usual TTL should be a bound.
	ageBounds  = []float64{1, 10, 60, 600, hour / 2, hour, 6 * hour, 12 * hour, day, 3.5 * day, 7 * day, 15 * day, 30 * day}
	sizeBounds = []float64{128, 512, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20}
)

// A factory makes instruments and gathers the errors of making them.
type factory struct {
	meter metric.Meter
	errs  []error
}

func (f *factory) err() error { return errors.Join(f.errs...) }

func made[T any](f *factory, it T, err error) T {
	if err != nil {
		f.errs = append(f.errs, err)
	}
	return it
}

func (f *factory) counter(name, unit, about string) metric.Int64Counter {
	it, err := f.meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(about))
	return made(f, it, err)
}

func (f *factory) seconds(name, about string, bounds []float64) metric.Float64Histogram {
	it, err := f.meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(about),
		metric.WithExplicitBucketBoundaries(bounds...))
	return made(f, it, err)
}

func (f *factory) bytes(name, about string, bounds []float64) metric.Int64Histogram {
	it, err := f.meter.Int64Histogram(name, metric.WithUnit("By"), metric.WithDescription(about),
		metric.WithExplicitBucketBoundaries(bounds...))
	return made(f, it, err)
}

func (f *factory) gauge(name, unit, about string) metric.Int64ObservableGauge {
	it, err := f.meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(about))
	return made(f, it, err)
}

func (f *factory) secondsGauge(name, about string) metric.Float64ObservableGauge {
	it, err := f.meter.Float64ObservableGauge(name, metric.WithUnit("s"), metric.WithDescription(about))
	return made(f, it, err)
}

// counters are the instruments of a guard's events.
type counters struct {
	requests               metric.Int64Counter
	runDuration, age, wait metric.Float64Histogram
	calls                  metric.Float64Histogram
	size                   metric.Int64Histogram
	incidents, storeErrors metric.Int64Counter
	steps, overrides       metric.Int64Counter
}

func newCounters(f *factory) counters {
	return counters{
		requests: f.counter("idempotency.requests", "{request}",
			"Requests and calls of Do, by what they got: run, replay, or the code of a refusal."),
		runDuration: f.seconds("idempotency.run.duration", "Duration of runs.", runBounds),
		age:         f.seconds("idempotency.replay.age", "Age of the answers that were replayed.", ageBounds),
		wait:        f.seconds("idempotency.wait.duration", "Time that requests waited for another run.", waitBounds),
		calls:       f.seconds("idempotency.store.call.duration", "Duration of calls of the store, also of those that failed.", callBounds),
		size:        f.bytes("idempotency.answer.size", "Size of the bodies that runs answered with.", sizeBounds),
		incidents:   f.counter("idempotency.incidents", "{incident}", "Events that somebody should look at."),
		storeErrors: f.counter("idempotency.store.errors", "{error}", "Calls of the store that failed or timed out."),
		steps:       f.counter("idempotency.steps", "{step}", "Steps, by how they ended."),
		overrides:   f.counter("idempotency.overrides", "{override}", "Held keys that were resolved, and records that were forgotten."),
	}
}

// clientCounters are the instruments of the client half.
type clientCounters struct {
	attempts, gaveUp metric.Int64Counter
}

func newClientCounters(f *factory) clientCounters {
	return clientCounters{
		attempts: f.counter("idempotency.client.attempts", "{attempt}", "Attempts of clients, by what their answers mean."),
		gaveUp:   f.counter("idempotency.client.gave_up", "{request}", "Requests that clients gave up without a definite answer."),
	}
}

// gauges are the instruments of a guard's state.
type gauges struct {
	records, censusFailed                            metric.Int64ObservableGauge
	running, waiting, pending, givingBack, abandoned metric.Int64ObservableGauge
	runAge, oldest, expires, censusAge               metric.Float64ObservableGauge
	ttl, callTimeout                                 metric.Float64ObservableGauge
}

func newGauges(f *factory) gauges {
	return gauges{
		records:      f.gauge("idempotency.records", "{record}", "Records of the store, by state."),
		censusFailed: f.gauge("idempotency.census.failed", "{census}", "1 if the last census of the records failed, else 0."),
		running:      f.gauge("idempotency.runs.active", "{run}", "Runs in flight in this process, of a route."),
		waiting:      f.gauge("idempotency.requests.waiting", "{request}", "Requests of this process that wait for another run."),
		pending:      f.gauge("idempotency.pending.recordings", "{run}", "Runs that have ended here and that the store could not be told about yet."),
		givingBack:   f.gauge("idempotency.claims.giving_back", "{claim}", "Claims without a reply that this process gives back."),
		abandoned:    f.gauge("idempotency.store.abandoned", "{call}", "Calls of the store that have outlived their time."),
		runAge:       f.secondsGauge("idempotency.run.age", "Age of the oldest run in flight in this process, of a route."),
		oldest:       f.secondsGauge("idempotency.held.age", "Time for which the first held record has been held."),
		censusAge:    f.secondsGauge("idempotency.census.age", "Time since the last complete census of the records."),
		expires:      f.secondsGauge("idempotency.held.expires_in", "Time until the first held record is deleted unresolved."),
		callTimeout:  f.secondsGauge("idempotency.store.timeout", "How long a call of the store may take until it is given up."),
		ttl:          f.secondsGauge("idempotency.policy.ttl", "How long an answer is replayed."),
	}
}

// all are the instruments that a callback reports.
func (g *gauges) all() []metric.Observable {
	return []metric.Observable{
		g.records, g.censusFailed, g.running, g.waiting, g.pending, g.givingBack, g.abandoned,
		g.runAge, g.oldest, g.expires, g.censusAge, g.ttl, g.callTimeout,
	}
}
