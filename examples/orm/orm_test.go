package orm_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"entgo.io/ent/dialect"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"example.com/idempotency"
	"example.com/idempotency/examples/orm"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/pgserver"
	"example.com/idempotency/stores/pgstore"
)

func TestMain(m *testing.M) { os.Exit(pgserver.Main(m)) }

// A library is what makes the shop of a test.
type library func(t *testing.T, s *pgstore.Store, pool *pgxpool.Pool, db *sql.DB) orm.Shop

var libraries = map[string]library{
	"GORM": func(t *testing.T, s *pgstore.Store, _ *pgxpool.Pool, db *sql.DB) orm.Shop {
		return &orm.GORMShop{Store: s, DB: db, GORM: openGORM(t, db)}
	},
	"bun": func(_ *testing.T, s *pgstore.Store, _ *pgxpool.Pool, db *sql.DB) orm.Shop {
		return &orm.BunShop{Store: s, BUN: bun.NewDB(db, pgdialect.New())}
	},
	"ent": func(_ *testing.T, s *pgstore.Store, _ *pgxpool.Pool, db *sql.DB) orm.Shop {
		return &orm.EntShop{Store: s, DB: db}
	},
	"sqlc": func(_ *testing.T, s *pgstore.Store, pool *pgxpool.Pool, _ *sql.DB) orm.Shop {
		return &orm.SQLCShop{Store: s, Pool: pool}
	},
}

func openGORM(t *testing.T, db *sql.DB) *gorm.DB {
	t.Helper()
	g, err := gorm.Open(postgres.New(postgres.Config{Conn: db}), &gorm.Config{Logger: logger.Discard})
	require.NoError(t, err)
	return g
}

// A backend is a database with the tables of a shop, and a store in it.
type backend struct {
	pool  *pgxpool.Pool
	db    *sql.DB
	store *pgstore.Store
}

func newBackend(t *testing.T) backend {
	t.Helper()
	config, err := pgxpool.ParseConfig(pgserver.Shared(t).DSN)
	require.NoError(t, err)
	schema := "shop_" + strings.ToLower(rand.Text())
	config.ConnConfig.RuntimeParams["search_path"] = schema
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	_, err = pool.Exec(t.Context(), "CREATE SCHEMA "+schema+";"+orm.Schema)
	require.NoError(t, err)
	require.NoError(t, pgstore.Migrate(t.Context(), pool))
	store, err := pgstore.New(t.Context(), pool)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	db := pgstore.OpenDB(pool)
	t.Cleanup(func() { _ = db.Close() })
	return backend{pool, db, store}
}

// rows returns how many rows a table has.
func (b backend) rows(t *testing.T, table string) (n int) {
	t.Helper()
	require.NoError(t, b.pool.QueryRow(context.Background(), "SELECT count(*) FROM "+table).Scan(&n))
	return n
}

// serve returns a server whose handler calls create, and then answers the status that is left for it,
// or 201.
func (b backend) serve(t *testing.T, quantity int64, create func(context.Context, orm.Order, orm.Line) error) (*guardtest.Server, *atomic.Int64) {
	t.Helper()
	guard := guardtest.NewGuard(t, b.store, idempotency.WithTransaction(true))
	fail := new(atomic.Int64)
	return guardtest.ServeHTTP1(t, guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o := orm.Order{ID: rand.Text(), Key: r.Header.Get("Idempotency-Key")}
		err := create(r.Context(), o, orm.Line{ID: rand.Text(), OrderID: o.ID, Item: "tea", Quantity: quantity})
		switch status := fail.Swap(0); {
		case status != 0:
			w.WriteHeader(int(status))
		case err != nil:
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		default:
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte(o.ID))
		}
	}))), fail
}

func onEach(t *testing.T, f func(t *testing.T, b backend, shop orm.Shop)) {
	for name, open := range libraries {
		t.Run(name, func(t *testing.T) {
			b := newBackend(t)
			f(t, b, open(t, b.store, b.pool, b.db))
		})
	}
}

func TestRowsCommitWithTheAnswer(t *testing.T) {
	onEach(t, func(t *testing.T, b backend, shop orm.Shop) {
		server, _ := b.serve(t, 2, func(ctx context.Context, o orm.Order, l orm.Line) error {
			err := shop.Create(ctx, o, l)
			require.Zero(t, b.rows(t, "orders")) // the handler has not answered yet
			return err
		})
		first := server.Do(t, guardtest.Call{Key: "k"})
		require.Equal(t, http.StatusCreated, first.Status, "%s", first.Body)
		guardtest.RequireReplay(t, first, server.Do(t, guardtest.Call{Key: "k"}))
		require.Equal(t, 1, b.rows(t, "orders WHERE id = '"+string(first.Body)+"'"))
		require.Equal(t, 1, b.rows(t, "orders JOIN lines ON order_id = orders.id"))
	})
}

// The first row of the order is inserted and the second is refused.
func TestErrorLeavesNoRow(t *testing.T) {
	onEach(t, func(t *testing.T, b backend, shop orm.Shop) {
		server, _ := b.serve(t, 0, shop.Create)
		first := server.Do(t, guardtest.Call{Key: "k"})
		require.Equal(t, http.StatusUnprocessableEntity, first.Status)
		require.Contains(t, string(first.Body), "lines_quantity_check")
		guardtest.RequireReplay(t, first, server.Do(t, guardtest.Call{Key: "k"}))
		require.Zero(t, b.rows(t, "orders"))
	})
}

func TestServerErrorLeavesNoRowAndRunsAgain(t *testing.T) {
	onEach(t, func(t *testing.T, b backend, shop orm.Shop) {
		server, fail := b.serve(t, 2, shop.Create)
		fail.Store(http.StatusInternalServerError)
		require.Equal(t, http.StatusInternalServerError, server.Do(t, guardtest.Call{Key: "k"}).Status)
		require.Zero(t, b.rows(t, "orders"))
		second := server.Do(t, guardtest.Call{Key: "k"})
		require.Equal(t, http.StatusCreated, second.Status, "%s", second.Body)
		require.Equal(t, 1, b.rows(t, "orders"))
		guardtest.RequireReplay(t, second, server.Do(t, guardtest.Call{Key: "k"}))
	})
}

// What each library calls a transaction is one of its own, and nobody can take it back. The guard
// believes that a run without a record has done nothing, so it runs again.
func TestTransactionOfTheLibraryMakesASecondOrder(t *testing.T) {
	onEach(t, func(t *testing.T, b backend, shop orm.Shop) {
		server, fail := b.serve(t, 2, shop.CreateTooEarly)
		fail.Store(http.StatusInternalServerError)
		require.Equal(t, http.StatusInternalServerError, server.Do(t, guardtest.Call{Key: "k"}).Status)
		require.Equal(t, 1, b.rows(t, "orders"))
		require.Equal(t, http.StatusCreated, server.Do(t, guardtest.Call{Key: "k"}).Status)
		require.Equal(t, 2, b.rows(t, "orders"))
	})
}

// Nor does the store see it inside its own transaction.
func TestTransactionOfTheLibraryInsideInSQLTxIsStillItsOwn(t *testing.T) {
	onEach(t, func(t *testing.T, b backend, shop orm.Shop) {
		server, fail := b.serve(t, 2, func(ctx context.Context, o orm.Order, l orm.Line) error {
			return b.store.InSQLTx(ctx, b.db, nil, func(*sql.Tx) error { return shop.CreateTooEarly(ctx, o, l) })
		})
		fail.Store(http.StatusInternalServerError)
		require.Equal(t, http.StatusInternalServerError, server.Do(t, guardtest.Call{Key: "k"}).Status)
		require.Equal(t, 1, b.rows(t, "orders"))
	})
}

func TestTransactionOfGORMInTheSessionIsASavepoint(t *testing.T) {
	b := newBackend(t)
	g := openGORM(t, b.db)
	server, _ := b.serve(t, 2, func(ctx context.Context, o orm.Order, l orm.Line) error {
		return b.store.InSQLTx(ctx, b.db, nil, func(tx *sql.Tx) error {
			session := orm.In(ctx, g, tx)
			refused := l
			refused.Quantity = 0
			require.Error(t, session.Transaction(func(tx *gorm.DB) error {
				require.NoError(t, tx.Create(&o).Error)
				return tx.Create(&refused).Error
			}))
			return session.Transaction(func(tx *gorm.DB) error {
				require.NoError(t, tx.Create(&o).Error)
				return tx.Create(&l).Error
			})
		})
	})
	require.Equal(t, http.StatusCreated, server.Do(t, guardtest.Call{Key: "k"}).Status)
	require.Equal(t, 1, b.rows(t, "orders"))
	require.Equal(t, 1, b.rows(t, "lines"))
}

func TestTransactionOfEntIsASavepoint(t *testing.T) {
	b := newBackend(t)
	server, _ := b.serve(t, 2, func(ctx context.Context, o orm.Order, _ orm.Line) error {
		return b.store.InSQLTx(ctx, b.db, nil, func(tx *sql.Tx) error {
			driver := orm.EntDriver(tx)
			require.Equal(t, dialect.Postgres, driver.Dialect())
			for _, end := range []func(dialect.Tx) error{dialect.Tx.Rollback, dialect.Tx.Commit} {
				inner, err := driver.Tx(ctx)
				require.NoError(t, err)
				require.NoError(t, inner.Exec(ctx, "INSERT INTO orders VALUES ($1, $2)", []any{o.ID, o.Key}, nil))
				require.NoError(t, end(inner))
			}
			return driver.Close()
		})
	})
	require.Equal(t, http.StatusCreated, server.Do(t, guardtest.Call{Key: "k"}).Status)
	require.Equal(t, 1, b.rows(t, "orders"))
}

func TestTransactionOfPgxIsASavepoint(t *testing.T) {
	b := newBackend(t)
	server, _ := b.serve(t, 2, func(ctx context.Context, o orm.Order, l orm.Line) error {
		return b.store.InTx(ctx, pgx.TxOptions{}, func(tx pgx.Tx) error {
			for _, end := range []func(pgx.Tx, context.Context) error{pgx.Tx.Rollback, pgx.Tx.Commit} {
				inner, err := tx.Begin(ctx)
				if err != nil {
					return err
				}
				if err := errors.Join(orm.NewQueries(inner).CreateOrder(ctx, o), end(inner, ctx)); err != nil {
					return err
				}
			}
			return orm.NewQueries(tx).CreateLine(ctx, l)
		})
	})
	require.Equal(t, http.StatusCreated, server.Do(t, guardtest.Call{Key: "k"}).Status)
	require.Equal(t, 1, b.rows(t, "orders JOIN lines ON order_id = orders.id"))
}

// A library that commits the transaction that it was given is found out, but its rows stay.
func TestCommitOfTheGivenTransactionIsRefused(t *testing.T) {
	b := newBackend(t)
	g := openGORM(t, b.db)
	var refused error
	server, _ := b.serve(t, 2, func(ctx context.Context, o orm.Order, _ orm.Line) error {
		refused = b.store.InSQLTx(ctx, b.db, nil, func(tx *sql.Tx) error {
			session := orm.In(ctx, g, tx)
			require.NoError(t, session.Create(&o).Error)
			return session.Commit().Error
		})
		return refused
	})
	require.Equal(t, http.StatusUnprocessableEntity, server.Do(t, guardtest.Call{Key: "k"}).Status)
	require.ErrorContains(t, refused, "has committed or rolled back by itself")
	require.Equal(t, 1, b.rows(t, "orders"))
}
