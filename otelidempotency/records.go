package otelidempotency

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"

	"example.com/idempotency/store"
)

// This file reports the held records of a store, which its index finds among millions.

const (
	// heldEvery is how often held records are counted at most, however often metrics are collected. If
	// counting takes long there are many, and a twentieth of the time is spent on it.
	heldEvery = 5 * time.Second
	heldShare = 20
	// heldTimeout bounds the time for it.
	heldTimeout = 5 * time.Second
	// page is how many records the store reads at once.
	page = 1000
)

// A held counts the records that are held, by the index of the store.
type held struct {
	store store.Lister

	mu   sync.Mutex
	at   time.Time     // of the last count
	took time.Duration // by it
	last doubt
	err  error
}

// A doubt is what is held at one moment.
type doubt struct {
	records int64
	oldest  time.Duration // how long the first one has been held
	expires time.Duration // until the first one is deleted, if ends is set
	ends    bool
}

// take returns the last count and its age, and makes a new one if that is old.
func (h *held) take(ctx context.Context) (doubt, time.Duration, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.at.IsZero() || time.Since(h.at) >= max(heldEvery, heldShare*h.took) {
		h.at = time.Now()
		h.last, h.err = h.count(ctx)
		h.took = time.Since(h.at)
	}
	return h.last, time.Since(h.at), h.err
}

func (h *held) count(ctx context.Context) (found doubt, err error) {
	ctx, cancel := context.WithTimeout(ctx, heldTimeout)
	defer cancel()
	err = each(ctx, h.store, store.Query{Holding: true, States: []store.State{store.Held}}, found.add)
	return found, err
}

func (d *doubt) add(r store.Record) {
	d.records++
	d.oldest = max(d.oldest, r.Age)
	if r.TTL != store.Forever && (!d.ends || r.TTL < d.expires) {
		d.expires, d.ends = r.TTL, true
	}
}

// each calls f for each record of a key that the query asks for. Without an error it was each of them.
func each(ctx context.Context, l store.Lister, q store.Query, f func(store.Record)) error {
	for q.Limit = page; ; {
		found, err := l.List(ctx, q)
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("otelidempotency: counting the records of the store: %w", err)
		}
		for _, e := range found.OfKeys().Entries {
			f(e.Record)
		}
		if q.Cursor = found.Next; q.Cursor == "" {
			return nil
		}
	}
}

func (w *watch) observeHeld(ctx context.Context, o metric.Observer) error {
	if w.held == nil {
		return nil
	}
	found, age, err := w.held.take(ctx)
	if err != nil {
		return err
	}
	o.ObserveInt64(w.records, found.records, w.state(store.Held.String())...)
	if found.records > 0 {
		o.ObserveFloat64(w.oldest, (found.oldest + age).Seconds())
	}
	if found.ends {
		o.ObserveFloat64(w.expires, (found.expires - age).Seconds())
	}
	return nil
}
