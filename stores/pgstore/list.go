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
	pager := sqlrecord.NewPager(q, at)
	if q.Holding {
		return s.page(ctx, "List", pager, s.sql.holding, int64(at.Since), at.Key)
	}
	return s.page(ctx, "List", pager, s.sql.list, at.Key)
}

// page reads a page of the rows that a statement returns, whose last argument is how many.
func (s *Store) page(ctx context.Context, call string, pager *sqlrecord.Pager, sql string, args ...any) (page store.Page, err error) {
	args = append(args, int64(pager.Limit))
	err = calls.Try(ctx, call, func() error {
		pager := *pager // of this try
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

// KeepsTags implements [store.Finder]. A store keeps no tags in a table of a schema before 3, and without the rights on
// the table of tags.
func (s *Store) KeepsTags() error { return s.tagless }

// Find implements [store.Finder]. A call reads a thousand records at most.
func (s *Store) Find(ctx context.Context, t store.Tag, q store.Query) (page store.Page, err error) {
	if s.tagless != nil {
		return page, s.tagless
	}
	at, err := sqlrecord.ParseCursor(&q, t)
	if err != nil {
		return page, err
	}
	return s.page(ctx, "Find", sqlrecord.NewPager(q, at, t), s.sql.find, t[:], at.Key)
}
