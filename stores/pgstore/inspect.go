package pgstore

import (
	"context"

	"example.com/idempotency/internal/sqlrecord"
	"example.com/idempotency/store"
)

// Get implements [store.Inspector].
func (s *Store) Get(ctx context.Context, key string) (store.Record, error) {
	return s.get(ctx, "Get", s.sql.look, key)
}

// GetAnswer implements [store.Inspector].
func (s *Store) GetAnswer(ctx context.Context, key string) (store.Record, error) {
	return s.get(ctx, "GetAnswer", s.sql.lookAnswer, key)
}

func (s *Store) get(ctx context.Context, call, sql, key string) (out store.Record, err error) {
	err = calls.Try(ctx, call, func() error {
		r, err := s.look(ctx, sql, key)
		if err == nil {
			out, err = r.SeeAll(r.now)
		}
		return err
	})
	return out, err
}

// Resolve implements [store.Inspector].
func (s *Store) Resolve(ctx context.Context, key string, seen store.Seen, settled store.Settlement) error {
	if settled.Completion != nil && len(settled.Completion.Answer) > sqlrecord.MaxValue {
		return store.ErrTooLarge
	}
	return s.tryInTurn(ctx, "Resolve", func() error {
		return s.change(ctx, key, settled.Completion != nil, func(r *sqlrecord.Row, now sqlrecord.Moment) (bool, error) {
			return r.Resolve(seen, settled, now)
		})
	})
}

// Forget implements [store.Inspector].
func (s *Store) Forget(ctx context.Context, key string, seen store.Seen) error {
	return s.tryInTurn(ctx, "Forget", func() error {
		for {
			r, err := s.look(ctx, s.sql.look, key)
			if may, err := r.Forget(seen, r.now, err); err != nil || !may {
				return err
			}
			var gone int64
			err = s.pool.QueryRow(ctx, s.sql.forget, key, r.Version).Scan(&gone)
			if err != nil || gone > 0 {
				return err
			}
		}
	})
}
