package memory

// What operators do with the records of a store.

import (
	"context"
	"slices"

	"example.com/idempotency/store"
)

// GetAnswer implements [store.Inspector].
func (s *Store) GetAnswer(ctx context.Context, key string) (out store.Record, err error) {
	err = s.with(ctx, key, func(sh *shard, r entry, now int64) error {
		if r.none() {
			return store.ErrNotFound
		}
		sh.see(&out, r, now)
		out.Steps, out.SealedKey = sh.stepsByName(r), sh.sealedKey(r)
		return nil
	})
	return out, err
}

// Get implements [store.Inspector].
func (s *Store) Get(ctx context.Context, key string) (store.Record, error) {
	out, err := s.GetAnswer(ctx, key)
	out.Answer = nil
	return out, err
}

// Resolve implements [store.Inspector].
func (s *Store) Resolve(ctx context.Context, key string, seen store.Seen, settled store.Settlement) error {
	return s.with(ctx, key, func(sh *shard, r entry, now int64) error {
		switch {
		case r.none():
			return store.ErrNotFound
		case seen != r.seenAs(store.Held):
			return store.ErrChanged
		case sh.resolvedTo(r, settled):
			return nil // An earlier call did the same, and its reply was lost.
		case r.stateAt(now) != store.Held:
			return store.ErrChanged
		}
		c := settled.Completion
		switch {
		case c != nil && !s.fits(key, c.Answer):
			return store.ErrTooLarge
		case c == nil && !sh.hasSteps(r, settled.Undone):
			return store.ErrChanged
		}
		s.room.charge(sh.keepDecision(r, settled.Note), r.tenant)
		r.flags |= byHand // The run that lost the claim can no longer record its own answer.
		if c != nil {
			done := *c
			done.Answer = ownMemory(done.Answer) // under the lock, because that is rare
			s.complete(sh, r, key, now, done)
			return nil
		}
		s.dropSteps(sh, r, settled.Undone)
		r.flags &^= blank | unbound
		sh.touch(r, store.Released, now, r.unanswered(store.Released))
		sh.watchers.Wake(key)
		return nil
	})
}

// dropSteps removes the steps of these names.
func (s *Store) dropSteps(sh *shard, r entry, undone map[string][]byte) {
	rare := sh.records.rareOf(r)
	if rare == nil {
		return
	}
	rare.steps = slices.DeleteFunc(rare.steps, func(step savedStep) bool {
		_, drop := undone[step.name]
		if drop {
			s.room.charge(-step.size(), r.tenant)
		}
		return drop
	})
}

// Forget implements [store.Inspector].
func (s *Store) Forget(ctx context.Context, key string, seen store.Seen) error {
	return s.with(ctx, key, func(sh *shard, r entry, now int64) error {
		switch {
		case r.none():
			return nil
		case seen != r.seenAs(r.stateAt(now)),
			r.state == store.Claimed && !r.lapsed(now):
			return store.ErrChanged
		}
		s.remove(sh, r)
		return nil
	})
}
