package sqlitestore

import (
	"context"

	"example.com/idempotency/internal/sqlrecord"
	"example.com/idempotency/store"
)

const (
	listSQL = `SELECT key, coalesce(in_doubt, 0), ` + sqlrecord.Columns + `, ? FROM idempotency_records
		WHERE key > ? ORDER BY key LIMIT ?`
	holdingSQL = `SELECT key, in_doubt, ` + sqlrecord.Columns + `, ? FROM idempotency_records
		WHERE in_doubt IS NOT NULL AND (in_doubt, key) > (?, ?) ORDER BY in_doubt, key LIMIT ?`
)

// List implements [store.Lister]. A call reads a thousand records at most. The records that
// hold something are in an index of their own, which is part of the row: it loses none.
func (s *Store) List(ctx context.Context, q store.Query) (page store.Page, err error) {
	at, err := sqlrecord.ParseCursor(&q)
	if err != nil {
		return page, err
	}
	pager := sqlrecord.NewPager(q, at)
	if q.Holding {
		return s.page(ctx, "List", pager, holdingSQL, int64(now()), int64(at.Since), at.Key, pager.Limit)
	}
	return s.page(ctx, "List", pager, listSQL, int64(now()), at.Key, pager.Limit)
}

// page reads a page of the rows that a statement returns.
func (s *Store) page(ctx context.Context, call string, pager *sqlrecord.Pager, text string, args ...any) (page store.Page, err error) {
	err = s.try(ctx, call, func() error {
		pager := *pager // of this try
		rows, err := s.read.QueryContext(ctx, text, args...)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		page, err = pager.Read(rows)
		return err
	})
	return page, err
}
