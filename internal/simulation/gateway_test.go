package simulation

import (
	"context"
	"log/slog"
	"maps"
	"net/http"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
)

// A simGateway passes requests on to the processes of a gated world. It has a guard, and a
// store of its own that never fails: what it records, its clients get for as long as a record
// is kept.
type simGateway struct {
	*simProcess
}

func (w *simulation) newGateway() *simGateway {
	p := &simProcess{simVersion: simVersion{lease: w.lease}, world: w, dead: make(chan struct{}), weather: &simWeather{}}
	guard, err := idempotency.New(idempotency.NewMemoryStore(), guardtest.TenantScope,
		idempotency.WithLease(w.lease), idempotency.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		w.t.Fatal(err)
	}
	p.guard = guard
	g := &simGateway{p}
	p.Server = guardtest.ServeRecorder(w.t, guard.Handler(http.HandlerFunc(g.passOn)))
	return g
}

// passOn asks one of the processes, on behalf of a client and as another client.
func (g *simGateway) passOn(rw http.ResponseWriter, r *http.Request) {
	const gatewayClient = 100
	w, q := g.world, requestOf(r.Context())
	inner := &simRequest{client: gatewayClient + q.client, op: q.op, try: q.try, key: q.key, payload: q.payload, calls: map[string]int{}}
	w.mu.Lock()
	q.passed = inner
	w.mu.Unlock()
	inner.process = w.anyProcess(w.dice(ofRequest, inner.client, inner.op, inner.try))
	got, ok := w.ask(context.Background(), inner)
	if !ok {
		rw.WriteHeader(http.StatusBadGateway)
		return
	}
	w.mu.Lock()
	w.seen[simPassedOn]++
	w.mu.Unlock()
	maps.Copy(rw.Header(), got.Header)
	rw.WriteHeader(got.Status)
	_, _ = rw.Write([]byte(got.Body))
}
