package pgstore

import (
	"context"

	"example.com/idempotency/internal/sqlrecord"
	"example.com/idempotency/store"
)

// List implements [store.Lister]. A call reads a thousand records at most. The records that
// hold something are in an index of their own, which is part of the row: it loses none.
func (s *Store) List(ctx context.Context, q store.Query) (page store.Page, err error) {
	at, err := sqlrecord.ParseCursor(&q)
	if err != nil {
		return page, err
	}
	err = calls.Try(ctx, "List", func() error {
		pager := sqlrecord.NewPager(q, at)
		sql, args := s.sql.list, []any{at.Key, int64(pager.Limit)}
		if q.Holding {
			sql, args = s.sql.holding, []any{int64(at.Since), at.Key, int64(pager.Limit)}
		}
		rows, err := s.pool.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		page, err = pager.Read(rows)
		return err
	})
	return page, err
}
