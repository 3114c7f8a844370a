package pgstore

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/idempotency/internal/sqlrecord"
	"example.com/idempotency/store"
)

// Claim implements [store.Store].
func (s *Store) Claim(ctx context.Context, key string, c store.Claim) (store.Record, error) {
	if s.tagless != nil {
		c.Tags = nil
	}
	var out store.Record
	err := calls.Try(ctx, "Claim", func() (err error) {
		out, err = s.claim(ctx, key, c)
		return err
	})
	return out, err
}

func (s *Store) claim(ctx context.Context, key string, c store.Claim) (store.Record, error) {
	var row *seenRow
	if s.oneCommit != "" && c.MayBeLost && !s.met.has(key) {
		var out store.Record
		var err error
		if out, row, err = s.claimOpen(ctx, key, c); err != nil || out.State != 0 {
			return out, err
		}
	}
	return s.claimRow(ctx, key, c, row, s.oneCommit == "")
}

// claimRow makes the claim a record, or returns that of the key. The caller may have read a row of it. Unless it
// says that no other run has a transaction that is a claim of the key, that is found out, too.
func (s *Store) claimRow(ctx context.Context, key string, c store.Claim, read *seenRow, alone bool) (store.Record, error) {
	async := s.async && c.MayBeLost
	args := s.claimArgs(key, c)
	if len(c.Tags) > 0 {
		args = appendTags(args, c.Tags)
	}
	if !alone {
		args = append(args, s.lockOf(key))
	}
	insert := s.sql.claims[claimKind{async, !alone, len(c.Tags) > 0}]
	known := s.met.has(key)
	for seen, misses := int64(0), 0; ; {
		var r seenRow
		var err error
		switch {
		case read != nil:
			r, read = *read, nil
		case known:
			r, err = scanRow(s.pool.QueryRow(ctx, s.sql.meet, args[:2]...))
		default:
			r, err = scanRow(s.pool.QueryRow(ctx, insert, args...))
		}
		if errors.Is(err, pgx.ErrNoRows) {
			// The row that was known is gone. Or another claim has inserted one while the statement
			// ran, which sees it now.
			known = false
			misses++
			switch {
			case !alone && misses > 1: // or a transaction has the key
				return s.inUseUnseen(key, c), nil
			case misses > maxTries:
				return store.Record{}, errSuppressed
			}
			continue
		}
		if err != nil {
			return store.Record{}, err
		}
		s.met.add(key)
		if r.fresh {
			out := granted(&r)
			out.MayBeLost = async
			return out, nil
		}
		if r.Version == seen {
			return inUse(&r, c.Fingerprint), nil
		}
		seen = r.Version
		var out store.Record
		if r.Expired(r.now) {
			r.Row = sqlrecord.New(c, r.now)
			r.Version = seen
			out = granted(&r)
		} else {
			var changed bool
			if out, changed, err = r.Claim(c, r.now); err == nil && !changed && out.State == store.Completed {
				err = s.confirm(ctx, &r)
			}
			if err != nil || !changed {
				return out, err
			}
		}
		takeOver, tags := s.sql.takeOver, []any(nil)
		if len(r.Tags) > 0 {
			takeOver, tags = s.sql.takeOverTagged, appendTags(nil, r.Tags)
		}
		if err := s.write(ctx, takeOver, key, &r.Row, tags...); !errors.Is(err, errMoved) {
			return out, err
		}
	}
}

// granted is what a claim gets that has made the record.
func granted(r *seenRow) store.Record {
	out := r.See(r.now)
	out.Mine, out.Blank = true, true
	return out
}

// inUse is what a claim gets while another one is changing the record, or while the transaction of
// a run has locked it: the run lives, whatever is left of its lease. A record that has been released
// or has expired is being claimed. Nobody knows by which payload, so it is not said to be another one
// than the caller's, who could have had it.
func inUse(r *seenRow, fp store.Fingerprint) store.Record {
	out := r.See(r.now)
	switch expired := r.Expired(r.now); {
	case out.State == store.Held && !expired:
		return out
	case out.State == store.Released || expired:
		out.Fingerprint = fp
	}
	out.State, out.Lease, out.TTL = store.Claimed, max(out.Lease, time.Second), max(out.TTL, time.Second)
	out.Status, out.Size, out.Answer = 0, 0, nil
	return out
}

// claimArgs are the arguments of a claim. The first two are those of meet.
func (s *Store) claimArgs(key string, c store.Claim) []any {
	kept := sqlrecord.Kept(store.Claimed, c.Hold, c.HoldEnds, c.Retention)
	return []any{
		key, c.Fingerprint[:], c.Owner[:], c.Hold, c.HoldEnds, c.Watch, int64(sqlrecord.Blank),
		sqlrecord.Micros(c.Lease), sqlrecord.Micros(c.Retention), sqlrecord.Micros(kept),
		c.Label, sqlrecord.Full(store.AppendNote(nil, c.Note)), sqlrecord.Full(c.SealedKey),
	}
}

// Renew implements [store.Store]. While a transaction of the run keeps the record locked,
// nobody can take it over, and there is nothing to renew.
func (s *Store) Renew(ctx context.Context, key string, o store.Owner) error {
	return calls.Try(ctx, "Renew", func() error {
		if over, err := s.onOpen(key, o, func(c *openClaim) (bool, error) { return c.renew(ctx) }); over {
			return err
		}
		if s.locked.Renew(key, o) {
			var locked, owns bool
			if err := s.pool.QueryRow(ctx, s.sql.isLocked, key, o[:]).Scan(&locked); err != nil {
				return err
			}
			if err := s.pool.QueryRow(ctx, s.sql.ownsRow, key, o[:]).Scan(&owns); err != nil {
				return err
			}
			if locked && owns {
				return s.flush(ctx)
			}
		}
		tag, err := s.pool.Exec(ctx, s.sql.touch, key, o[:])
		if err != nil || tag.RowsAffected() > 0 {
			return err
		}
		var owns bool
		if err = s.pool.QueryRow(ctx, s.sql.isOwner, key, o[:]).Scan(&owns); err == nil {
			err = store.ErrNotOwner
			if owns {
				err = errRowLocked
			}
		}
		return err
	})
}

// catchUp makes a renewal that was due while a transaction kept the record locked: without the lock,
// the lease may be over.
func (s *Store) catchUp(ctx context.Context, key string, o store.Owner) {
	_, _ = s.pool.Exec(ctx, s.sql.catchUp, key, o[:]) // the next renewal reports what is wrong
}

// flush makes durable what may not be yet.
func (s *Store) flush(ctx context.Context) error {
	if !s.async {
		return nil
	}
	return s.emit(ctx)
}

// confirm returns nil once what a row says is as durable as a commit that was acknowledged. Where commits
// wait for a standby, one whose client has given up is visible before the standby has it.
func (s *Store) confirm(ctx context.Context, r *seenRow) error {
	if !r.replicated {
		return nil
	}
	return s.emit(ctx)
}

// emit makes a commit that touches no row. With it, all earlier ones are durable.
func (s *Store) emit(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, s.sql.emit)
	return err
}

// Complete implements [store.Store].
func (s *Store) Complete(ctx context.Context, key string, o store.Owner, done store.Completion) error {
	if len(done.Answer) > sqlrecord.MaxValue {
		return store.ErrTooLarge
	}
	return s.tryInTurn(ctx, "Complete", func() error {
		if over, err := s.onOpen(key, o, func(c *openClaim) (bool, error) { return c.complete(ctx, done) }); over {
			return err
		}
		n, err := s.settle(ctx, s.sql.complete, s.completeArgs(key, o, done)...)
		if err != nil || n > 0 {
			return err
		}
		return s.asOwner(ctx, key, func(r *sqlrecord.Row, now sqlrecord.Moment) (bool, error) {
			return r.Complete(o, done, now)
		})
	})
}

// fencedArgs are the arguments of a completion in a transaction.
func (s *Store) fencedArgs(key string, o store.Owner, c store.Completion) []any {
	return append(s.completeArgs(key, o, c), s.fence.timeline())
}

func (s *Store) completeArgs(key string, o store.Owner, c store.Completion) []any {
	return []any{key, s.channel, o[:], sqlrecord.Micros(c.TTL), int64(c.Status), sqlrecord.Full(c.Answer)}
}

// Release implements [store.Store].
func (s *Store) Release(ctx context.Context, key string, o store.Owner, rel store.Release) error {
	keep := rel.Keep
	if keep <= 0 {
		keep = store.Forever // that is, for the retention
	}
	return s.tryInTurn(ctx, "Release", func() error {
		if over, err := s.onOpen(key, o, func(c *openClaim) (bool, error) { return c.release(ctx, rel) }); over {
			return err
		}
		n, err := s.settle(ctx, s.sql.release, key, s.channel, o[:], rel.Undone, sqlrecord.Micros(keep), rel.Unbind, rel.Unused)
		if err != nil || n > 0 {
			return err
		}
		return s.asOwner(ctx, key, func(r *sqlrecord.Row, now sqlrecord.Moment) (bool, error) {
			return r.Release(o, rel, now)
		})
	})
}

// Hold implements [store.Store].
func (s *Store) Hold(ctx context.Context, key string, o store.Owner, note []byte) error {
	return s.tryInTurn(ctx, "Hold", func() error {
		if err := s.needRecord(ctx, key, o); err != nil {
			return err
		}
		return s.asOwner(ctx, key, func(r *sqlrecord.Row, now sqlrecord.Moment) (bool, error) {
			return r.Hold(o, note, now)
		})
	})
}

// SaveStep implements [store.StepStore].
func (s *Store) SaveStep(ctx context.Context, key string, o store.Owner, name string, value []byte) error {
	if len(value) > sqlrecord.MaxValue {
		return store.ErrTooLarge
	}
	if s.locked.Has(key, o) {
		return errLocked
	}
	return s.tryInTurn(ctx, "SaveStep", func() error {
		if err := s.needRecord(ctx, key, o); err != nil {
			return err
		}
		tag, err := s.pool.Exec(ctx, s.sql.step, key, o[:], sqlrecord.Step(name, value))
		if err == nil && tag.RowsAffected() == 0 {
			err = store.ErrNotOwner
		}
		return err
	})
}

// errLocked is what a step gets in a transaction that sees the past, which keeps the record locked.
var errLocked = errors.New("pgstore: the transaction of the run keeps its record locked: take the step before it, or at READ COMMITTED")

// asOwner is change for a caller to whom a missing record says that it owns none.
func (s *Store) asOwner(ctx context.Context, key string, decide func(r *sqlrecord.Row, now sqlrecord.Moment) (bool, error)) error {
	err := s.change(ctx, key, false, decide)
	if errors.Is(err, store.ErrNotFound) {
		err = store.ErrNotOwner
	}
	return err
}
