package sqlitestore

import (
	"context"
	"errors"
	"fmt"

	"example.com/idempotency/internal/watch"
)

// Watch implements [store.Watcher]. What this process writes is announced at once. Writes of
// other processes wake all who wait, within about 25 ms.
func (s *Store) Watch(ctx context.Context, key string) (settled <-chan struct{}, stop func(), err error) {
	settled, stop, err = s.watch.Watch(ctx, key)
	if errors.Is(err, watch.ErrClosed) {
		err = fmt.Errorf("sqlitestore: Watch: %w", err)
	}
	return settled, stop, err
}
