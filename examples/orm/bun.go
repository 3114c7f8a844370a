package orm

import (
	"context"
	"database/sql"

	"github.com/uptrace/bun"

	"example.com/idempotency/stores/pgstore"
)

// BunShop uses bun. Its BUN embeds the *sql.DB.
type BunShop struct {
	Store *pgstore.Store
	BUN   *bun.DB
}

// Create gives each query of bun the transaction. A query without Conn is not part of it.
func (s *BunShop) Create(ctx context.Context, o Order, l Line) error {
	return s.Store.InSQLTx(ctx, s.BUN.DB, nil, func(tx *sql.Tx) error {
		if _, err := s.BUN.NewInsert().Conn(tx).Model(&o).Exec(ctx); err != nil {
			return err
		}
		_, err := s.BUN.NewInsert().Conn(tx).Model(&l).Exec(ctx)
		return err
	})
}

// CreateTooEarly begins a transaction of bun.
func (s *BunShop) CreateTooEarly(ctx context.Context, o Order, l Line) error {
	return s.BUN.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.NewInsert().Model(&o).Exec(ctx); err != nil {
			return err
		}
		_, err := tx.NewInsert().Model(&l).Exec(ctx)
		return err
	})
}
