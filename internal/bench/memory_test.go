package bench_test

import (
	"crypto/sha256"
	"net/http"

	"example.com/idempotency"
)

// batch is the number of requests between two new stores: it bounds what first runs
// keep.
func (l load) batch() int { return min(1000, 32<<20/len(l.out)) }

// memoryRows are the requests to a handler of this process, protected by nothing, by the
// memory store, and by the least that any protection must do: to hash the body.
func memoryRows(l load) []*row {
	bare := &row{name: "bare handler", size: l.batch(), workers: 1}
	bare.prepare = each(l, func() http.Handler { return l }, func(c *caller, h http.Handler, _ string) bool {
		return c.send(h, "") == http.StatusCreated
	})
	floor := &row{name: "bare handler and SHA-256 of the body", size: l.batch(), workers: 1, bare: bare}
	floor.prepare = each(l, func() http.Handler { return hashing(l) }, func(c *caller, h http.Handler, _ string) bool {
		return c.send(h, "") == http.StatusCreated
	})
	fresh := func() http.Handler { return guarded(idempotency.NewMemoryStore(), l) }
	rows := []*row{
		bare, floor,
		{
			name: "no key", floor: bare,
			prepare: each(l, fresh, func(c *caller, h http.Handler, _ string) bool {
				return c.send(h, "") == http.StatusCreated
			}),
		},
		{
			name: "first run", floor: floor,
			prepare: each(l, fresh, func(c *caller, h http.Handler, key string) bool {
				return c.send(h, key) == http.StatusCreated
			}),
		},
		{
			name: "replay", floor: floor,
			prepare: each(l, fresh, func(c *caller, h http.Handler, key string) bool {
				return c.send(h, c.again(h, key)) == http.StatusCreated
			}),
		},
		{
			name: "other payload, 409", floor: floor,
			prepare: each(l, fresh, func(c *caller, h http.Handler, key string) bool {
				key = c.again(h, key)
				c.r.URL.RawQuery = "other"
				return c.send(h, key) == http.StatusConflict
			}),
		},
	}
	for _, r := range rows[2:] {
		r.size, r.workers, r.bare = l.batch(), 1, bare
	}
	return rows
}

// parallelRows are the same requests by one worker and by two that share a store.
func parallelRows(l load) []*row {
	var rows []*row
	for _, r := range memoryRows(l)[3:5] {
		one := &row{name: r.name + ", one core", size: l.batch(), workers: 1, prepare: r.prepare}
		two := &row{name: r.name + ", two cores", size: l.batch(), workers: 2, prepare: r.prepare, floor: one}
		rows = append(rows, one, two)
	}
	return rows
}

// each prepares workers that share a handler and have a caller and fresh keys each.
func each(l load, handler func() http.Handler, send func(*caller, http.Handler, string) bool) func(int, int) []func(int) bool {
	return func(workers, n int) []func(int) bool {
		h := handler()
		calls := make([]func(int) bool, workers)
		for w := range calls {
			c, keys := newCaller(l), freshKeys(n)
			calls[w] = func(i int) bool { return send(c, h, keys[i]) }
			send(c, h, freshKeys(1)[0]) // warm
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
func hashing(l load) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hashed = sha256.Sum256(l.in)
		l.ServeHTTP(w, r)
	})
}

var hashed [sha256.Size]byte
