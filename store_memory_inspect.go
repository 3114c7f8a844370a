package idempotency

// The optional interfaces of the memory store: watching, recording steps, and what an
// operator does.

import (
	"bytes"
	"context"
	"slices"
)

// The optional interfaces of a MemoryStore.

// Watch implements [Watcher].
func (s *MemoryStore) Watch(ctx context.Context, key string) (settled <-chan struct{}, stop func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	sh, _, _ := s.lock(key)
	defer sh.mu.Unlock()
	wake := sh.watchers.Add(key)
	return wake, func() {
		sh.mu.Lock()
		defer sh.mu.Unlock()
		sh.watchers.Remove(key, wake)
	}, nil
}

// SaveStep implements [StepStore].
func (s *MemoryStore) SaveStep(ctx context.Context, key string, o Owner, name string, value []byte) error {
	return s.asOwner(ctx, key, o, func(_ *memoryShard, r *memoryRecord, _ int64) error {
		if r.state != StateClaimed {
			return ErrNotOwner
		}
		step := memoryStep{name, trim(value)}
		s.bytes.Add(int64(step.size()))
		if r.rare == nil {
			r.rare = new(memoryRare)
		}
		steps := r.rare.steps
		i := slices.IndexFunc(steps, func(old memoryStep) bool { return old.name == name })
		if i < 0 {
			r.rare.steps = append(steps, step)
			return nil
		}
		s.bytes.Add(-int64(steps[i].size()))
		steps[i] = step
		return nil
	})
}

// Get implements [Inspector].
func (s *MemoryStore) Get(ctx context.Context, key string) (Record, error) {
	if err := ctx.Err(); err != nil {
		return Record{}, err
	}
	sh, hash, now := s.lock(key)
	defer sh.mu.Unlock()
	r := s.find(sh, hash, key, now)
	if r == nil {
		return Record{}, ErrNotFound
	}
	out := r.see(now)
	out.Steps = r.stepsByName()
	return out, nil
}

// List implements [Inspector]. It locks a part of the store only to note which records the
// part has, and it holds no lock while it calls visit.
func (s *MemoryStore) List(ctx context.Context, visit func(key string, r Record) bool) error {
	var noted []int32
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		noted = noted[:0]
		for slot := range sh.queue.All() {
			noted = append(noted, slot)
		}
		sh.mu.Unlock()
		for _, slot := range noted {
			if err := ctx.Err(); err != nil {
				return err
			}
			sh.mu.Lock()
			now := s.now()
			r := sh.records.inSlot(slot) // perhaps another record by now
			if r == nil || r.expires <= now {
				sh.mu.Unlock()
				continue
			}
			key, out := r.key(), r.see(now)
			sh.mu.Unlock()
			if !visit(key, out) {
				return nil
			}
		}
	}
	return nil
}

// Resolve implements [Inspector].
func (s *MemoryStore) Resolve(ctx context.Context, key string, attempt int, c *Completion) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	sh, hash, now := s.lock(key)
	defer sh.mu.Unlock()
	r := s.find(sh, hash, key, now)
	if r == nil {
		return ErrNotFound
	}
	if int(r.attempt) != attempt {
		return ErrChanged
	}
	state, answer := StateReleased, []byte(nil)
	if c != nil {
		state, answer = StateCompleted, c.Answer
	}
	switch {
	case r.state == state && r.owner == Owner{} && bytes.Equal(r.answer, answer):
		return nil // An earlier call did the same, and its reply was lost.
	case !r.held(now):
		return ErrChanged
	}
	r.owner = Owner{} // The run that lost the claim can no longer record its own answer.
	if c == nil {
		sh.touch(r, state, now, r.unanswered(state))
		sh.watchers.Wake(key)
		return nil
	}
	s.complete(sh, r, key, now, *c)
	return nil
}

// Forget implements [Inspector].
func (s *MemoryStore) Forget(ctx context.Context, key string, attempt int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	sh, hash, now := s.lock(key)
	defer sh.mu.Unlock()
	r := s.find(sh, hash, key, now)
	switch {
	case r == nil:
		return nil
	case attempt != 0 && int(r.attempt) != attempt,
		r.state == StateClaimed && !r.lapsed(now):
		return ErrChanged
	}
	s.remove(sh, r)
	return nil
}
