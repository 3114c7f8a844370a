package otelidempotency_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"example.com/idempotency"
	"example.com/idempotency/client"
	"example.com/idempotency/event"
	"example.com/idempotency/otelidempotency"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

func TestRequestsAreCounted(t *testing.T) {
	b := newBench(t, idempotency.NewMemoryStore())
	h := b.guard.With(idempotency.WithRoute("charge")).Handler(answering(http.StatusCreated, "charged"))
	b.serve(t, h, "k", "1")
	b.serve(t, h, "k", "1")
	b.serve(t, h, "k", "2")
	b.serve(t, h, "", "1")
	require.Equal(t, map[string]int64{
		"http.request.method=POST,http.route=charge,idempotency.result=run":        1,
		"http.request.method=POST,http.route=charge,idempotency.result=replay":     1,
		"http.request.method=POST,http.route=charge,idempotency.result=key-reused": 1,
		"http.request.method=POST,http.route=charge,idempotency.result=bypassed":   1,
	}, b.values(t, "idempotency.requests"))
	require.Equal(t, map[string]int64{
		"http.route=charge,idempotency.outcome=final,idempotency.rerun=false": 1,
	}, b.values(t, "idempotency.run.duration"))
	require.Equal(t, map[string]int64{"http.route=charge": 1}, b.values(t, "idempotency.replay.age"))
	require.Equal(t, map[string]int64{"http.route=charge": 1}, b.values(t, "idempotency.answer.size"))
}

func TestRunsAgainAreToldApart(t *testing.T) {
	b := newBench(t, idempotency.NewMemoryStore())
	status := http.StatusServiceUnavailable
	h := b.guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	b.serve(t, h, "k", "")
	status = http.StatusCreated
	b.serve(t, h, "k", "")
	require.EqualValues(t, 1, b.values(t, "idempotency.run.duration")["idempotency.outcome=final,idempotency.rerun=true"])
}

func TestDurationsAreInSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, idempotency.NewMemoryStore())
		h := b.guard.With(idempotency.WithWait(time.Minute)).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(3 * time.Second)
			_, _ = w.Write([]byte("done"))
		}))
		done := make(chan *httptest.ResponseRecorder)
		go func() { done <- b.serve(t, h, "k", "") }()
		time.Sleep(time.Second)
		b.serve(t, h, "k", "")
		<-done
		time.Sleep(time.Hour)
		b.serve(t, h, "k", "")
		all := b.metrics(t)
		require.InDelta(t, 3, sumOf(t, all["idempotency.run.duration"]), 0.01)
		require.InDelta(t, 2, sumOf(t, all["idempotency.wait.duration"]), 0.1)
		require.InDelta(t, 3600, sumOf(t, all["idempotency.replay.age"]), 1)
		require.InDelta(t, 4, sumOf(t, all["idempotency.answer.size"]), 0)
		require.Equal(t, "s", all["idempotency.run.duration"].Unit)
		require.Equal(t, "By", all["idempotency.answer.size"].Unit)
	})
}

// An increase of a counter that begins with its first incident is not seen.
func TestIncidentsBeginAtZero(t *testing.T) {
	b := newBench(t, idempotency.NewMemoryStore())
	want := make(map[string]int64)
	for _, kind := range event.Incidents() {
		want["idempotency.incident="+string(kind)] = 0
	}
	delete(want, "idempotency.incident=held")
	for _, cause := range event.Causes() {
		want["idempotency.cause="+string(cause)+",idempotency.incident=held"] = 0
	}
	require.Equal(t, want, b.values(t, "idempotency.incidents"))
	require.Contains(t, b.values(t, "idempotency.store.errors"), "idempotency.operation=claim")
	for _, action := range []string{"final", "not-executed", "resume", "forgotten"} {
		require.Contains(t, b.values(t, "idempotency.overrides"), "idempotency.action="+action)
	}
}

func TestIncidentsAreCounted(t *testing.T) {
	b := newBench(t, idempotency.NewMemoryStore())
	h := b.guard.With(idempotency.WithRecovery(idempotency.Hold)).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	require.Panics(t, func() { b.serve(t, h, "k", "") })
	require.EqualValues(t, 1, b.values(t, "idempotency.incidents")["idempotency.cause=panic,idempotency.incident=held"])
	require.Equal(t, "held", b.attributes()["idempotency.incident"])
}

// away is a store that cannot be reached.
type away struct{ idempotency.Store }

func (away) Claim(context.Context, string, store.Claim) (store.Record, error) {
	return store.Record{}, errors.New("connection refused")
}

func TestStoreErrorsAreCounted(t *testing.T) {
	b := newBench(t, away{idempotency.NewMemoryStore()})
	w := b.serve(t, b.guard.Handler(answering(http.StatusOK, "")), "k", "")
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.Positive(t, b.values(t, "idempotency.store.errors")["idempotency.operation=claim"])
	require.Equal(t, map[string]int64{"http.request.method=POST,idempotency.result=store-unavailable": 1}, b.values(t, "idempotency.requests"))

	open := b.guard.With(idempotency.WithFailOpen(true))
	b.serve(t, open.Handler(answering(http.StatusOK, "")), "k", "")
	require.EqualValues(t, 1, b.values(t, "idempotency.requests")["http.request.method=POST,idempotency.result=fail-open"])
	require.EqualValues(t, 1, b.values(t, "idempotency.incidents")["idempotency.incident=fail-open"])
}

func TestStepsAreCountedAndGetSpans(t *testing.T) {
	b := newBench(t, idempotency.NewMemoryStore())
	traced, err := otelidempotency.Options(otelidempotency.WithMeterProvider(b.meters), otelidempotency.WithTracerProvider(b.traces))
	require.NoError(t, err)
	g, err := idempotency.New(idempotency.NewMemoryStore(), scopeOf, traced...)
	require.NoError(t, err)
	h := g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = idempotency.Step(r.Context(), "reserve", func(context.Context) (int, error) { return 1, nil })
		_, _ = idempotency.Step(r.Context(), "charge", func(context.Context) (int, error) { return 0, errors.New("declined") })
		w.WriteHeader(http.StatusPaymentRequired)
	}))
	b.serve(t, h, "k", "")
	require.Equal(t, map[string]int64{"idempotency.result=recorded": 1, "idempotency.result=failed": 1}, b.values(t, "idempotency.steps"))

	spans := b.spans.GetSpans()
	require.Len(t, spans, 3)
	server := spans[2]
	require.Equal(t, "step reserve", spans[0].Name)
	require.Equal(t, "step charge", spans[1].Name)
	require.Equal(t, codes.Error, spans[1].Status.Code)
	for _, s := range spans[:2] {
		require.Equal(t, server.SpanContext.SpanID(), s.Parent.SpanID())
		require.False(t, s.StartTime.Before(server.StartTime))
		require.False(t, s.EndTime.After(server.EndTime))
	}
	require.NoError(t, g.Shutdown(t.Context()))
}

func TestSpanTellsWhatTheRequestGot(t *testing.T) {
	b := newBench(t, idempotency.NewMemoryStore())
	h := b.guard.Handler(answering(http.StatusCreated, "charged"))
	b.serve(t, h, "k", "1")
	run := b.attributes()
	require.Equal(t, "run", run["idempotency.result"])
	require.Equal(t, "final", run["idempotency.outcome"])
	require.EqualValues(t, 1, run["idempotency.attempt"])
	require.NotEmpty(t, run["idempotency.record"])

	b.serve(t, h, "k", "1")
	replay := b.attributes()
	require.Equal(t, "replay", replay["idempotency.result"])
	require.Equal(t, run["idempotency.record"], replay["idempotency.record"])
	require.Equal(t, run["idempotency.operation.id"], replay["idempotency.operation.id"])
	require.Contains(t, replay, "idempotency.replay.age")

	b.serve(t, h, "k", "2")
	require.Equal(t, "key-reused", b.attributes()["idempotency.result"])
	require.Equal(t, "body", b.attributes()["idempotency.differs"])
	for _, s := range b.spans.GetSpans() {
		require.Empty(t, s.Events, "no span events")
		require.Equal(t, codes.Unset, s.Status.Code, "the status is the program's")
	}
}

// Nothing that a client chooses becomes an attribute of a metric.
func TestAttributesOfMetricsAreBounded(t *testing.T) {
	const secret = "order-4711"
	b := newBench(t, idempotency.NewMemoryStore())
	h := b.guard.With(idempotency.WithMethods("POST", "BREW")).Handler(answering(http.StatusCreated, secret))
	for i := range 20 {
		r := httptest.NewRequest("BREW", "http://"+secret+"/charges/"+secret, nil)
		r.Header.Set("Idempotency-Key", secret+strconv.Itoa(i))
		r.Header.Set("X-Tenant", secret)
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	for name, m := range b.metrics(t) {
		values := valuesOf(t, m)
		require.LessOrEqual(t, len(values), len(event.Incidents())+len(event.Causes()), name)
		for attributes := range values {
			require.NotContains(t, attributes, secret, name)
		}
	}
	require.Equal(t, map[string]int64{`http.request.method=_OTHER,idempotency.result=run`: 20}, b.values(t, "idempotency.requests"))
}

// A router that puts the raw path where the pattern belongs must not fill the memory.
func TestRoutesAreBounded(t *testing.T) {
	b := newBench(t, idempotency.NewMemoryStore())
	h := b.guard.Handler(answering(http.StatusCreated, ""))
	for i := range 2500 {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Pattern = "/charges/" + strconv.Itoa(i)
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	values := b.values(t, "idempotency.requests")
	require.LessOrEqual(t, len(values), 2000)
	require.Greater(t, values["http.request.method=POST,http.route=_OTHER,idempotency.result=bypassed"], int64(500))
	var all int64
	for v := range maps.Values(values) {
		all += v
	}
	require.EqualValues(t, 2500, all)
}

func TestRouteIsWithoutItsMethod(t *testing.T) {
	b := newBench(t, idempotency.NewMemoryStore())
	mux := http.NewServeMux()
	mux.Handle("POST /charges", b.guard.Handler(answering(http.StatusCreated, "")))
	// The guard is inside the router, which has set the pattern by then.
	b.serve(t, mux, "k", "")
	require.Equal(t, []string{"http.request.method=POST,http.route=/charges,idempotency.result=run"},
		slices.Collect(maps.Keys(b.values(t, "idempotency.requests"))))
}

func TestScopesAreMappedToNames(t *testing.T) {
	b := newBench(t, idempotency.NewMemoryStore(), otelidempotency.WithScopes(func(scope string) string { return "plan of " + scope }))
	b.serve(t, b.guard.Handler(answering(http.StatusCreated, "")), "k", "")
	require.Equal(t, map[string]int64{"http.request.method=POST,idempotency.result=run,idempotency.scope=plan of acme": 1},
		b.values(t, "idempotency.requests"))
}

func TestDoIsReported(t *testing.T) {
	b := newBench(t, idempotency.NewMemoryStore())
	ctx, span := b.traces.Tracer("test").Start(t.Context(), "consume")
	for range 2 {
		_, _, err := idempotency.Do(ctx, b.guard, idempotency.Key{Scope: "queue", Value: "m1"}, func(context.Context) (int, error) { return 1, nil })
		require.NoError(t, err)
	}
	span.End()
	require.Equal(t, map[string]int64{"idempotency.result=run": 1, "idempotency.result=replay": 1}, b.values(t, "idempotency.requests"))
	require.Equal(t, "replay", b.attributes()["idempotency.result"])
}

func TestClientIsCounted(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	reporting, err := otelidempotency.ObserveClient(otelidempotency.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))))
	require.NoError(t, err)
	require.EqualValues(t, 0, valuesOf(t, collect(t, reader)["idempotency.client.gave_up"])["idempotency.client.reason=attempts"])

	tries := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if tries++; tries == 1 || r.URL.Path == "/never" {
			w.Header().Set(problem.Header, string(problem.StoreUnavailable))
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusCreated)
	}))
	defer server.Close()
	transport, err := client.New(nil, reporting, client.WithAttempts(3), client.WithBackoff(time.Millisecond, time.Millisecond))
	require.NoError(t, err)
	c := &http.Client{Transport: transport}
	for _, path := range []string{"/charges", "/never"} {
		resp, err := c.Post(server.URL+path, "text/plain", strings.NewReader("1"))
		require.NoError(t, err, "the last refusal is the answer")
		require.NoError(t, resp.Body.Close())
	}

	all := collect(t, reader)
	attempts := valuesOf(t, all["idempotency.client.attempts"])
	require.EqualValues(t, 1, attempts["http.request.method=POST,idempotency.client.verdict=settled"])
	var sum int64
	for attributes, n := range attempts {
		require.NotContains(t, attributes, "127.0.0.1", "no host")
		sum += n
	}
	require.EqualValues(t, 5, sum)
	require.EqualValues(t, 1, valuesOf(t, all["idempotency.client.gave_up"])["idempotency.client.reason=attempts"])
}

// What people have decided about keys is counted by what it is.
func TestDecisionsAreCounted(t *testing.T) {
	b := newBench(t, idempotency.NewMemoryStore())
	g := b.guard.With(idempotency.WithRecovery(idempotency.Hold))
	b.serve(t, g.Handler(answering(http.StatusInternalServerError, "")), "k", "")
	key := idempotency.Key{Scope: "acme", Value: "k"}
	held, err := g.Lookup(t.Context(), key)
	require.NoError(t, err)
	require.NoError(t, g.Resolve(t.Context(), key, held.Seen(), idempotency.Resolution{Outcome: idempotency.NotExecuted}))
	settled, err := g.Lookup(t.Context(), key)
	require.NoError(t, err)
	require.NoError(t, g.Forget(t.Context(), key, settled.Seen(), idempotency.Decision{}))
	decided := b.values(t, "idempotency.overrides")
	require.EqualValues(t, 1, decided["idempotency.action=not-executed"], "%v", decided)
	require.EqualValues(t, 1, decided["idempotency.action=forgotten"])
}
