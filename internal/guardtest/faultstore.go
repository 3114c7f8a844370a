package guardtest

import (
	"context"
	"sync"
	"sync/atomic"

	"example.com/idempotency"
	"example.com/idempotency/store"
)

// A FaultStore passes the calls of one process on to a store, counts them, and lets a
// test get in their way. It has none of the optional abilities of the store behind it,
// which is called without the caller's deadline: a call on the wire is executed, whether
// or not the caller still waits.
type FaultStore struct {
	// Behind executes the calls. Once there are calls, only Replace may change it.
	Behind idempotency.Store

	mu     sync.Mutex
	counts map[string]int
	faults map[string]func(n int) Fault
	limits limits
}

// On sets what happens to the calls of one kind: claim, renew, complete, release or
// hold. f is asked with the number of the call, from 1; a nil fault lets it pass.
func (s *FaultStore) On(op string, f func(n int) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.faults == nil {
		s.faults = make(map[string]func(int) Fault)
	}
	s.faults[op] = f
}

// StoreOps are the kinds of calls that each store has.
var StoreOps = []string{"claim", "renew", "complete", "release", "hold"}

// Fail sets what happens to all calls from now on.
func (s *FaultStore) Fail(f Fault) {
	for _, op := range StoreOps {
		s.On(op, Always(f))
	}
}

// Replace puts another store behind, as if the first had lost all its records.
func (s *FaultStore) Replace(behind idempotency.Store) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Behind = behind
}

// Heal lets all calls pass from now on.
func (s *FaultStore) Heal() { s.Fail(nil) }

// Count returns the number of calls of one kind.
func (s *FaultStore) Count(op string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[op]
}

// Total returns the number of calls of all kinds.
func (s *FaultStore) Total() (n int) {
	for _, op := range StoreOps {
		n += s.Count(op)
	}
	return n
}

// Call makes one call of a kind: proceed executes it on a store.
func (s *FaultStore) Call(ctx context.Context, op string, proceed func(idempotency.Store) error) error {
	s.mu.Lock()
	if s.counts == nil {
		s.counts = make(map[string]int)
	}
	s.counts[op]++
	var hit Fault
	if f := s.faults[op]; f != nil {
		hit = f(s.counts[op])
	}
	s.mu.Unlock()
	if hit == nil {
		return proceed(s.behind())
	}
	return hit(ctx, func() error { return proceed(s.behind()) })
}

// behind is the store that executes a call which arrives now.
func (s *FaultStore) behind() idempotency.Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Behind
}

// Claim is the call "claim".
func (s *FaultStore) Claim(ctx context.Context, key string, c store.Claim) (store.Record, error) {
	var rec store.Record
	err := s.Call(ctx, "claim", func(behind idempotency.Store) (err error) {
		rec, err = behind.Claim(context.WithoutCancel(ctx), key, c)
		if err == nil {
			err = s.transfer(ctx, len(rec.Answer))
		}
		return err
	})
	if err != nil {
		return store.Record{}, err
	}
	return rec, nil
}

// Renew is the call "renew".
func (s *FaultStore) Renew(ctx context.Context, key string, o store.Owner) error {
	return s.Call(ctx, "renew", func(behind idempotency.Store) error { return behind.Renew(context.WithoutCancel(ctx), key, o) })
}

// Complete is the call "complete".
func (s *FaultStore) Complete(ctx context.Context, key string, o store.Owner, c store.Completion) error {
	return s.Call(ctx, "complete", func(behind idempotency.Store) error {
		if err := s.take(ctx, len(c.Answer)); err != nil {
			return err
		}
		return behind.Complete(context.WithoutCancel(ctx), key, o, c)
	})
}

// Release is the call "release".
func (s *FaultStore) Release(ctx context.Context, key string, o store.Owner, r store.Release) error {
	return s.Call(ctx, "release", func(behind idempotency.Store) error { return behind.Release(context.WithoutCancel(ctx), key, o, r) })
}

// Hold is the call "hold".
func (s *FaultStore) Hold(ctx context.Context, key string, o store.Owner, note []byte) error {
	return s.Call(ctx, "hold", func(behind idempotency.Store) error { return behind.Hold(context.WithoutCancel(ctx), key, o, note) })
}

// A StepFaultStore is a [FaultStore] that can record steps; the calls are named "step".
type StepFaultStore struct{ *FaultStore }

// SaveStep is the call "step".
func (s StepFaultStore) SaveStep(ctx context.Context, key string, o store.Owner, name string, value []byte) error {
	return s.Call(ctx, "step", func(behind idempotency.Store) error {
		if err := s.take(ctx, len(value)); err != nil {
			return err
		}
		return behind.(store.StepStore).SaveStep(ctx, key, o, name, value)
	})
}

// NewStepFaultStore returns one before a memory store.
func NewStepFaultStore() StepFaultStore {
	return StepFaultStore{&FaultStore{Behind: idempotency.NewMemoryStore()}}
}

// A WatchedStore is a [FaultStore] that can wake waiters, and counts who watches.
type WatchedStore struct {
	*FaultStore
	// Watches counts the watches that were asked for, Watching those that go on.
	Watches, Watching atomic.Int64
	// WatchFault is what they fail with, if it is set.
	WatchFault atomic.Pointer[error]
	// BeforeWatch is called first, if it is set.
	BeforeWatch func()
}

// Watch counts the watch, and fails with WatchFault if that is set.
func (s *WatchedStore) Watch(ctx context.Context, key string) (<-chan struct{}, func(), error) {
	s.Watches.Add(1)
	if s.BeforeWatch != nil {
		s.BeforeWatch()
	}
	if err := s.WatchFault.Load(); err != nil {
		return nil, nil, *err
	}
	settled, stop, err := s.Behind.(store.Watcher).Watch(ctx, key)
	s.Watching.Add(1)
	return settled, func() { s.Watching.Add(-1); stop() }, err
}
