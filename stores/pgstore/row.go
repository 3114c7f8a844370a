package pgstore

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"

	"example.com/idempotency/internal/sqlrecord"
	"example.com/idempotency/store"
)

// errMoved says that a row was written between the look and the write that it led to.
var errMoved = errors.New("pgstore: row has changed")

// errSuppressed says that the server has taken a row and not written it.
var errSuppressed = errors.New("pgstore: the row was not written, and nobody has written it before: a trigger of the table suppresses that")

// A seenRow is a row as one statement has seen it.
type seenRow struct {
	sqlrecord.Row
	now        sqlrecord.Moment // when it was seen
	fresh      bool             // it was not there before
	replicated bool             // commits of the server wait for a standby
}

// scanRow reads the one row that a statement returns. Without one it is pgx.ErrNoRows.
func scanRow(row pgx.Row) (r seenRow, err error) {
	var answer []byte
	r.Row, err = sqlrecord.Scan(row, &answer, &r.now, &r.fresh, &r.replicated)
	r.Answer = answer
	return r, err
}

// firstRowOf returns the row of rows, or nil if there is none.
func firstRowOf(rows pgx.Rows, err error) (*seenRow, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	if !rows.Next() {
		return nil, rows.Err()
	}
	row, err := scanRow(rows)
	return &row, err
}

// look reads the row of a key, or returns [store.ErrNotFound]. An expired one is none.
func (s *Store) look(ctx context.Context, sql, key string) (seenRow, error) {
	r, err := scanRow(s.pool.QueryRow(ctx, sql, key))
	if errors.Is(err, pgx.ErrNoRows) || err == nil && r.Expired(r.now) {
		return r, store.ErrNotFound
	}
	return r, err
}

// write writes a row over the version that was seen, or returns errMoved. The statement may have more arguments.
func (s *Store) write(ctx context.Context, sql, key string, r *sqlrecord.Row, more ...any) error {
	args := append([]any{key, s.channel, r.Version}, r.Values()...)
	n, err := s.settle(ctx, sql, append(args, more...)...)
	if err == nil && n == 0 {
		err = errMoved
	}
	return err
}

// settle runs a statement that ends with the text settled, and returns how many rows it wrote.
func (s *Store) settle(ctx context.Context, sql string, args ...any) (n int64, err error) {
	var told int64
	err = s.pool.QueryRow(ctx, sql, args...).Scan(&n, &told)
	return n, err
}

// change lets decide change the row of a key, and writes it. Somebody who writes at the same time
// makes it look again. The row that decide sees has its answer if withAnswer is set. If there is nothing
// to change, an earlier call has done it, and that becomes as durable as a change.
func (s *Store) change(
	ctx context.Context, key string, withAnswer bool, decide func(r *sqlrecord.Row, now sqlrecord.Moment) (changed bool, err error),
) error {
	sql := s.sql.look
	if withAnswer {
		sql = s.sql.lookAnswer
	}
	for seen := int64(0); ; {
		r, err := s.look(ctx, sql, key)
		if err != nil {
			return err
		}
		if r.Version == seen {
			return errSuppressed
		}
		seen = r.Version
		changed, err := decide(&r.Row, r.now)
		switch {
		case err != nil:
			return err
		case !changed:
			return s.confirm(ctx, &r)
		}
		if err := s.write(ctx, s.sql.write, key, &r.Row); !errors.Is(err, errMoved) {
			return err
		}
	}
}

// appendTags appends tags to arguments: as many as a claim has at most, of which some are empty.
func appendTags(args []any, tags []store.Tag) []any {
	for i := range store.MaxTags {
		tag := []byte{}
		if i < len(tags) && !slices.Contains(tags[:i], tags[i]) { // a statement writes a row once
			tag = tags[i][:]
		}
		args = append(args, tag)
	}
	return args
}
