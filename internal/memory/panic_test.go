package memory_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/memory"
	"example.com/idempotency/store"
)

// A panic inside of the store ends one request. It does not leave a lock behind, on which all others
// would wait for ever.
func TestMemoryStoreKeepsNoLockAfterAPanic(t *testing.T) {
	key, c, seen := "key", guardtest.MemoryClaim(1), store.Seen{State: store.Held}
	guardtest.Each(t, map[string]func(ctx context.Context, s *memory.Store){
		"Claim":     func(ctx context.Context, s *memory.Store) { _, _ = s.Claim(ctx, key, c) },
		"Renew":     func(ctx context.Context, s *memory.Store) { _ = s.Renew(ctx, key, c.Owner) },
		"Complete":  func(ctx context.Context, s *memory.Store) { _ = s.Complete(ctx, key, c.Owner, store.Completion{}) },
		"Release":   func(ctx context.Context, s *memory.Store) { _ = s.Release(ctx, key, c.Owner, store.Release{}) },
		"Hold":      func(ctx context.Context, s *memory.Store) { _ = s.Hold(ctx, key, c.Owner, nil) },
		"SaveStep":  func(ctx context.Context, s *memory.Store) { _ = s.SaveStep(ctx, key, c.Owner, "step", nil) },
		"Get":       func(ctx context.Context, s *memory.Store) { _, _ = s.Get(ctx, key) },
		"GetAnswer": func(ctx context.Context, s *memory.Store) { _, _ = s.GetAnswer(ctx, key) },
		"Resolve":   func(ctx context.Context, s *memory.Store) { _ = s.Resolve(ctx, key, seen, store.Settlement{}) },
		"Forget":    func(ctx context.Context, s *memory.Store) { _ = s.Forget(ctx, key, seen) },
		"List":      func(ctx context.Context, s *memory.Store) { _, _ = s.List(ctx, store.Query{}) },
		"Holding":   func(ctx context.Context, s *memory.Store) { _, _ = s.List(ctx, store.Query{Holding: true}) },
		"Watch":     func(ctx context.Context, s *memory.Store) { _, _, _ = s.Watch(ctx, key) },
		"full":      func(ctx context.Context, s *memory.Store) { _, _ = s.Claim(ctx, "other", c) },
		"visit": func(ctx context.Context, s *memory.Store) {
			for range 10_000 { // of a shard without records, which visits the others
				_, _ = s.Get(ctx, s.KeyOfAnEmptyShard())
			}
		},
	}, func(t *testing.T, call func(ctx context.Context, s *memory.Store)) {
		s, c := memory.New(memory.Config{MaxEntries: 1}), c
		c.Hold = true
		guardtest.Claim(t, s, key, c)
		s.Break()
		require.Panics(t, func() { call(t.Context(), s) })
		require.Zero(t, s.Locked())
	})
}
