package pgstore_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/idempotency/store"
	"example.com/idempotency/stores/pgstore"
	"example.com/idempotency/stores/pgstore/internal/pgtest"
)

// This file is about tables of earlier and of later versions. Each version has a dump by pg_dump in testdata, with
// a record that is completed, one that is held, and one that is claimed and held when its lease ends.

// restored returns a pool to a database that is as the dump of a version.
func restored(t *testing.T, version int) *pgxpool.Pool {
	admin, name := pgtest.Shared(t).Pool(t), fmt.Sprintf("version_%d", tables.Add(1))
	pgtest.Exec(t, admin, "CREATE DATABASE "+name)
	config := admin.Config()
	config.ConnConfig.Database = name
	pool := pgtest.PoolOf(t, config)
	if version == 0 {
		return pool
	}
	dump, err := os.ReadFile(fmt.Sprintf("testdata/forms/schema/v%d/dump.sql", version))
	require.NoError(t, err, "each version has a dump")
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer func() { _ = conn.Hijack().Close(context.Background()) }() // the dump has settings
	pgtest.Exec(t, conn, string(dump))
	return pool
}

// described returns what the catalogue says of the table, its indexes and its view.
func described(t *testing.T, pool *pgxpool.Pool) (all string) {
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT concat_ws(E'\n',
		(SELECT string_agg(concat_ws(' ', attname, format_type(atttypid, atttypmod), attcollation::regcollation, attnotnull, attgenerated), E'\n' ORDER BY attnum)
			FROM pg_attribute WHERE attrelid = 'idempotency_records'::regclass AND attnum > 0 AND NOT attisdropped),
		(SELECT string_agg(pg_get_indexdef(indexrelid), E'\n' ORDER BY indexrelid::regclass::text) FROM pg_index
			WHERE indrelid IN ('idempotency_records'::regclass, 'idempotency_records_tags'::regclass)),
		(SELECT reloptions::text FROM pg_class WHERE oid = 'idempotency_records'::regclass),
		pg_get_viewdef('idempotency_keys'::regclass), obj_description('idempotency_records'::regclass))`).Scan(&all))
	return all
}

// A table of each version becomes one of this version, while programs use it, and its records stay. Programs of
// this version use it before that, too.
func TestMigrateFromEachVersion(t *testing.T) {
	t.Parallel()
	fresh := restored(t, 0)
	require.NoError(t, pgstore.Migrate(t.Context(), fresh))
	for version := 1; version <= pgstore.Version(); version++ {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			for how, migrate := range map[string]func(t *testing.T, pool *pgxpool.Pool) error{
				"Migrate": func(t *testing.T, pool *pgxpool.Pool) error { return pgstore.Migrate(t.Context(), pool) },
				"SQL": func(t *testing.T, pool *pgxpool.Pool) error {
					sql, err := pgstore.MigrationSQL(version)
					require.NoError(t, err)
					_, err = pool.Exec(t.Context(), sql)
					return err
				},
			} {
				pool := restored(t, version)
				s := openStore(t, pool)
				program, err := pool.Begin(t.Context())
				require.NoError(t, err)
				pgtest.Exec(t, program, "UPDATE idempotency_records SET label = label || '!'")
				_, err = pool.Exec(t.Context(), "ALTER DATABASE "+pool.Config().ConnConfig.Database+" SET lock_timeout = '10s'")
				require.NoError(t, err)
				pool.Reset()
				require.NoError(t, migrate(t, pool), how)
				require.NoError(t, program.Commit(t.Context()))
				require.Equal(t, described(t, fresh), described(t, pool), how)
				require.NoError(t, pgstore.Migrate(t.Context(), pool), "there is nothing to do")

				done := store.Claim{Owner: store.Owner{9}, Fingerprint: store.Fingerprint{1}, Lease: time.Minute, Retention: time.Hour}
				r, err := s.Claim(t.Context(), "done", done)
				require.NoError(t, err)
				require.Equal(t, "the answer", string(r.Answer))
				requireTagsFrom(t, version, pool, s)
				for _, key := range []string{"held", "claimed"} {
					r, err = s.Get(t.Context(), key)
					require.NoError(t, err)
					require.Equal(t, store.Held, r.State, key)
				}
			}
		})
	}
}

// requireTagsFrom fails the test unless a store keeps tags that was made on a table of version 3, or later, and a
// store of an earlier one goes on without. Tags that were in the table of the version are found.
func requireTagsFrom(t *testing.T, version int, pool *pgxpool.Pool, s *pgstore.Store) {
	tag := store.Tag([]byte("order number 77."))
	claim := store.Claim{Owner: store.Owner{7}, Lease: time.Minute, Retention: time.Hour, Tags: []store.Tag{tag}}
	_, err := s.Claim(t.Context(), "tagged", claim)
	require.NoError(t, err)
	page, err := s.Find(t.Context(), tag, store.Query{})
	if version < 3 {
		require.ErrorContains(t, s.KeepsTags(), "schema 3")
		require.ErrorIs(t, err, s.KeepsTags())
		s = openStore(t, pool)
		_, err = s.Find(t.Context(), tag, store.Query{})
		require.NoError(t, err)
		return
	}
	require.NoError(t, err)
	var found []string
	for _, e := range page.Entries {
		found = append(found, e.Key)
	}
	require.Equal(t, []string{"done", "held", "tagged"}, found)
}

// A table of a later version is used if its comment allows that, and left as it is.
func TestLaterVersion(t *testing.T) {
	t.Parallel()
	pool := pgtest.Shared(t).Pool(t)
	for _, since := range []int{pgstore.Version(), pgstore.Version() + 1} {
		st, table := newStore(t, pool)
		st.Close()
		comment := fmt.Sprintf("idempotency: schema %d, for programs of schema %d or later", pgstore.Version()+1, since)
		pgtest.Exec(t, pool, "COMMENT ON TABLE "+table+" IS '"+comment+" (see ticket 7)'")
		opt, refused := pgstore.WithTable(table), "update the program"
		st, err := pgstore.New(t.Context(), pool, opt)
		if since > pgstore.Version() {
			require.ErrorContains(t, err, refused)
			require.ErrorContains(t, pgstore.Migrate(t.Context(), pool, opt), refused)
			continue
		}
		require.NoError(t, err)
		st.Close()
		require.NoError(t, pgstore.Migrate(t.Context(), pool, opt))
		var said string
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT obj_description($1::regclass)", table).Scan(&said))
		require.Contains(t, said, comment)
	}
}

// What cannot be migrated from is refused.
func TestMigrationSQL(t *testing.T) {
	t.Parallel()
	for _, from := range []int{-1, pgstore.Version() + 1} {
		_, err := pgstore.MigrationSQL(from)
		require.ErrorContains(t, err, "version")
	}
	_, err := pgstore.MigrationSQL(0, pgstore.WithTable("a.b.c"))
	require.Error(t, err)
	sql, err := pgstore.MigrationSQL(0, nil)
	require.NoError(t, err)
	bare := func(sql string) string { return strings.ReplaceAll(sql, `"`, "") }
	require.True(t, strings.HasSuffix(bare(pgstore.Schema), "\n"+bare(sql)), sql)
}
