package guardtest

import (
	"context"
	"time"
)

// limits are those of a store that works, but not for values of every size.
type limits struct {
	bytesPerSecond int
	size           int
	err            error // for a value above size
}

// Throttle makes the store slow but healthy: an answer or a step takes its size divided by
// bytesPerSecond on its way to the store, and an answer on its way back. A call whose caller
// gives up before that has not brought its value to the store, and changes nothing. Zero
// lifts the limit.
func (s *FaultStore) Throttle(bytesPerSecond int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limits.bytesPerSecond = bytesPerSecond
}

// RefuseAbove makes the store fail with err, and change nothing, if an answer or a step has
// more than size bytes. All other calls work. A nil err lifts the limit.
func (s *FaultStore) RefuseAbove(size int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limits.size, s.limits.err = size, err
}

// take returns when a value of n bytes has arrived at the store, with an error if it has not.
func (s *FaultStore) take(ctx context.Context, n int) error {
	s.mu.Lock()
	l := s.limits
	s.mu.Unlock()
	if l.err != nil && n > l.size {
		return l.err
	}
	return s.transfer(ctx, n)
}

// transfer waits for as long as n bytes are on their way.
func (s *FaultStore) transfer(ctx context.Context, n int) error {
	s.mu.Lock()
	rate := s.limits.bytesPerSecond
	s.mu.Unlock()
	if rate == 0 || n == 0 {
		return nil
	}
	select {
	case <-time.After(time.Duration(n) * time.Second / time.Duration(rate)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
