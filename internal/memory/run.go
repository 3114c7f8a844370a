package memory

// The calls of a run: Claim, and those of the owner of the claim.

import (
	"bytes"
	"context"

	"example.com/idempotency/store"
)

// Claim implements [store.Store].
func (s *Store) Claim(ctx context.Context, key string, c store.Claim) (store.Record, error) {
	if err := ctx.Err(); err != nil {
		return store.Record{}, err
	}
	for {
		var out store.Record
		if err := s.claim(&out, key, &c); err == nil || !s.makeRoom() {
			return out, err
		}
	}
}

// claim is Claim without a second attempt when the store is full. A record is large, so it is handed
// on by its address.
func (s *Store) claim(out *store.Record, key string, c *store.Claim) (err error) {
	sh, hash := s.lock(key)
	defer sh.mu.Unlock()
	now := s.tidy(sh)
	r := s.find(sh, hash, key, now)
	hasRoom := true
	if r.none() {
		tenant := s.room.tenantOf(c)
		if !s.room.reserve(len(key)+claimRoom(c), tenant) {
			return store.ErrFull
		}
		r = sh.insert(hash, key, c, now)
		if r.tenant = tenant; sh.records.isOwn(r) {
			s.own.Add(1)
		}
	} else if r.state != store.Completed {
		hasRoom = s.room.hasRoom(r.tenant)
	}
	if r.state == store.Completed { // it does not change
		return sh.claim(out, r, c, now, hasRoom)
	}
	before := sh.claimSize(r)
	err = sh.claim(out, r, c, now, hasRoom)
	s.room.charge(sh.claimSize(r)-before, r.tenant)
	return err
}

// Renew implements [store.Store].
func (s *Store) Renew(ctx context.Context, key string, o store.Owner) error {
	return s.asOwner(ctx, key, o, func(sh *shard, r entry, now int64) error {
		if r.state != store.Claimed {
			return store.ErrNotOwner
		}
		sh.touch(r, store.Claimed, now, r.unanswered(store.Claimed))
		return nil
	})
}

// SaveStep implements [store.StepStore].
func (s *Store) SaveStep(ctx context.Context, key string, o store.Owner, name string, value []byte) error {
	return s.asOwner(ctx, key, o, func(sh *shard, r entry, _ int64) error {
		if r.state != store.Claimed {
			return store.ErrNotOwner
		}
		if !s.fits(key, value) {
			return store.ErrTooLarge
		}
		r.flags &^= blank
		step, rare := savedStep{name, bytes.Clone(value)}, sh.records.addRare(r)
		s.room.charge(step.size(), r.tenant)
		if old := rare.step(name); old != nil {
			s.room.charge(-old.size(), r.tenant)
			*old = step
			return nil
		}
		rare.steps = append(rare.steps, step)
		return nil
	})
}

// Complete implements [store.Store].
func (s *Store) Complete(ctx context.Context, key string, o store.Owner, c store.Completion) error {
	fits := s.fits(key, c.Answer)
	if fits {
		c.Answer = ownMemory(c.Answer)
	}
	return s.asOwner(ctx, key, o, func(sh *shard, r entry, now int64) error {
		switch r.state {
		case store.Completed:
			return nil
		case store.Claimed, store.Held:
			if !fits {
				return store.ErrTooLarge
			}
			s.complete(sh, r, key, now, c)
			return nil
		default:
			return store.ErrNotOwner
		}
	})
}

// fits reports whether a record with the value is not larger than the whole store.
func (s *Store) fits(key string, value []byte) bool {
	return int64(recordOverhead+len(key)+len(value)) <= s.room.maxBytes
}

// complete records the answer of a record that the caller may complete. It has passed ownMemory.
func (s *Store) complete(sh *shard, r entry, key string, now int64, c store.Completion) {
	sh.keepAnswer(r, c.Answer)
	r.status = uint16(c.Status)
	s.room.charge(len(c.Answer), r.tenant)
	sh.touch(r, store.Completed, now, c.TTL)
	sh.watchers.Wake(key)
}

// Release implements [store.Store].
func (s *Store) Release(ctx context.Context, key string, o store.Owner, rel store.Release) error {
	return s.giveUp(ctx, key, o, store.Released, rel, nil)
}

// Hold implements [store.Store].
func (s *Store) Hold(ctx context.Context, key string, o store.Owner, note []byte) error {
	return s.giveUp(ctx, key, o, store.Held, store.Release{}, note)
}

// giveUp ends a claim without an answer, and with another note unless that is empty.
func (s *Store) giveUp(ctx context.Context, key string, o store.Owner, state store.State, rel store.Release, note []byte) error {
	return s.asOwner(ctx, key, o, func(sh *shard, r entry, now int64) error {
		switch {
		case r.state == store.Claimed, r.is(byLapse):
			kept := r.unanswered(state)
			if !rel.Undone {
				r.flags &^= blank
			}
			if !r.is(blank) || !rel.Unused {
				r.flags &^= unbound
			}
			if r.is(blank) {
				if rel.Unbind {
					r.flags |= unbound
				}
				if rel.Keep > 0 {
					kept = min(kept, rel.Keep)
				}
			}
			s.room.charge(sh.replaceNote(r, note), r.tenant)
			sh.touch(r, state, now, kept)
			sh.watchers.Wake(key)
			return nil
		case r.state == state:
			return nil
		default:
			return store.ErrNotOwner
		}
	})
}

// asOwner calls f as with does, if o is the owner of the key's record. f decides in which states of the record it does something.
func (s *Store) asOwner(ctx context.Context, key string, o store.Owner, f func(sh *shard, r entry, now int64) error) error {
	return s.with(ctx, key, func(sh *shard, r entry, now int64) error {
		if r.none() || !r.isOf(o) {
			return store.ErrNotOwner
		}
		return f(sh, r, now)
	})
}

// with calls f with the key's record, if there is one, and holds the lock of the shard meanwhile.
func (s *Store) with(ctx context.Context, key string, f func(sh *shard, r entry, now int64) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	sh, hash := s.lock(key)
	defer sh.mu.Unlock()
	now := s.tidy(sh)
	r := s.find(sh, hash, key, now)
	return f(sh, r, now)
}

// Watch implements [store.Watcher].
func (s *Store) Watch(ctx context.Context, key string) (settled <-chan struct{}, stop func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	sh, _ := s.lock(key)
	defer sh.mu.Unlock()
	s.tidy(sh)
	wake := sh.watchers.Add(key)
	return wake, func() {
		sh.mu.Lock()
		defer sh.mu.Unlock()
		sh.watchers.Remove(key, wake)
	}, nil
}
