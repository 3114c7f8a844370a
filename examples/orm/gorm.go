package orm

import (
	"context"
	"database/sql"

	"gorm.io/gorm"

	"example.com/idempotency/stores/pgstore"
)

// GORMShop uses GORM. DB is the handle with which GORM was opened:
//
//	db := pgstore.OpenDB(pool)
//	g, err := gorm.Open(postgres.New(postgres.Config{Conn: db}), &gorm.Config{})
type GORMShop struct {
	Store *pgstore.Store
	DB    *sql.DB
	GORM  *gorm.DB
}

// Create gives GORM the transaction. Its Transaction and its SavePoint work on the session that In
// returns, and make savepoints.
func (s *GORMShop) Create(ctx context.Context, o Order, l Line) error {
	return s.Store.InSQLTx(ctx, s.DB, nil, func(tx *sql.Tx) error {
		session := In(ctx, s.GORM, tx)
		if err := session.Create(&o).Error; err != nil {
			return err
		}
		return session.Create(&l).Error
	})
}

// In returns a session whose statements belong to tx.
func In(ctx context.Context, g *gorm.DB, tx *sql.Tx) *gorm.DB {
	session := g.Session(&gorm.Session{NewDB: true, Context: ctx})
	session.Statement.ConnPool = tx
	return session
}

// CreateTooEarly begins a transaction of GORM.
func (s *GORMShop) CreateTooEarly(ctx context.Context, o Order, l Line) error {
	return s.GORM.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		if err := tx.Create(&o).Error; err != nil {
			return err
		}
		return tx.Create(&l).Error
	})
}
