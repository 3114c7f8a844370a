package idempotency_test

import (
	"context"
	"errors"
	"sync"
	"time"

	"example.com/idempotency"
)

// A faultStore passes the calls of one process on to a store, counts them, and lets a
// test get in their way. It has none of the optional abilities of the store behind it,
// which is called without the caller's deadline: what is on the wire is executed,
// whether or not somebody still waits for it.
type faultStore struct {
	mu     sync.Mutex
	behind idempotency.Store
	counts map[string]int
	faults map[string]func(n int) fault
}

// A fault decides what becomes of one call, which proceed makes.
type fault func(ctx context.Context, proceed func() error) error

// on sets what happens to the calls of one kind: claim, renew, complete, release or
// hold. f is asked with the number of the call, from 1; a nil fault lets it pass.
func (s *faultStore) on(op string, f func(n int) fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.faults == nil {
		s.faults = make(map[string]func(int) fault)
	}
	s.faults[op] = f
}

var storeOps = []string{"claim", "renew", "complete", "release", "hold"}

// fail sets what happens to all calls from now on.
func (s *faultStore) fail(f fault) {
	for _, op := range storeOps {
		s.on(op, always(f))
	}
}

// replace puts another store behind, as if this one had lost all it knew.
func (s *faultStore) replace(behind idempotency.Store) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.behind = behind
}

// heal lets all calls pass from now on.
func (s *faultStore) heal() { s.fail(nil) }

// count returns the number of calls of one kind, and total that of all.
func (s *faultStore) count(op string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[op]
}

func (s *faultStore) total() (n int) {
	for _, op := range storeOps {
		n += s.count(op)
	}
	return n
}

func (s *faultStore) call(ctx context.Context, op string, proceed func(idempotency.Store) error) error {
	s.mu.Lock()
	if s.counts == nil {
		s.counts = make(map[string]int)
	}
	s.counts[op]++
	var hit fault
	if f := s.faults[op]; f != nil {
		hit = f(s.counts[op])
	}
	behind := s.behind
	s.mu.Unlock()
	if hit == nil {
		return proceed(behind)
	}
	return hit(ctx, func() error { return proceed(behind) })
}

func (s *faultStore) Claim(ctx context.Context, key string, c idempotency.Claim) (idempotency.Record, error) {
	var rec idempotency.Record
	err := s.call(ctx, "claim", func(behind idempotency.Store) (err error) {
		rec, err = behind.Claim(context.WithoutCancel(ctx), key, c)
		return err
	})
	if err != nil {
		return idempotency.Record{}, err
	}
	return rec, nil
}

func (s *faultStore) Renew(ctx context.Context, key string, o idempotency.Owner) error {
	return s.call(ctx, "renew", func(behind idempotency.Store) error { return behind.Renew(context.WithoutCancel(ctx), key, o) })
}

func (s *faultStore) Complete(ctx context.Context, key string, o idempotency.Owner, c idempotency.Completion) error {
	return s.call(ctx, "complete", func(behind idempotency.Store) error {
		return behind.Complete(context.WithoutCancel(ctx), key, o, c)
	})
}

func (s *faultStore) Release(ctx context.Context, key string, o idempotency.Owner) error {
	return s.call(ctx, "release", func(behind idempotency.Store) error { return behind.Release(context.WithoutCancel(ctx), key, o) })
}

func (s *faultStore) Hold(ctx context.Context, key string, o idempotency.Owner) error {
	return s.call(ctx, "hold", func(behind idempotency.Store) error { return behind.Hold(context.WithoutCancel(ctx), key, o) })
}

// always is the same fault for every call, first for the first n of them, and between for
// those from one to another.
func always(f fault) func(int) fault { return func(int) fault { return f } }

func first(n int, f fault) func(int) fault { return between(1, n, f) }

func between(from, to int, f fault) func(int) fault {
	return func(n int) fault {
		if from <= n && n <= to {
			return f
		}
		return nil
	}
}

var errDown = errors.New("store is down")

// refuse fails before the call has any effect.
func refuse(context.Context, func() error) error { return errDown }

// loseReply executes the call and fails all the same.
func loseReply(_ context.Context, proceed func() error) error {
	_ = proceed()
	return errDown
}

// hang waits for the caller to give up.
func hang(ctx context.Context, _ func() error) error {
	<-ctx.Done()
	return ctx.Err()
}

// late executes the call after d, whatever has become of the caller.
func late(d time.Duration) fault {
	return func(_ context.Context, proceed func() error) error {
		time.Sleep(d)
		return proceed()
	}
}

// deaf does not come back before the channel is closed, whatever has become of the
// caller.
func deaf(until <-chan struct{}) fault {
	return func(context.Context, func() error) error {
		<-until
		return errDown
	}
}

// failWith fails with err, as if the store had said it.
func failWith(err error) fault {
	return func(context.Context, func() error) error { return err }
}
