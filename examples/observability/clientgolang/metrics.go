// Package clientgolang exports what a guard does with client_golang alone, under the names that
// module otelidempotency has in Prometheus. Copy it: the alerts and the dashboard work with it.
package clientgolang

import (
	"context"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"example.com/idempotency"
	"example.com/idempotency/event"
)

// Observe returns the option of a guard that counts its events.
func Observe(reg prometheus.Registerer) idempotency.Option {
	factory := promauto.With(reg)
	counter := func(name string, labels ...string) *prometheus.CounterVec {
		return factory.NewCounterVec(prometheus.CounterOpts{Name: name}, labels)
	}
	requests := counter("idempotency_requests_total", "http_route", "http_request_method", "idempotency_result")
	incidents := counter("idempotency_incidents_total", "idempotency_incident")
	storeErrors := counter("idempotency_store_errors_total", "idempotency_operation")
	runs := factory.NewHistogramVec(prometheus.HistogramOpts{Name: "idempotency_run_duration_seconds"},
		[]string{"http_route", "idempotency_outcome", "idempotency_rerun"})
	ages := factory.NewHistogramVec(prometheus.HistogramOpts{
		Name: "idempotency_replay_age_seconds", Buckets: []float64{1, 60, 3600, 6 * 3600, 12 * 3600, 24 * 3600, 7 * 24 * 3600},
	}, []string{"http_route"})
	for _, kind := range event.Incidents() {
		incidents.WithLabelValues(string(kind)) // an increase from nothing would not be seen
	}
	return idempotency.WithObserver(func(_ context.Context, e event.Event) {
		if e.Kind.Incident() {
			incidents.WithLabelValues(string(e.Kind)).Inc()
		}
		switch result := string(e.Kind); e.Kind {
		case event.StoreError:
			storeErrors.WithLabelValues(e.Op).Inc()
		case event.Shadow:
			requests.WithLabelValues(e.Route, e.Method, "would-"+e.Would.String()).Inc()
		case event.Refused:
			result = string(e.Code)
			fallthrough
		case event.Run, event.Replay, event.Bypassed, event.FailOpen, event.Nested:
			requests.WithLabelValues(e.Route, e.Method, result).Inc()
		}
		switch e.Kind {
		case event.Run:
			runs.WithLabelValues(e.Route, e.Outcome.String(), strconv.FormatBool(e.Attempt > 1)).Observe(e.Duration.Seconds())
		case event.Replay:
			ages.WithLabelValues(e.Route).Observe(e.Age.Seconds())
		}
	})
}

// Watch exports what runs in this process, by route, and what waits for the store. The routes are guards made from g.
func Watch(reg prometheus.Registerer, g *idempotency.Guard, routes ...*idempotency.Guard) {
	promauto.With(reg).NewGaugeFunc(prometheus.GaugeOpts{Name: "idempotency_pending_recordings"},
		func() float64 { return float64(g.Stats().Pending) })
	ttl := promauto.With(reg).NewGaugeVec(prometheus.GaugeOpts{Name: "idempotency_policy_ttl_seconds"}, []string{"http_route"})
	for _, route := range append(routes, g) {
		ttl.WithLabelValues(route.Policy().Route).Set(route.Policy().TTL.Seconds())
	}
	reg.MustRegister(inFlight{g})
}

// inFlight exports the runs in flight of each route, and the age of the oldest.
type inFlight struct{ guard *idempotency.Guard }

var (
	active = prometheus.NewDesc("idempotency_runs_active", "", []string{"http_route"}, nil)
	age    = prometheus.NewDesc("idempotency_run_age_seconds", "", []string{"http_route"}, nil)
)

func (inFlight) Describe(to chan<- *prometheus.Desc) { to <- active; to <- age }

func (f inFlight) Collect(to chan<- prometheus.Metric) {
	stats := f.guard.Stats()
	for _, run := range stats.Oldest {
		to <- prometheus.MustNewConstMetric(active, prometheus.GaugeValue, float64(stats.ByRoute[run.Route]), run.Route)
		to <- prometheus.MustNewConstMetric(age, prometheus.GaugeValue, time.Since(run.Started).Seconds(), run.Route)
	}
}
