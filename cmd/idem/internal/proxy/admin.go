package proxy

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"example.com/idempotency"
	"example.com/idempotency/console"
	"example.com/idempotency/otelidempotency"
)

// This file is what operators see of a proxy, at an address of its own.

// An admin is what the admin address serves.
type admin struct {
	registry *prometheus.Registry
	meters   otelidempotency.Option
	ending   atomic.Bool
}

// newAdmin makes the metrics: those of module otelidempotency, which its alerts and its dashboard know.
func newAdmin() (*admin, []idempotency.Option, error) {
	a := &admin{registry: prometheus.NewRegistry()}
	a.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	reader, err := exporter.New(exporter.WithRegisterer(a.registry))
	if err != nil {
		return nil, nil, err
	}
	a.meters = otelidempotency.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader)))
	opts, err := otelidempotency.Options(a.meters)
	return a, opts, err
}

// handler serves health, metrics and the console of a table's guards. The console is for browsers on the same
// machine, which may look and not decide; idem decides.
func (a *admin) handler(t *table, store idempotency.Store) (http.Handler, error) {
	guards := t.guards()
	screens, err := console.New(t.root, console.Options{GuardOf: func(route string) *idempotency.Guard { return guards[route] }})
	if err != nil {
		return nil, err
	}
	if _, err := otelidempotency.ObserveGuard(t.root, a.meters, otelidempotency.WithStore(store)); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/console/", http.StripPrefix("/console", screens))
	mux.Handle("GET /metrics", promhttp.HandlerFor(a.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := a.ready(r.Context(), t.root); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	return mux, nil
}

// knownHosts serves requests that are addressed to the address itself, while that is one of this machine. A page of
// another site could have given a name of its own to this machine, to read what its visitor can reach.
func knownHosts(listens string, h http.Handler) http.Handler {
	own, _, _ := net.SplitHostPort(listens)
	if own != "localhost" && !net.ParseIP(own).IsLoopback() {
		return h // others come by names that nobody knows here
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := (&url.URL{Host: r.Host}).Hostname()
		if host != "localhost" && net.ParseIP(host) == nil {
			http.Error(w, "This is the address "+listens+", and has no other name.", http.StatusMisdirectedRequest)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// ready says why the proxy should get no requests. An answer of the service is not asked for: requests with
// recorded answers need none.
func (a *admin) ready(ctx context.Context, g *idempotency.Guard) error {
	if a.ending.Load() {
		return errors.New("shutting down")
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if _, err := g.Lookup(ctx, idempotency.Key{Scope: "ready", Value: "ready"}); err != nil && !errors.Is(err, idempotency.ErrNotFound) {
		return errors.New("the store does not answer")
	}
	return nil
}
