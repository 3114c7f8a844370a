package otelidempotency

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"

	"example.com/idempotency/store"
)

// This file counts all records of a store, which takes long among millions and so goes on beside
// everything else.

// shortestCensus is how often a census is taken at most.
const shortestCensus = time.Minute

// stateLapsed is the state of a record whose run is gone and may be taken over.
const stateLapsed = "lapsed"

// A census counts the records of a store by state, again and again.
type census struct {
	store store.Lister
	every time.Duration

	mu     sync.Mutex
	at     time.Time // when the last complete count ended, or zero
	states map[string]int64
	failed bool // the last one
}

// run takes a census at once and then in each period, until the context ends.
func (c *census) run(ctx context.Context) {
	for {
		begun := time.Now()
		c.take(ctx)
		select {
		case <-time.After(c.every - time.Since(begun)):
		case <-ctx.Done():
			return
		}
	}
}

func (c *census) take(ctx context.Context) {
	within, cancel := context.WithTimeout(ctx, c.every)
	defer cancel()
	states := map[string]int64{stateLapsed: 0}
	for s := store.Claimed; s < store.Held; s++ {
		states[s.String()] = 0
	}
	err := each(within, c.store, store.Query{}, func(r store.Record) {
		switch {
		case r.State == store.Held: // the index counts them
		case r.State == store.Claimed && r.Lease <= 0:
			states[stateLapsed]++
		default:
			states[r.State.String()]++
		}
	})
	if ctx.Err() != nil {
		return // nobody asks any more
	}
	if err != nil {
		otel.Handle(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed = err != nil; !c.failed {
		c.at, c.states = time.Now(), states
	}
}

func (w *watch) observeCensus(o metric.Observer) {
	if w.census == nil {
		return
	}
	w.census.mu.Lock()
	defer w.census.mu.Unlock()
	var failed int64
	if w.census.failed {
		failed = 1
	}
	o.ObserveInt64(w.censusFailed, failed)
	if w.census.at.IsZero() {
		return
	}
	o.ObserveFloat64(w.censusAge, time.Since(w.census.at).Seconds())
	for state, n := range w.census.states {
		o.ObserveInt64(w.records, n, w.state(state)...)
	}
}
