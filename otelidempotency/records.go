package otelidempotency

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"

	"example.com/idempotency/store"
)

// This file reports what is in a store.

const (
	// countEvery is how often a store is counted at most, however often metrics are collected.
	countEvery = time.Minute
	// countTimeout bounds the time for it. A store with more records than can be visited in
	// this time has no count.
	countTimeout = 5 * time.Second
	// countPage is how many records the store reads at once.
	countPage = 1000
)

// A census counts the records of a store.
type census struct {
	store store.Lister

	mu   sync.Mutex
	at   time.Time
	last count
	err  error
}

// A count is what a census has found.
type count struct {
	states map[string]int64
	// expires is how long it is, at the time of the census, until the first held record is
	// deleted, if one has an end.
	expires time.Duration
	ends    bool
}

// stateLapsed is the state of a record whose run is gone and may be taken over.
const stateLapsed = "lapsed"

// take returns the last count, and makes a new one if that is old.
func (c *census) take(ctx context.Context) (count, time.Duration, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() || time.Since(c.at) >= countEvery {
		c.at = time.Now()
		c.last, c.err = c.count(ctx)
	}
	return c.last, time.Since(c.at), c.err
}

func (c *census) count(ctx context.Context) (count, error) {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	found := count{states: map[string]int64{stateLapsed: 0}}
	for s := store.Claimed; s <= store.Held; s++ {
		found.states[s.String()] = 0
	}
	for q := (store.Query{Limit: countPage}); ; {
		page, err := c.store.List(ctx, q)
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return count{}, fmt.Errorf("otelidempotency: counting the records of the store: %w", err)
		}
		for _, e := range page.Entries {
			found.add(e.Record)
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return found, nil
		}
	}
}

func (c *count) add(r store.Record) {
	state := r.State.String()
	if r.State == store.Claimed && r.Lease <= 0 {
		state = stateLapsed
	}
	c.states[state]++
	if r.State == store.Held && r.TTL != store.Forever && (!c.ends || r.TTL < c.expires) {
		c.expires, c.ends = r.TTL, true
	}
}

func (w *watch) observeRecords(ctx context.Context, o metric.Observer) error {
	if w.census == nil {
		return nil
	}
	found, age, err := w.census.take(ctx)
	if err != nil {
		return err
	}
	for state, n := range found.states {
		o.ObserveInt64(w.records, n, w.made.of(labels{name: keyState, value: state}).observe...)
	}
	if found.ends {
		o.ObserveFloat64(w.expires, (found.expires - age).Seconds())
	}
	return nil
}
