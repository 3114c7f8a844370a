package simulation

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
)

// A company is who there is in a world of the fault matrix besides two like processes.
type company struct {
	name string
	// first and second are the kinds of mishaps that its worlds have.
	first, second []string
	// conducts are the names of those that it is tried with: all but those that are made for
	// another company, if there are none.
	conducts []string
	least    int64 // worlds

	// older and newer are the settings of two versions of the service. The faulty process is of the
	// older one unless newerFails. A client turns to the other process with each retry, as behind a
	// load balancer.
	older, newer func(t *testing.T) []idempotency.Option
	newerFails   bool
	// gated says that the client of the faulty process reaches it through a gateway with a guard
	// and a store of its own; nested says that each process has a guard in its guard.
	gated, nested bool
}

var companies = []*company{
	{name: "alone", first: eachFault, second: eachFault, least: 2000},
	{name: "with an operator", first: eachDecision, second: eachFault, least: 500, conducts: []string{
		"fast", "failing", "failing twice", "cut off", "overtaken and refusing",
	}},
	{name: "losing the record", first: []string{recordLost}, second: eachFault, least: 500, conducts: []string{
		"fast", "slow", "large", "turned away", "failing", "cut off", "overtaken and refusing",
	}},
	{name: "beside a version that counts JSON", first: eachFault, least: 200, newer: fingerprints(idempotency.JSONFingerprint)},
	{
		name: "beside a newer version", first: eachFault, least: 200,
		older: fingerprints(formerFingerprint), newer: fingerprints(amountFingerprint, formerFingerprint),
	},
	{
		name: "beside an older version", first: eachFault, least: 200, newerFails: true,
		older: fingerprints(formerFingerprint), newer: fingerprints(amountFingerprint, formerFingerprint),
	},
	{name: "beside a version with the former seal", first: eachFault, least: 200, newerFails: true, older: seals(1), newer: seals(2, 1)},
	{name: "behind a gateway", first: eachFault, least: 200, gated: true},
	{name: "with a guard in the guard", first: eachFault, least: 200, nested: true},
}

func (c *company) has(what conduct) bool {
	if c.conducts == nil {
		return !what.again
	}
	return slices.Contains(c.conducts, what.name)
}

// versions are the settings of the faulty process and of the other one.
func (c *company) versions(t *testing.T) (faulty, healthy []idempotency.Option) {
	if c.newer == nil {
		return nil, nil
	}
	if c.older != nil {
		faulty = c.older(t)
	}
	healthy = c.newer(t)
	if c.newerFails {
		faulty, healthy = healthy, faulty
	}
	return faulty, healthy
}

func fingerprints(now idempotency.FingerprintFunc, former ...idempotency.FingerprintFunc) func(*testing.T) []idempotency.Option {
	return func(*testing.T) []idempotency.Option {
		return []idempotency.Option{idempotency.WithFingerprint(now, former...)}
	}
}

func seals(now byte, former ...byte) func(*testing.T) []idempotency.Option {
	return func(t *testing.T) []idempotency.Option {
		return []idempotency.Option{idempotency.WithSealer(guardtest.NewSealer(t, now, former...))}
	}
}

// gateway passes requests on to a process. Its own store never fails.
func (w *faultWorld) gateway(to *guardtest.Process) *guardtest.Server {
	g := guardtest.NewGuard(w.t, idempotency.NewMemoryStore(), idempotency.WithLease(guardtest.LeaseTime))
	return guardtest.ServeRecorder(w.t, g.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		got, err := to.TryAlone(w.t.Context(), guardtest.Call{Key: r.Header.Get("Idempotency-Key")})
		if err != nil {
			rw.WriteHeader(http.StatusBadGateway)
			return
		}
		maps.Copy(rw.Header(), got.Header)
		rw.WriteHeader(got.Status)
		_, _ = rw.Write([]byte(got.Body))
	})))
}

// nest puts a handler behind a guard, and that behind a guard with a store and a key of its own,
// for the handler of a third guard, which shares store and key with the first. Its run is that of
// the third.
func nest(t testing.TB, first *idempotency.Guard, keyOf idempotency.KeyFunc, h http.Handler) http.Handler {
	type outermost struct{}
	between, err := idempotency.New(idempotency.NewMemoryStore(), guardtest.TenantScope,
		idempotency.WithKeyFunc(keyOf), idempotency.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	inner := between.Handler(first.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(rw, r.WithContext(r.Context().Value(outermost{}).(context.Context)))
	})))
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		inner.ServeHTTP(rw, r.WithContext(context.WithValue(r.Context(), outermost{}, r.Context())))
	})
}

// eachItsOwn is a KeyFunc that no two requests have a key of in common.
func eachItsOwn() idempotency.KeyFunc {
	var n atomic.Int64
	return func(*http.Request, []byte) (string, error) { return fmt.Sprint(n.Add(1)), nil }
}
