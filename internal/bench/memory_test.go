package bench_test

import (
	"crypto/sha256"
	"net/http"

	"example.com/idempotency"
	"example.com/idempotency/internal/load"
)

// batchSize is the number of requests between two new stores: it bounds what first runs
// keep.
func batchSize(work load.Work) int { return min(1000, 32<<20/len(work.Out)) }

// memoryRows are the requests to a handler of this process, protected by nothing, by the
// memory store, and by the least that any protection must do: to hash the body.
func memoryRows(work load.Work) []*row {
	bare := &row{name: "bare handler", size: batchSize(work), workers: 1}
	bare.prepare = each(work, func() http.Handler { return work }, keyless)
	floor := &row{name: "bare handler and SHA-256 of the body", size: batchSize(work), workers: 1, bare: bare}
	floor.prepare = each(work, func() http.Handler { return hashing(work) }, keyless)
	fresh := func() http.Handler { return guarded(idempotency.NewMemoryStore(), work) }
	rows := []*row{
		bare, floor,
		{name: "no key", floor: bare, prepare: each(work, fresh, keyless)},
		{name: "first run", floor: floor, prepare: each(work, fresh, firstRun)},
		{name: "replay", floor: floor, prepare: each(work, fresh, replay)},
		{name: "other payload, 409", floor: floor, prepare: each(work, fresh, otherPayload)},
	}
	for _, r := range rows[2:] {
		r.size, r.workers, r.bare = batchSize(work), 1, bare
	}
	return rows
}

// tightRows are the same requests against those to the tight reference.
func tightRows(work load.Work, pooled bool) []*row {
	var rows []*row
	for _, k := range []struct {
		name string
		send request
	}{{"first run", firstRun}, {"replay", replay}, {"other payload, 409", otherPayload}} {
		reference := &row{name: "tight: " + k.name}
		reference.prepare = each(work, func() http.Handler { return newTight(work, pooled) }, k.send)
		mine := &row{name: k.name, floor: reference}
		mine.prepare = each(work, func() http.Handler { return guarded(idempotency.NewMemoryStore(), work) }, k.send)
		rows = append(rows, reference, mine)
	}
	for _, r := range rows {
		// A new store is no more than a small part of so many requests.
		r.size, r.workers = min(10_000, 32<<20/len(work.Out)), 1
	}
	return rows
}

// parallelRows are the same requests by one worker and by two that share a store.
func parallelRows(work load.Work) []*row {
	var rows []*row
	for _, r := range memoryRows(work)[3:5] {
		one := &row{name: r.name + ", one core", size: batchSize(work), workers: 1, prepare: r.prepare}
		two := &row{name: r.name + ", two cores", size: batchSize(work), workers: 2, prepare: r.prepare, floor: one}
		rows = append(rows, one, two)
	}
	return rows
}

// A request is one of a kind, with a key that is new or with one that h has answered. It
// tells whether it was answered as it must be.
type request func(c *load.Caller, h http.Handler, fresh, answered string) bool

func keyless(c *load.Caller, h http.Handler, _, _ string) bool {
	return c.Send(h, "") == http.StatusCreated
}

func firstRun(c *load.Caller, h http.Handler, fresh, _ string) bool {
	return c.Send(h, fresh) == http.StatusCreated
}

func replay(c *load.Caller, h http.Handler, _, answered string) bool {
	return c.Send(h, answered) == http.StatusCreated
}

func otherPayload(c *load.Caller, h http.Handler, _, answered string) bool {
	c.Request.URL.RawQuery = "other"
	return c.Send(h, answered) == http.StatusConflict
}

// each prepares workers that share a handler and have a caller and fresh keys each.
func each(work load.Work, handler func() http.Handler, send request) func(int, int) []func(int) bool {
	return func(workers, n int) []func(int) bool {
		h := handler()
		calls := make([]func(int) bool, workers)
		for w := range calls {
			c, keys, answered := load.NewCaller(work), load.Keys(n), load.Key()
			calls[w] = func(i int) bool { return send(c, h, keys[i], answered) }
			c.Send(h, answered)
			send(c, h, load.Key(), answered) // warm
		}
		return calls
	}
}

// guarded is what a user writes.
func guarded(s idempotency.Store, h http.Handler, opts ...idempotency.Option) http.Handler {
	g, err := idempotency.New(s, idempotency.SharedScope, opts...)
	if err != nil {
		panic(err)
	}
	return g.Handler(h)
}

// hashing is the floor: no protection that compares payloads can do less.
func hashing(work load.Work) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hashed = sha256.Sum256(work.In)
		work.ServeHTTP(w, r)
	})
}

var hashed [sha256.Size]byte
