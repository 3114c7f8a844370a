package engine

import (
	"context"
	"fmt"
	"slices"

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

// Finders returns engines that find together what the given ones, and all engines that were made from the same, have
// recorded: one for each secret, and always in one order.
func Finders(of ...*Engine) (all []*Engine) {
	for _, e := range of {
		for _, rules := range e.core.finders.list() {
			same := func(other *Engine) bool { return other.rules.Derivation.FindsLike(&rules.Derivation) }
			if !slices.ContainsFunc(all, same) {
				all = append(all, &Engine{e.core, rules})
			}
		}
	}
	return all
}
