package modeltest

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/pgserver"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/stores/pgstore"
	"example.com/idempotency/stores/sqlitestore"
)

// This file compares stores with the model whose clock a test cannot stop. Time passes for them when
// their records are moved into the past.

func TestRedisServerFollowsTheModel(t *testing.T) {
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	t.Cleanup(func() { _ = client.Close() })
	followsTheModel(t, idempotency.NewRedisStore(client), database{
		clear:   func() { server.Do(t, "FLUSHALL") },
		advance: func(d time.Duration) { server.Advance(t, "idem:", d) },
	})
}

func TestPostgresStoreFollowsTheModel(t *testing.T) {
	for _, c := range []struct {
		name string
		opts []pgstore.Option
	}{{name: "two_commits"}, {name: "one_commit", opts: []pgstore.Option{pgstore.WithOneCommit("")}}} {
		t.Run(c.name, func(t *testing.T) {
			pool, err := pgxpool.New(t.Context(), pgserver.Shared(t).DSN)
			require.NoError(t, err)
			t.Cleanup(pool.Close)
			opts := append(c.opts, pgstore.WithTable(c.name))
			require.NoError(t, pgstore.Migrate(t.Context(), pool, opts...))
			s, err := pgstore.New(t.Context(), pool, opts...)
			require.NoError(t, err)
			t.Cleanup(s.Close)
			db := sqlDatabase(c.name, func(statement string, args ...any) {
				_, err := pool.Exec(context.Background(), statement, args...)
				require.NoError(t, err)
			})
			if c.opts == nil {
				followsTheModel(t, s, db)
			} else {
				followsUnrecorded(t, s, db)
			}
		})
	}
}

func TestSQLiteStoreFollowsTheModel(t *testing.T) {
	guardtest.Each(t, map[string][]sqlitestore.Option{"two commits": nil, "one commit": {sqlitestore.WithOneCommit()}}, func(t *testing.T, opts []sqlitestore.Option) {
		path := filepath.Join(t.TempDir(), "records.db")
		s, err := sqlitestore.Open(t.Context(), path, opts...)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		file, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(10000)")
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, file.Close()) })
		db := sqlDatabase("idempotency_records", func(statement string, args ...any) {
			_, err := file.ExecContext(context.Background(), statement, args...)
			require.NoError(t, err)
		})
		if opts == nil {
			followsTheModel(t, s, db)
		} else {
			followsUnrecorded(t, s, db)
		}
	})
}

// followsUnrecorded compares a store whose claims are transactions as long as nobody looks.
func followsUnrecorded(t *testing.T, s guardtest.ClaimingStore, db database) {
	u := guardtest.NewUnrecorded(s)
	empty := db.clear
	db.clear = func() {
		u.Settle()
		empty()
	}
	db.advance = u.Passes(db.advance)
	followsTheModel(t, u, db)
}

// A database is where a store keeps its records.
type database struct {
	clear   func()
	advance func(time.Duration)
}

// sqlDatabase is a database with one table.
func sqlDatabase(table string, exec func(statement string, args ...any)) database {
	return database{
		clear: func() { exec(`DELETE FROM ` + table) },
		advance: func(d time.Duration) {
			exec(`UPDATE `+table+` SET version = version + 1, since = since - $1, touched = touched - $1,
				expires = CASE WHEN expires = 9223372036854775807 THEN expires ELSE expires - $1 END`, d.Microseconds())
		},
	}
}

// followsTheModel compares a store with the model. The time that the calls take themselves must be
// little beside the minute that is the shortest difference of durations.
func followsTheModel(t *testing.T, s fullStore, db database) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		db.clear()
		var passed time.Duration
		now := func() time.Duration { return passed }
		advance := func(d time.Duration) {
			db.advance(d)
			passed += d
		}
		m := newMachine(t, s, now, advance, time.Minute)
		m.slack = 20 * time.Second
		m.run(t)
	})
}
