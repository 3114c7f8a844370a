package sqlitestore

import (
	"context"
	"fmt"
	"time"

	"example.com/idempotency/internal/watch"
)

// pollEvery is how often the file is asked whether another process has written, while somebody
// waits.
const pollEvery = 25 * time.Millisecond

// A poll asks on behalf of all who wait.
type poll struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// Watch implements [store.Watcher]. What this process writes is announced at once. Writes of
// other processes wake all who wait, within about 25 ms.
func (s *Store) Watch(ctx context.Context, key string) (settled <-chan struct{}, stop func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, fmt.Errorf("sqlitestore: Watch: %w", watch.ErrClosed)
	}
	wake := s.watchers.Add(key)
	if s.poll == nil {
		s.startPolling()
	}
	return wake, func() { s.leave(key, wake) }, nil
}

func (s *Store) leave(key string, wake chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchers.Remove(key, wake)
	if s.watchers.Len() == 0 && s.poll != nil {
		s.poll.cancel()
		s.poll = nil
	}
}

// wake wakes those who wait for the key in this process.
func (s *Store) wake(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchers.Wake(key)
}

func (s *Store) startPolling() {
	ctx, cancel := context.WithCancel(context.Background())
	p := &poll{cancel, make(chan struct{})}
	s.poll = p
	go func() {
		defer close(p.done)
		tick := time.NewTicker(pollEvery)
		defer tick.Stop()
		for last := int64(-1); ; {
			version, err := s.dataVersion(ctx)
			if ctx.Err() != nil {
				return
			}
			// Who cannot ask wakes everybody: they find out for themselves.
			if err != nil || version != last {
				s.mu.Lock()
				s.watchers.WakeAll()
				s.mu.Unlock()
			}
			last = version
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
}

// dataVersion changes when another connection than that of the writer has written.
func (s *Store) dataVersion(ctx context.Context) (version int64, err error) {
	err = s.write.QueryRowContext(ctx, `PRAGMA data_version`).Scan(&version)
	return version, err
}

func (s *Store) stopPolling() {
	s.mu.Lock()
	s.closed = true
	p := s.poll
	s.poll = nil
	s.watchers.WakeAll()
	s.mu.Unlock()
	if p != nil {
		p.cancel()
		<-p.done
	}
}
