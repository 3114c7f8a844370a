package pgstore_test

import (
	"database/sql"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/store"
	"example.com/idempotency/stores/pgstore"
	"example.com/idempotency/stores/pgstore/internal/pgtest"
)

// This file is about databases, tables and names that New and Migrate refuse.

// A table that could lose a record, or not take one, is refused, and the error names what mends it.
func TestUnfitTableIsRefused(t *testing.T) {
	t.Parallel()
	pool := pgtest.Shared(t).Pool(t)
	type row struct{ spoil, want, mend string }
	guardtest.Each(t, map[string]row{
		"missing":                    {"DROP TABLE {t}", "Migrate makes it", ""},
		"unlogged":                   {"ALTER TABLE {t} SET UNLOGGED", "SET LOGGED", "ALTER TABLE {t} SET LOGGED"},
		"a view":                     {"ALTER TABLE {t} RENAME TO {t}_of; CREATE VIEW {t} AS SELECT * FROM {t}_of", "ordinary table", ""},
		"partitioned":                {"DROP TABLE {t}; CREATE TABLE {t} (key text) PARTITION BY HASH (key)", "ordinary table", ""},
		"with a rule":                {"CREATE RULE noted AS ON UPDATE TO {t} DO ALSO NOTHING", "has rules", "DROP RULE noted ON {t}"},
		"without a primary key":      {"ALTER TABLE {t} DROP CONSTRAINT {t}_pkey", "no primary key", "ALTER TABLE {t} ADD PRIMARY KEY (key)"},
		"a key of two columns":       {"ALTER TABLE {t} DROP CONSTRAINT {t}_pkey, ADD PRIMARY KEY (key, attempt)", "no primary key", ""},
		"a key that is checked late": {"ALTER TABLE {t} DROP CONSTRAINT {t}_pkey, ADD PRIMARY KEY (key) DEFERRABLE", "no primary key", ""},
		"a missing column":           {"ALTER TABLE {t} DROP COLUMN notes", "column notes", "ALTER TABLE {t} ADD COLUMN notes bytea NOT NULL"},
		"a column that may be empty": {"ALTER TABLE {t} ALTER COLUMN owner DROP NOT NULL", "column owner", "ALTER TABLE {t} ALTER COLUMN owner SET NOT NULL"},
		"a column that may not be":   {"ALTER TABLE {t} ALTER COLUMN answer SET NOT NULL", "column answer", "ALTER TABLE {t} ALTER COLUMN answer DROP NOT NULL"},
		"another type":               {"ALTER TABLE {t} ALTER COLUMN status TYPE int4", "column status", "ALTER TABLE {t} ALTER COLUMN status TYPE int8"},
		"keys of another collation":  {`ALTER TABLE {t} ALTER COLUMN key TYPE text COLLATE "default"`, "column key", `ALTER TABLE {t} ALTER COLUMN key TYPE text COLLATE "C"`},
		"a column of another":        {"ALTER TABLE {t} ADD COLUMN team text NOT NULL", "fill the column team", "ALTER TABLE {t} ALTER COLUMN team SET DEFAULT ''"},
		"a table of something else":  {"DROP TABLE {t}; CREATE TABLE {t} (key text PRIMARY KEY)", "make the table as Schema does", ""},
	}, func(t *testing.T, c row) {
		st, table := newStore(t, pool)
		st.Close()
		run := func(sql string) {
			pgtest.Exec(t, pool, strings.ReplaceAll(sql, "{t}", table))
		}
		run("DROP VIEW {t}_keys")
		run(c.spoil)
		_, err := pgstore.New(t.Context(), pool, pgstore.WithTable(table))
		require.ErrorContains(t, err, c.want)
		if c.want == "Migrate makes it" {
			require.NoError(t, pgstore.Migrate(t.Context(), pool, pgstore.WithTable(table)))
		} else {
			require.ErrorContains(t, pgstore.Migrate(t.Context(), pool, pgstore.WithTable(table)), c.want)
		}
		if c.mend != "" {
			run(c.mend)
			st, err := pgstore.New(t.Context(), pool, pgstore.WithTable(table))
			require.NoError(t, err)
			st.Close()
		}
	})
}

// A trigger may suppress a row that the store writes. The call says so, and does not try for ever.
func TestTriggerThatSuppressesRows(t *testing.T) {
	t.Parallel()
	pool := pgtest.Shared(t).Pool(t)
	s, table := newStore(t, pool)
	run := func(sql string) {
		pgtest.Exec(t, pool, strings.ReplaceAll(sql, "{t}", table))
	}
	c, suppressed := newClaim(), "a trigger of the table suppresses that"
	run(`CREATE FUNCTION {t}_nothing() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
		CREATE TRIGGER {t}_nothing BEFORE INSERT ON {t} FOR EACH ROW EXECUTE FUNCTION {t}_nothing()`)
	_, err := s.Claim(t.Context(), "k", c)
	require.ErrorContains(t, err, suppressed)

	run("DROP TRIGGER {t}_nothing ON {t}")
	guardtest.Claim(t, s, "k", c)
	run("CREATE TRIGGER {t}_nothing BEFORE UPDATE ON {t} FOR EACH ROW EXECUTE FUNCTION {t}_nothing()")
	require.ErrorContains(t, s.Complete(t.Context(), "k", c.Owner, ended), suppressed)
	require.ErrorContains(t, s.Release(t.Context(), "k", c.Owner, store.Release{}), suppressed)
	require.ErrorContains(t, s.Hold(t.Context(), "k", c.Owner, nil), suppressed)

	run("DROP TRIGGER {t}_nothing ON {t}")
	require.NoError(t, s.Complete(t.Context(), "k", c.Owner, ended))
}

// So is a connection that cannot write, that of the store or that of the program.
func TestUnfitConnectionIsRefused(t *testing.T) {
	t.Parallel()
	admin := pgtest.Shared(t).Pool(t)
	role := func(t *testing.T, table, rights string) string {
		name := fmt.Sprintf("role_%d", tables.Add(1))
		pgtest.Exec(t, admin, "CREATE ROLE "+name+" LOGIN; GRANT "+rights+" ON "+table+" TO "+name)
		return name
	}
	type row struct {
		change func(t *testing.T, config *pgxpool.Config, table string)
		want   string
		fine   bool // as the program's own pool
	}
	guardtest.Each(t, map[string]row{
		"reads only": {
			func(_ *testing.T, config *pgxpool.Config, _ string) {
				config.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on"
			}, "default_transaction_read_only", false,
		},
		"has no rights": {
			func(t *testing.T, config *pgxpool.Config, table string) {
				config.ConnConfig.User = role(t, table, "SELECT")
			},
			"UPDATE", false,
		},
		"has not all rights": {
			func(t *testing.T, config *pgxpool.Config, table string) {
				config.ConnConfig.User = role(t, table, "SELECT, UPDATE")
			}, "INSERT, DELETE", true,
		},
		"does not see rows": {
			func(t *testing.T, config *pgxpool.Config, table string) {
				config.ConnConfig.User = role(t, table, "ALL")
				pgtest.Exec(t, admin, "ALTER TABLE "+table+" ENABLE ROW LEVEL SECURITY")
			}, "row security", false,
		},
		"leads to another database": {
			func(t *testing.T, config *pgxpool.Config, table string) {
				other := fmt.Sprintf("db_%d", tables.Add(1))
				pgtest.Exec(t, admin, "CREATE DATABASE "+other)
				config.ConnConfig.Database = other
				pool, err := pgxpool.NewWithConfig(t.Context(), config)
				require.NoError(t, err)
				defer pool.Close()
				require.NoError(t, pgstore.Migrate(t.Context(), pool, pgstore.WithTable(table)))
			}, "another database", false,
		},
		"finds another table": {
			func(t *testing.T, config *pgxpool.Config, table string) {
				schema := fmt.Sprintf("schema_%d", tables.Add(1))
				pgtest.Exec(t, admin, "CREATE SCHEMA "+schema)
				require.NoError(t, pgstore.Migrate(t.Context(), admin, pgstore.WithTable(schema+"."+table)))
				config.ConnConfig.RuntimeParams["search_path"] = schema + ",public"
			}, "another table", false,
		},
		"finds no table": {
			func(_ *testing.T, config *pgxpool.Config, _ string) {
				config.ConnConfig.RuntimeParams["search_path"] = "nowhere"
			},
			"table", false,
		},
	}, func(t *testing.T, c row) {
		_, table := newStore(t, admin)
		config := admin.Config()
		c.change(t, config, table)
		_, err := pgstore.New(t.Context(), admin, pgstore.WithTable(table), pgstore.WithPoolConfig(config))
		require.ErrorContains(t, err, c.want)

		pool := pgtest.PoolOf(t, config)
		st, err := pgstore.New(t.Context(), pool, pgstore.WithTable(table), pgstore.WithPoolConfig(admin.Config()))
		if c.fine {
			require.NoError(t, err)
			st.Close()
			return
		}
		require.ErrorContains(t, err, c.want)
	})
}

// A transaction of another database would be rolled back in the end, each time. InSQLTx says so at once.
func TestDatabaseOfAnotherIsRefused(t *testing.T) {
	t.Parallel()
	other := fmt.Sprintf("db_%d", tables.Add(1))
	var db *sql.DB
	s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
		err := s.store.InSQLTx(r.Context(), db, nil, func(*sql.Tx) error {
			t.Error("the function has run")
			return nil
		})
		require.ErrorContains(t, err, "another database")
		require.NoError(t, s.store.InSQLTx(r.Context(), s.db, nil, func(*sql.Tx) error { return nil }))
		w.WriteHeader(http.StatusCreated)
	})
	pgtest.Exec(t, s.pool, "CREATE DATABASE "+other)
	config := s.pool.Config()
	config.ConnConfig.Database = other
	pool := pgtest.PoolOf(t, config)
	require.NoError(t, pgstore.Migrate(t.Context(), pool, pgstore.WithTable(s.records)))
	db = stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { _ = db.Close() })
	require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
}

// A standby knows the table, and takes no record.
func TestStandbyIsRefused(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	pool := server.Pool(t)
	_, table := newStore(t, pool)
	pool.Close()
	server.BecomeStandby(t)
	_, err := pgstore.New(t.Context(), server.Pool(t), pgstore.WithTable(table))
	require.ErrorContains(t, err, "standby")
}

// PostgreSQL cuts long names, so that two tables would be one.
func TestNamesThatPostgresCutsAreRefused(t *testing.T) {
	t.Parallel()
	pool := pgtest.Shared(t).Pool(t)
	longest := strings.Repeat("x", 54)
	for _, name := range []string{"", ".", "a.", ".b", "a.b.c", "a\x00b", longest + "x", "public." + longest + "x", strings.Repeat("s", 64) + ".t"} {
		_, err := pgstore.New(t.Context(), pool, pgstore.WithTable(name))
		require.Error(t, err, "New: %q", name)
		require.NotContains(t, err.Error(), "SQLSTATE", "New: %q", name)
		require.Error(t, pgstore.Migrate(t.Context(), pool, pgstore.WithTable(name)), "Migrate: %q", name)
	}
	require.NoError(t, pgstore.Migrate(t.Context(), pool, pgstore.WithTable(longest)))
	st, err := pgstore.New(t.Context(), pool, pgstore.WithTable("public."+longest))
	require.NoError(t, err)
	st.Close()
}

// A program may put what it likes on its search_path: the store uses the table that it has found, and the
// functions and types of PostgreSQL.
func TestSearchPathDoesNotLeadAstray(t *testing.T) {
	admin := pgtest.Shared(t).Pool(t)
	schema := fmt.Sprintf("astray_%d", tables.Add(1))
	_, err := admin.Exec(t.Context(), strings.ReplaceAll(`CREATE SCHEMA {s};
		CREATE FUNCTION {s}.astray() RETURNS int8 LANGUAGE plpgsql AS $$ BEGIN RAISE 'astray'; END $$;
		CREATE FUNCTION {s}.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT now() + '1 day' + make_interval(secs => {s}.astray()) $$;
		CREATE FUNCTION {s}.octet_length(bytea) RETURNS int LANGUAGE sql AS $$ SELECT {s}.astray()::int $$;
		CREATE FUNCTION {s}.pg_is_in_recovery() RETURNS bool LANGUAGE sql AS $$ SELECT {s}.astray() = 0 $$;
		CREATE FUNCTION {s}.pg_notify(text, text) RETURNS void LANGUAGE sql AS $$ SELECT {s}.astray() $$;
		CREATE FUNCTION {s}.current_setting(text) RETURNS text LANGUAGE sql AS $$ SELECT {s}.astray()::text $$;
		CREATE FUNCTION {s}.counts(int8) RETURNS int8 LANGUAGE sql AS $$ SELECT {s}.astray() $$;
		CREATE AGGREGATE {s}.count(*) (sfunc = {s}.counts, stype = int8, initcond = '0');
		CREATE DOMAIN {s}.int8 AS pg_catalog.int8 CHECK (VALUE < 0);
		CREATE DOMAIN {s}.text AS pg_catalog.text CHECK (VALUE = '')`, "{s}", schema))
	require.NoError(t, err)
	config := admin.Config()
	config.ConnConfig.RuntimeParams["search_path"] = schema + ", pg_catalog, public"
	pool := pgtest.PoolOf(t, config)
	onEachWay(t, func(t *testing.T, inTx way, level string) {
		s := newShopOn(t, admin, nil, nil) // makes the tables
		st := openStore(t, pool, pgstore.WithTable(s.records))
		s.store = st
		handler := func(w http.ResponseWriter, r *http.Request) {
			err := inTx(s, r.Context(), level, func(exec execer) error {
				for _, sql := range []string{
					"SET LOCAL search_path = pg_temp, " + schema + ", public",
					"CREATE TEMP TABLE " + s.records + " (key text) ON COMMIT DROP",
				} {
					if err := exec(r.Context(), sql); err != nil {
						return err
					}
				}
				return s.insert(r.Context(), exec)
			})
			answer(w, err)
		}
		guard := guardtest.NewGuard(t, st, idempotency.WithTransaction(true))
		server := guardtest.ServeHTTP1(t, guard.Handler(http.HandlerFunc(handler)))
		first := server.Do(t, guardtest.Call{Key: "k"})
		require.Equal(t, http.StatusCreated, first.Status, "%s", first.Body)
		guardtest.RequireReplay(t, first, server.Do(t, guardtest.Call{Key: "k"}))
		require.Equal(t, 1, s.rows(t, "k"))
	})
}
