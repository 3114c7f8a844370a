package sqlitestore

import (
	"context"
	"database/sql"
	"errors"

	"example.com/idempotency/internal/sqlrecord"
	"example.com/idempotency/store"
)

// Claim implements [store.Store].
func (s *Store) Claim(ctx context.Context, key string, c store.Claim) (out store.Record, err error) {
	err = s.try(ctx, "Claim", func() error {
		if open, ok := s.opened.Load(key); ok {
			out = open.(*openClaim).meet(&c, now())
			return nil
		}
		// Most claims that are not the first change nothing, and need no writer.
		var changes bool
		if out, changes, err = s.meet(ctx, key, c); err != nil || !changes {
			return err
		}
		if s.hasJoined(ctx) {
			return errInside
		}
		if s.oneCommit && c.MayBeLost && out.State == 0 {
			if out, err = s.claimOpen(ctx, key, c); err != nil || out.State != 0 {
				return err
			}
		}
		return s.transact(ctx, func(tx *sql.Tx) error {
			r, err := look(ctx, tx, claimSQL, c.Fingerprint[:], key)
			at := now()
			switch {
			case errors.Is(err, store.ErrNotFound):
				r = sqlrecord.New(c, at)
				out = r.See(at)
				out.Mine, out.Blank = true, true
			case err != nil:
				return err
			default:
				var changed bool
				if out, changed, err = r.Claim(c, at); err != nil || !changed {
					return err
				}
			}
			return put(ctx, tx, key, &r)
		}, key)
	})
	if err != nil {
		return store.Record{}, err
	}
	return out, nil
}

// meet is what a claim finds, and whether it changes something.
func (s *Store) meet(ctx context.Context, key string, c store.Claim) (out store.Record, changes bool, err error) {
	r, err := look(ctx, s.read, claimSQL, c.Fingerprint[:], key)
	if errors.Is(err, store.ErrNotFound) {
		return out, true, nil
	}
	if err != nil {
		return out, false, err
	}
	return r.Claim(c, now())
}

// Renew implements [store.Store]. While the run has a transaction, nobody can take over.
func (s *Store) Renew(ctx context.Context, key string, o store.Owner) error {
	if s.locked.Renew(key, o) {
		return ctx.Err()
	}
	return s.asOwner(ctx, "Renew", key, o, func(r *sqlrecord.Row, now sqlrecord.Moment) (bool, error) {
		return r.Renew(o, now)
	})
}

// Complete implements [store.Store].
func (s *Store) Complete(ctx context.Context, key string, o store.Owner, c store.Completion) error {
	if len(c.Answer) > sqlrecord.MaxValue {
		return store.ErrTooLarge
	}
	return s.asOwner(ctx, "Complete", key, o, func(r *sqlrecord.Row, now sqlrecord.Moment) (bool, error) {
		return r.Complete(o, c, now)
	})
}

// Release implements [store.Store].
func (s *Store) Release(ctx context.Context, key string, o store.Owner, rel store.Release) error {
	if rel.Undone && s.dropOpen(ctx, key, o) {
		return nil
	}
	return s.asOwner(ctx, "Release", key, o, func(r *sqlrecord.Row, now sqlrecord.Moment) (bool, error) {
		return r.Release(o, rel, now)
	})
}

// Hold implements [store.Store].
func (s *Store) Hold(ctx context.Context, key string, o store.Owner, note []byte) error {
	return s.asOwner(ctx, "Hold", key, o, func(r *sqlrecord.Row, now sqlrecord.Moment) (bool, error) {
		return r.Hold(o, note, now)
	})
}

// SaveStep implements [store.StepStore].
func (s *Store) SaveStep(ctx context.Context, key string, o store.Owner, name string, value []byte) error {
	if len(value) > sqlrecord.MaxValue {
		return store.ErrTooLarge
	}
	if s.locked.Has(key, o) {
		return errJoined
	}
	return s.asOwner(ctx, "SaveStep", key, o, func(r *sqlrecord.Row, _ sqlrecord.Moment) (bool, error) {
		return r.SaveStep(o, name, value)
	})
}

// asOwner changes a row, or makes that of an open claim, for a caller to whom a missing record says that it owns none.
func (s *Store) asOwner(
	ctx context.Context, call, key string, o store.Owner, decide func(r *sqlrecord.Row, now sqlrecord.Moment) (bool, error),
) error {
	return s.try(ctx, call, func() error {
		if c := s.openOf(key, o); c != nil {
			defer c.mu.Unlock()
			return c.change(ctx, decide)
		}
		err := s.change(ctx, key, lookSQL, decide)
		if errors.Is(err, store.ErrNotFound) {
			err = store.ErrNotOwner
		}
		return err
	})
}
