package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"example.com/idempotency/internal/sqlrecord"
	"example.com/idempotency/store"
)

const (
	lookSQL       = `SELECT ` + sqlrecord.Columns + `, NULL FROM idempotency_records WHERE key = ?`
	lookAnswerSQL = `SELECT ` + sqlrecord.Columns + `, answer FROM idempotency_records WHERE key = ?`
	// claimSQL reads the answer only for those whose fingerprint it is bound to.
	claimSQL = `SELECT ` + sqlrecord.Columns + `, CASE WHEN fingerprint = ? THEN answer END FROM idempotency_records WHERE key = ?`
)

// writeSQL writes a whole row.
var writeSQL = `INSERT OR REPLACE INTO idempotency_records (key, version, state, attempt, owner, fingerprint, hold, hold_ends, watched,
	marks, lease, retention, since, touched, expires, label, notes, sealed_key, steps, status, answer) VALUES (?` + strings.Repeat(", ?", 20) + `)`

// A querier is a transaction, or the connections that read.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// look reads the row of a key, or returns [store.ErrNotFound]. An expired one is none.
func look(ctx context.Context, q querier, sqlText string, args ...any) (sqlrecord.Row, error) {
	r, err := lookEven(ctx, q, sqlText, args...)
	if err == nil && r.Expired(now()) {
		err = store.ErrNotFound
	}
	return r, err
}

// lookEven is look for the transaction of a run. Its row may have expired meanwhile, and nobody else has got it.
func lookEven(ctx context.Context, q querier, sqlText string, args ...any) (r sqlrecord.Row, err error) {
	var answer []byte
	r, err = sqlrecord.Scan(q.QueryRowContext(ctx, sqlText, args...), &answer)
	if errors.Is(err, sql.ErrNoRows) {
		err = store.ErrNotFound
	}
	r.Answer = answer
	// The driver makes nil of a value of no bytes.
	if answer == nil && sqlText != lookSQL && r.State == store.Completed && r.Size == 0 {
		r.Answer = []byte{}
	}
	return r, err
}

// change lets decide change the row of a key in a transaction, which no other writer disturbs.
func (s *Store) change(
	ctx context.Context, key, lookText string, decide func(r *sqlrecord.Row, now sqlrecord.Moment) (changed bool, err error),
) error {
	return s.transact(ctx, func(tx *sql.Tx) error {
		r, err := look(ctx, tx, lookText, key)
		if err != nil {
			return err
		}
		if changed, err := decide(&r, now()); err != nil || !changed {
			return err
		}
		return put(ctx, tx, key, &r)
	}, key)
}

// put writes a row, and the tags that a claim has brought.
func put(ctx context.Context, tx *sql.Tx, key string, r *sqlrecord.Row) error {
	_, err := tx.ExecContext(ctx, writeSQL, append([]any{key, r.Version + 1}, r.Values()...)...)
	if err == nil && len(r.Tags) > 0 {
		err = putTags(ctx, tx, key, r)
	}
	return err
}

// transact runs f in a transaction of the writer, and wakes those who wait for the key after it.
func (s *Store) transact(ctx context.Context, f func(tx *sql.Tx) error, key string) error {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := f(tx); err != nil {
		return err
	}
	if err := s.commit(tx); err != nil {
		return err
	}
	s.watch.Wake(key)
	return nil
}

// commit commits a transaction, unless it is one of a file that nobody finds again.
func (s *Store) commit(tx *sql.Tx) error {
	if err := s.inPlace(); err != nil {
		return err // the caller rolls back
	}
	return tx.Commit()
}
