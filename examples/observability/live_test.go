package observability_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"example.com/idempotency"
	"example.com/idempotency/client"
	"example.com/idempotency/otelidempotency"
	"example.com/idempotency/store"
)

// This file is a live service whose metrics are collected once a minute, for the better part of an hour, by a fake clock.

const (
	calm  = 10 // minutes in which the service is well
	state = 40 // minutes in which it is in a state
	ttl   = 30 * time.Minute
)

var quiet = slog.New(slog.DiscardHandler)

// A distance is what lies between a guard and its store. Whatever is distant is measured.
type distance struct {
	*idempotency.MemoryStore
	meets atomic.Pointer[func(ctx context.Context, op string) error]
}

var errAway = errors.New("connection refused")

// meet says what calls meet on their way from now on. Nil is nothing.
func (s *distance) meet(f func(ctx context.Context, op string) error) {
	if f == nil {
		s.meets.Store(nil)
		return
	}
	s.meets.Store(&f)
}

// failing lets some calls fail, or all if none is named.
func failing(err error, ops ...string) func(context.Context, string) error {
	return func(_ context.Context, op string) error {
		if len(ops) == 0 || slices.Contains(ops, op) {
			return err
		}
		return nil
	}
}

func (s *distance) pass(ctx context.Context, op string) error {
	if f := s.meets.Load(); f != nil {
		return (*f)(ctx, op)
	}
	return nil
}

func (*distance) ObeysContext() bool { return false }

func (s *distance) Claim(ctx context.Context, key string, c store.Claim) (store.Record, error) {
	if err := s.pass(ctx, "claim"); err != nil {
		return store.Record{}, err
	}
	return s.MemoryStore.Claim(ctx, key, c)
}

func (s *distance) Renew(ctx context.Context, key string, o store.Owner) error {
	if err := s.pass(ctx, "renew"); err != nil {
		return err
	}
	return s.MemoryStore.Renew(ctx, key, o)
}

func (s *distance) Complete(ctx context.Context, key string, o store.Owner, c store.Completion) error {
	if err := s.pass(ctx, "complete"); err != nil {
		return err
	}
	return s.MemoryStore.Complete(ctx, key, o, c)
}

func (s *distance) Get(ctx context.Context, key string) (store.Record, error) {
	if err := s.pass(ctx, "get"); err != nil {
		return store.Record{}, err
	}
	return s.MemoryStore.Get(ctx, key)
}

func (s *distance) List(ctx context.Context, q store.Query) (store.Page, error) {
	if err := s.pass(ctx, "list"); err != nil {
		return store.Page{}, err
	}
	return s.MemoryStore.List(ctx, q)
}

// forget removes records behind the back of all guards.
func (s *distance) forget(t *testing.T, which func(store.Entry) bool) {
	t.Helper()
	found, err := s.MemoryStore.List(t.Context(), store.Query{Limit: 1000})
	require.NoError(t, err)
	for _, e := range found.Entries {
		if which(e) {
			require.NoError(t, s.Forget(t.Context(), e.Key, e.Record.Seen()))
		}
	}
}

// A live service exports its metrics.
type live struct {
	t      *testing.T
	store  *distance
	reg    *prometheus.Registry
	guard  *idempotency.Guard
	client *http.Client  // of this service
	over   chan struct{} // closed when the state is over
	// samples are the values of each series, by the minute.
	samples map[string]map[int]float64
}

func newLive(t *testing.T) *live {
	t.Helper()
	s := &live{
		t: t, store: &distance{MemoryStore: idempotency.NewMemoryStore()}, reg: prometheus.NewRegistry(),
		over: make(chan struct{}), samples: make(map[string]map[int]float64),
	}
	reader, err := exporter.New(exporter.WithRegisterer(s.reg), exporter.WithoutScopeInfo(), exporter.WithoutTargetInfo())
	require.NoError(t, err)
	meters := otelidempotency.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader)))
	opts, err := otelidempotency.Options(meters)
	require.NoError(t, err)
	s.guard, err = idempotency.New(s.store, idempotency.SharedScope, append(opts, idempotency.WithRoute("POST /payouts"),
		idempotency.WithLogger(quiet), idempotency.WithTTL(ttl))...)
	require.NoError(t, err)
	watch, err := otelidempotency.ObserveGuard(s.guard, meters, otelidempotency.WithStore(s.store), otelidempotency.WithCensus(time.Minute))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, watch.Unregister()) })
	observed, err := otelidempotency.ObserveClient(meters)
	require.NoError(t, err)
	transport, err := client.New(roundTripper(func(r *http.Request) *http.Response {
		w := httptest.NewRecorder()
		s.guard.Handler(answers(http.StatusServiceUnavailable)).ServeHTTP(w, r)
		return w.Result()
	}), observed, client.WithAttempts(2), client.WithLogger(quiet))
	require.NoError(t, err)
	s.client = &http.Client{Transport: transport}
	return s
}

type roundTripper func(*http.Request) *http.Response

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

// takes lets time go by.
func takes(d time.Duration) {
	time.Sleep(d) // of the bubble
}

// answers is a handler that takes a moment.
func answers(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		takes(20 * time.Millisecond)
		w.WriteHeader(status)
		_, _ = fmt.Fprint(w, "paid out")
	}
}

// post sends a request.
func (s *live) post(key, body string, h http.HandlerFunc, opts ...idempotency.Option) {
	r := httptest.NewRequestWithContext(s.t.Context(), http.MethodPost, "/", strings.NewReader(body))
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	s.guard.With(opts...).Handler(h).ServeHTTP(httptest.NewRecorder(), r)
}

// run lets the service run until the state has lasted.
func run(t *testing.T, comes func(s *live, minute int)) (samples map[string]map[int]float64) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, began := newLive(t), time.Now()
		reconciling, stop := context.WithCancel(t.Context())
		go func() { _ = s.guard.Reconcile(reconciling, 10*time.Second) }()
		for minute := range calm + state {
			var traffic sync.WaitGroup
			for n := range 5 {
				traffic.Go(func() { s.post(fmt.Sprintf("%d-%d", minute, n), "{}", answers(http.StatusCreated)) })
			}
			traffic.Wait()
			if minute >= calm {
				comes(s, minute-calm)
			}
			time.Sleep(time.Until(began.Add(time.Duration(minute+1) * time.Minute)))
			synctest.Wait()
			s.scrape(minute)
		}
		s.store.meet(nil)
		close(s.over)
		time.Sleep(time.Hour) // until the last call comes back that a state has kept
		stop()
		require.NoError(t, s.guard.Shutdown(t.Context()))
		samples = s.samples
	})
	return samples
}

// scrape keeps the value of each series.
func (s *live) scrape(minute int) {
	s.t.Helper()
	families, err := s.reg.Gather()
	if err != nil {
		require.ErrorIs(s.t, err, errAway) // the gauges of the store are missing
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			keep := func(suffix string, value float64, more ...string) {
				labels := []string{`job="shop"`}
				for _, l := range m.GetLabel() {
					if !strings.HasPrefix(l.GetName(), "otel_") {
						labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
					}
				}
				name := f.GetName() + suffix + "{" + strings.Join(append(labels, more...), ",") + "}"
				if s.samples[name] == nil {
					s.samples[name] = make(map[int]float64)
				}
				s.samples[name][minute] = value
			}
			switch f.GetType() {
			case dto.MetricType_HISTOGRAM:
				h := m.GetHistogram()
				for _, b := range h.GetBucket() {
					keep("_bucket", float64(b.GetCumulativeCount()), fmt.Sprintf("le=%q", fmt.Sprint(b.GetUpperBound())))
				}
				keep("_bucket", float64(h.GetSampleCount()), `le="+Inf"`)
				keep("_count", float64(h.GetSampleCount()))
				keep("_sum", h.GetSampleSum())
			case dto.MetricType_COUNTER:
				keep("", m.GetCounter().GetValue())
			default:
				keep("", m.GetGauge().GetValue())
			}
		}
	}
}
