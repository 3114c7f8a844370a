package pgstore

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
)

// lookAhead is how many expired records a sweep looks up at once.
const lookAhead = 50_000

// A sweeper knows which records are to be removed next. While an old snapshot is open, the index keeps the
// entries of records that were removed, so that each look from its start would walk over all of them again.
type sweeper struct {
	mu       sync.Mutex
	due      []string // where expired records were, as the last look has found them
	from     int64    // the hour in which that look has ended
	ended    bool     // it has found the last one
	progress bool     // something was removed since
	tagsFrom string   // the record behind which the next look at tags begins
}

// Sweep removes expired records, at most n, and returns how many it has removed. A record is
// removed in the hour after its end. Several processes may sweep at once, and each removes others.
// Run it every few minutes, with a small n again and again while it removes n: a statement that
// removes 10,000 takes about a fifth of a second.
func (s *Store) Sweep(ctx context.Context, n int) (removed int64, err error) {
	err = calls.Try(ctx, "Sweep", func() error {
		for removed < int64(n) {
			due, err := s.sweepNext(ctx, n-int(removed))
			if err != nil {
				return err
			}
			if len(due) == 0 {
				return s.sweepTags(ctx)
			}
			var gone int64
			if err := s.pool.QueryRow(ctx, s.sql.sweep, `{"`+strings.Join(due, `","`)+`"}`).Scan(&gone); err != nil {
				return err
			}
			removed += gone
			s.sweeper.mu.Lock()
			s.sweeper.progress = s.sweeper.progress || gone > 0
			s.sweeper.mu.Unlock()
		}
		return nil
	})
	return removed, err
}

// sweepNext returns where the next records are that may be removed, at most n. It returns none once,
// when all were returned, and then begins again.
func (s *Store) sweepNext(ctx context.Context, n int) ([]string, error) {
	w := &s.sweeper
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.due) == 0 {
		if w.from > 0 && (w.ended || !w.progress) {
			w.from = 0
			return nil, nil
		}
		rows, err := s.pool.Query(ctx, s.sql.sweepable, w.from, int64(lookAhead))
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		for rows.Next() {
			var at string
			if err := rows.Scan(&at, &w.from); err != nil {
				return nil, err
			}
			w.due = append(w.due, at)
		}
		if err := rows.Err(); err != nil {
			return nil, err
		}
		w.ended, w.progress = len(w.due) < lookAhead, false
	}
	next := w.due[:min(n, len(w.due))]
	w.due = w.due[len(next):]
	return next, nil
}

// lookAtTags is at how many tags a sweep looks that finds no more records.
const lookAtTags = 10_000

// sweepTags removes some tags whose records are gone. It goes on where the one before has ended.
func (s *Store) sweepTags(ctx context.Context) error {
	if s.tagless != nil {
		return nil
	}
	w := &s.sweeper
	w.mu.Lock()
	defer w.mu.Unlock()
	err := s.pool.QueryRow(ctx, s.sql.sweepTags, w.tagsFrom, int64(lookAtTags)).Scan(&w.tagsFrom)
	if errors.Is(err, pgx.ErrNoRows) {
		w.tagsFrom, err = "", nil
	}
	return err
}
