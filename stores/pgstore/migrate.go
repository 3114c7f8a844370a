package pgstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Migrate creates the table of a store and its indexes unless the table is there. It refuses
// another table of that name. Several processes may call it at once. Of the options only
// [WithTable] matters.
func Migrate(ctx context.Context, pool *pgxpool.Pool, opts ...Option) error {
	c := config{table: defaultTable}
	for _, o := range opts {
		if o != nil {
			o(&c)
		}
	}
	if err := checkName(c.table); err != nil {
		return fmt.Errorf("pgstore: Migrate: %w", err)
	}
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		// Two CREATE TABLE IF NOT EXISTS at once may collide in the catalogue.
		if _, err := tx.Exec(ctx, `SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtext($1))`, "idempotency "+c.table); err != nil {
			return err
		}
		v, err := viewFrom(ctx, tx.QueryRow, quoted(c.table), false)
		if err != nil {
			return err
		}
		if v.name != "" {
			if err := v.fits(); err != nil {
				return fmt.Errorf("the table %s is there: %w", c.table, err)
			}
			return nil
		}
		for statement := range strings.SplitSeq(schemaFor(c.table), ";\n") {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	})
	return calls.Wrap("Migrate", err)
}
