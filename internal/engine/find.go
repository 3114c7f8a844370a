package engine

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/store"
)

// finder returns the store as one that finds records by tags.
func (e *Engine) finder() (store.Finder, error) { return FinderOf(e.core.store) }

// FinderOf returns a store as one that finds records by tags.
func FinderOf(st store.Store) (store.Finder, error) {
	f, ok := st.(store.Finder)
	if !ok {
		return nil, ErrNoFinder
	}
	if err := f.KeepsTags(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoFinder, err)
	}
	return f, nil
}

// Find returns the next records that have a reference or a scope and fit the query, without their steps, and where to
// go on.
func (e *Engine) Find(ctx context.Context, by, value string, q store.Query) (found []Found, next string, err error) {
	f, err := e.finder()
	if err != nil {
		return nil, "", err
	}
	page, err := bounded(ctx, e.core, "find", storeTimeout, func(ctx context.Context) (store.Page, error) {
		return f.Find(ctx, e.rules.Derivation.Tag(by, value), q)
	})
	for _, entry := range page.Entries {
		k := e.identify(ctx, intent.Key{Record: entry.Key}, entry.Record)
		found = append(found, e.Found(k, entry.Record))
	}
	return found, page.Next, err
}

// finders are the engines that share a store, the first of each secret.
type finders struct {
	mu  sync.Mutex
	all []*Engine
}

// add enters an engine, unless one is there that finds the same.
func (f *finders) add(e *Engine) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = addFinder(f.all, e)
}

func addFinder(all []*Engine, e *Engine) []*Engine {
	same := func(other *Engine) bool { return other.rules.Derivation.FindsLike(&e.rules.Derivation) }
	if slices.ContainsFunc(all, same) {
		return all
	}
	return append(all, e)
}

// Finders returns engines that find together what the given ones, and all engines that were made from the same, have
// recorded: one for each secret, and always in one order.
func Finders(of ...*Engine) (all []*Engine) {
	for _, e := range of {
		e.core.finders.mu.Lock()
		made := slices.Clone(e.core.finders.all)
		e.core.finders.mu.Unlock()
		for _, one := range made {
			all = addFinder(all, one)
		}
	}
	return all
}
