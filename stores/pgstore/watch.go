package pgstore

import (
	"context"
	"errors"
	"fmt"

	"example.com/idempotency/internal/watch"
)

// errNoListen is what a watch returns in a store without LISTEN.
var errNoListen = errors.New("pgstore: Watch: the store was made WithoutListen")

// Watch implements [store.Watcher]. All watches of a store share one connection, which is
// not one of the pool.
func (s *Store) Watch(ctx context.Context, key string) (settled <-chan struct{}, stop func(), err error) {
	if !s.listens {
		return nil, nil, errNoListen
	}
	settled, stop, err = s.watch.Watch(ctx, key)
	if errors.Is(err, watch.ErrClosed) {
		err = fmt.Errorf("pgstore: Watch: %w", err)
	}
	return settled, stop, err
}
