package redisstore

// What operators do with the records of a store.

import (
	"context"
	"errors"

	"example.com/idempotency/internal/redisproto"
	"example.com/idempotency/store"
)

// Get implements [store.Inspector].
func (s *Store) Get(ctx context.Context, key string) (store.Record, error) {
	r, _, err := s.server.look(ctx, s.prefix+key)
	return r, err
}

// GetAnswer implements [store.Inspector]. It goes past the scripts, which would copy the answer.
func (s *Store) GetAnswer(ctx context.Context, key string) (store.Record, error) {
	ttl, fields, err := s.server.fields(ctx, s.prefix+key)
	if err != nil {
		return store.Record{}, err
	}
	if len(fields) == 0 {
		return store.Record{}, store.ErrNotFound
	}
	r, err := redisproto.ParseRecord(ttl, fields)
	return r.Record, wrap(err)
}

// Resolve implements [store.Inspector].
func (s *Store) Resolve(ctx context.Context, key string, seen store.Seen, settled store.Settlement) error {
	name := s.prefix + key
	if seen.State != store.Held {
		seen.Attempt = 0 // which no record has
	}
	c := settled.Completion
	if c == nil { // Not durable: when a failover forgets it, the key stays held.
		_, err := s.change(ctx, key, redisproto.ResolveReleased(name, seen.Owner, seen.Attempt, s.listener.channel, settled.Note, settled.Undone), false, store.ErrChanged)
		return err
	}
	a, err := completionOf(*c)
	if err != nil {
		return err
	}
	_, err = s.change(ctx, key, redisproto.ResolveCompleted(name, seen.Owner, seen.Attempt, s.listener.channel, settled.Note, a), true, store.ErrChanged)
	return err
}

// Forget implements [store.Inspector].
func (s *Store) Forget(ctx context.Context, key string, seen store.Seen) error {
	name := s.prefix + key
	call := redisproto.Forget(name, seen.Owner, seen.Attempt, seen.State)
	if seen.State == store.Corrupt {
		// The script knows only headers. Whether a record can be read is found out here.
		_, header, err := s.server.look(ctx, name)
		switch {
		case err == nil:
			return store.ErrChanged
		case errors.Is(err, store.ErrNotFound):
			return nil
		case !errors.Is(err, store.ErrCorrupt):
			return err
		}
		call = redisproto.ForgetUnread(name, header)
	}
	return s.server.update(ctx, call, false, store.ErrChanged)
}
