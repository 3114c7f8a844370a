package sqlitestore

import (
	"context"
	"database/sql"

	"example.com/idempotency/internal/sqlrecord"
	"example.com/idempotency/store"
)

const findSQL = `SELECT key, 0, ` + sqlrecord.Columns + `, ? FROM idempotency_records_tags
	JOIN idempotency_records ON key = record AND fingerprint = bound_to
	WHERE tag = ? AND record > ? ORDER BY record LIMIT ?`

// putTags writes the tags that a claim has brought, in place of those of earlier ones.
func putTags(ctx context.Context, tx *sql.Tx, key string, r *sqlrecord.Row) error {
	_, err := tx.ExecContext(ctx, `DELETE FROM idempotency_records_tags WHERE record = ?`, key)
	for _, t := range r.Tags {
		if err == nil {
			_, err = tx.ExecContext(ctx, `INSERT OR REPLACE INTO idempotency_records_tags VALUES (?, ?, ?)`, t[:], key, r.Fingerprint[:])
		}
	}
	return err
}

// KeepsTags implements [store.Finder].
func (s *Store) KeepsTags() error { return nil }

// Find implements [store.Finder]. A call reads a thousand records at most.
func (s *Store) Find(ctx context.Context, t store.Tag, q store.Query) (page store.Page, err error) {
	at, err := sqlrecord.ParseCursor(&q, t)
	if err != nil {
		return page, err
	}
	pager := sqlrecord.NewPager(q, at, t)
	return s.page(ctx, "Find", pager, findSQL, int64(now()), t[:], at.Key, pager.Limit)
}
