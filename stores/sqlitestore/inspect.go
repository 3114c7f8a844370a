package sqlitestore

import (
	"context"
	"database/sql"

	"example.com/idempotency/internal/sqlrecord"
	"example.com/idempotency/store"
)

// Get implements [store.Inspector].
func (s *Store) Get(ctx context.Context, key string) (store.Record, error) {
	return s.get(ctx, "Get", lookSQL, key)
}

// GetAnswer implements [store.Inspector].
func (s *Store) GetAnswer(ctx context.Context, key string) (store.Record, error) {
	return s.get(ctx, "GetAnswer", lookAnswerSQL, key)
}

func (s *Store) get(ctx context.Context, call, sqlText, key string) (out store.Record, err error) {
	err = s.try(ctx, call, func() error {
		r, err := look(ctx, s.read, sqlText, key)
		if err == nil {
			out, err = r.SeeAll(now())
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
	return s.try(ctx, "Resolve", func() error {
		return s.change(ctx, key, lookAnswerSQL, func(r *sqlrecord.Row, now sqlrecord.Moment) (bool, error) {
			return r.Resolve(seen, settled, now)
		})
	})
}

// Forget implements [store.Inspector].
func (s *Store) Forget(ctx context.Context, key string, seen store.Seen) error {
	return s.try(ctx, "Forget", func() error {
		return s.transact(ctx, func(tx *sql.Tx) error {
			r, err := look(ctx, tx, lookSQL, key)
			if may, err := r.Forget(seen, now(), err); err != nil || !may {
				return err
			}
			_, err = tx.ExecContext(ctx, `DELETE FROM idempotency_records WHERE key = ?`, key)
			return err
		}, key)
	})
}

// Sweep removes expired records, at most n, and returns how many it has removed. Run it every few
// minutes, with a small n again and again while it removes n: it is a writer like every other. Inside the
// transaction of a run it returns [store.ErrTransactionOpen].
func (s *Store) Sweep(ctx context.Context, n int) (removed int64, err error) {
	err = s.try(ctx, "Sweep", func() error {
		if s.hasJoined(ctx) {
			return errInside
		}
		result, err := s.write.ExecContext(ctx, `DELETE FROM idempotency_records WHERE rowid IN (
			SELECT rowid FROM idempotency_records WHERE expires <= ? ORDER BY expires LIMIT ?)`, int64(now()), max(n, 0))
		if err == nil {
			removed, err = result.RowsAffected()
		}
		return err
	})
	return removed, err
}
