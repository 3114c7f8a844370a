package pgstore

import (
	"context"
	"time"

	"example.com/idempotency/internal/giveup"
)

// lockPatience is how long the lock of a key is waited for at most. Those who wait for the key ask again by
// then.
const lockPatience = 10 * time.Second

// awaitLock wakes those who wait for a key when the transaction ends that is its claim. It leaves half of the
// turns, and the only one, to calls that somebody waits for: among these is the end of the transaction. Without
// a turn, those who wait for the key ask again and again.
func (s *Store) awaitLock(key string) {
	if !s.listens || s.listener.isDeaf() {
		return
	}
	if _, waits := s.awaited.LoadOrStore(key, true); waits {
		return
	}
	if s.waits.Add(1) > int64(cap(s.turns)/2) {
		s.waits.Add(-1)
		s.awaited.Delete(key)
		return
	}
	go func() {
		defer s.awaited.Delete(key)
		defer s.waits.Add(-1)
		ctx, cancel := context.WithTimeout(s.life, lockPatience)
		defer cancel()
		_ = giveup.Safely(func() error {
			return s.tryInTurn(ctx, "Watch", func() error {
				_, err := s.pool.Exec(ctx, s.sql.awaitLock, s.lockOf(key))
				return err
			})
		})
		s.listener.watch.Wake(key)
	}()
}
