package pgstore

import (
	"context"
	"errors"
	"fmt"

	"example.com/idempotency/internal/watch"
)

// Watch implements [store.Watcher]. All watches of a store share one connection, which is
// not one of the pool. The channel is nil in a store [WithoutListen], and where LISTEN hears nothing: there,
// the first call returns an error.
func (s *Store) Watch(ctx context.Context, key string) (settled <-chan struct{}, stop func(), err error) {
	if !s.listens {
		return nil, func() {}, nil
	}
	if !s.listener.isDeaf() {
		settled, stop, err = s.listener.watch.Watch(ctx, key)
	}
	switch {
	case s.listener.isDeaf() && s.listener.told.Swap(true):
		return nil, func() {}, nil
	case s.listener.isDeaf():
		return nil, nil, errDeaf
	case errors.Is(err, watch.ErrClosed):
		err = fmt.Errorf("pgstore: Watch: %w", err)
	}
	return settled, stop, err
}
