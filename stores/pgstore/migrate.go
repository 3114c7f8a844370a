package pgstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Migrate creates the table of a store, with its indexes and its view, or brings one of an earlier version to
// that of this package, as [MigrationSQL] has it. It refuses another table of that name, and leaves a later
// version alone. Several processes may call it at once, also of different versions. Of the options only
// [WithTable] matters. Only where there is something to do, the role must own the table.
func Migrate(ctx context.Context, pool *pgxpool.Pool, opts ...Option) error {
	table, err := tableOf(opts)
	if err != nil {
		return fmt.Errorf("pgstore: Migrate: %w", err)
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		// Two CREATE TABLE IF NOT EXISTS at once may collide in the catalogue.
		if _, err := tx.Exec(ctx, `SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtext($1))`, "idempotency "+table); err != nil {
			return err
		}
		v, err := viewFrom(ctx, tx.QueryRow, quoted(table), false)
		if err != nil {
			return err
		}
		if v.name != "" {
			if err := v.fits(); err != nil {
				return fmt.Errorf("the table %s is there: %w", table, err)
			}
		}
		for n := v.version + 1; n <= version(); n++ {
			if _, err := tx.Exec(ctx, "-- "+stepFor(table, n)); err != nil {
				return fmt.Errorf("version %d of the table %s: %w", n, table, err)
			}
		}
		return nil
	})
	return calls.Wrap("Migrate", err)
}
