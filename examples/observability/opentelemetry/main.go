// Command opentelemetry is the quick start with module otelidempotency: it serves its metrics to
// Prometheus, and adds the trace of each request to the log.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"example.com/idempotency"
	"example.com/idempotency/otelidempotency"
)

// newGuard returns a guard whose metrics are in the default registry of Prometheus.
func newGuard(store idempotency.Store) (*idempotency.Guard, error) {
	exporter, err := prometheus.New()
	if err != nil {
		return nil, err
	}
	meters := otelidempotency.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(exporter)))
	opts, err := otelidempotency.Options(meters)
	if err != nil {
		return nil, err
	}
	logger := slog.New(otelidempotency.NewLogHandler(slog.NewJSONHandler(os.Stderr, nil)))
	guard, err := idempotency.New(store, tenant, append(opts, idempotency.WithLogger(logger), idempotency.WithRoute("charge"))...)
	if err != nil {
		return nil, err
	}
	_, err = otelidempotency.ObserveGuard(guard, meters, otelidempotency.WithStore(store))
	return guard, err
}

// tenant is for this example. Yours is the one that authentication has found.
func tenant(*http.Request) (string, error) { return "alice", nil }

func createCharge(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintln(w, "charged")
}

func main() {
	guard, err := newGuard(idempotency.NewMemoryStore())
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.Handler()) // yours is on a port that clients do not reach
	mux.Handle("POST /charges", guard.Handler(http.HandlerFunc(createCharge)))
	server := &http.Server{
		Addr: "127.0.0.1:8080", Handler: mux,
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute,
	}
	stopped, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	done := make(chan error, 1)
	go func() { <-stopped.Done(); done <- shutdown(server, guard) }()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		log.Fatal(err)
	}
	if err := <-done; err != nil {
		log.Fatal(err)
	}
}

// shutdown ends server and guard together. Close the store when it has returned.
func shutdown(server *http.Server, guard *idempotency.Guard) error {
	ctx, cancel := context.WithTimeout(context.Background(), 25*time.Second)
	defer cancel()
	recorded := make(chan error, 1)
	go func() { recorded <- guard.Shutdown(ctx) }()
	return errors.Join(server.Shutdown(ctx), <-recorded)
}
