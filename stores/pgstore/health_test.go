package pgstore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/store"
	"example.com/idempotency/stores/pgstore"
	"example.com/idempotency/stores/pgstore/internal/pgtest"
)

// This file is about what a store says of itself.

// A store finds wrong with itself what gets requests refused, or soon will, and nothing once that is mended.
func TestHealthOfPostgres(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "max_connections=40", "autovacuum=off")
	admin := server.Pool(t)
	pgtest.Exec(t, admin, "CREATE ROLE service LOGIN; GRANT CREATE ON SCHEMA public TO service")
	config := admin.Config()
	config.ConnConfig.User = "service"
	s, table := newStore(t, pgtest.PoolOf(t, config))
	run := func(sql string) {
		for one := range strings.SplitSeq(strings.ReplaceAll(sql, "{t}", table), ";") {
			pgtest.Exec(t, admin, one)
		}
	}
	requireFault := func(want string) { // none, if it is empty
		t.Helper()
		var said string
		require.Eventually(t, func() bool {
			faults, err := s.Health(t.Context())
			require.NoError(t, err)
			said = fmt.Sprint(faults)
			return len(faults) == min(1, len(want)) && strings.Contains(said, want)
		}, guardtest.Patience, time.Millisecond, "%q: %s", want, &said)
	}
	requireFault("")
	const freeze = "UPDATE pg_database SET datfrozenxid = ((txid_current() + 4294967296 - %d) %% 4294967296)::text::xid WHERE datname = 'template1'"
	for spoil, c := range map[string]struct{ want, mend string }{
		"ALTER TABLE {t} SET UNLOGGED":             {"unlogged", "ALTER TABLE {t} SET LOGGED"},
		"ALTER TABLE {t} DROP CONSTRAINT {t}_pkey": {"no primary key", "ALTER TABLE {t} ADD PRIMARY KEY (key)"},
		"REVOKE DELETE ON {t} FROM service":        {"GRANT DELETE", "GRANT DELETE ON {t} TO service"},
		"ALTER SYSTEM SET default_transaction_read_only TO on;SELECT pg_reload_conf()": {
			"transactions only read", "SET default_transaction_read_only TO off;ALTER SYSTEM RESET default_transaction_read_only;SELECT pg_reload_conf()",
		},
		fmt.Sprintf(freeze, 1_900_000_000): {"takes 244", fmt.Sprintf(freeze, 1_000_000_000)},
	} {
		run(spoil)
		requireFault(c.want)
		run(c.mend)
		requireFault("")
	}

	// Superusers have three of the 40 to themselves, and the two pools a few.
	var idle []*pgx.Conn
	for range 32 {
		conn, err := pgx.Connect(t.Context(), server.DSN)
		require.NoError(t, err)
		idle = append(idle, conn)
	}
	requireFault("of 37 connections of the server are in use")
	for _, conn := range idle {
		require.NoError(t, conn.Close(t.Context()))
	}
	requireFault("")
}

// A server that has become a standby is not well.
func TestHealthOfAStandby(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	s, _ := newStore(t, server.Pool(t))
	server.BecomeStandby(t)
	require.Eventually(t, func() bool { // once the connections are new
		faults, err := s.Health(t.Context())
		return err == nil && len(faults) == 1 && strings.Contains(faults[0].Error(), "standby")
	}, guardtest.Patience, time.Millisecond)
}

// A store tells how large its tables are, and what the server has of connections.
func TestUsageOfPostgres(t *testing.T) {
	t.Parallel()
	pool := pgtest.Start(t).Pool(t)
	s, table := newStore(t, pool)
	before := usage(t, s)
	guardtest.Claim(t, s, "k", newClaim())
	pgtest.Exec(t, pool, "INSERT INTO "+table+"_tags SELECT sha256(n::text::bytea), 'k', '', 0 FROM generate_series(1, 1000) n")
	pgtest.Exec(t, pool, "ANALYZE "+table)
	after := usage(t, s)
	require.Greater(t, after["table with indexes"].Used, before["table with indexes"].Used)
	require.Greater(t, after["table of tags"].Used, before["table of tags"].Used+30_000)
	require.Equal(t, int64(1), after["rows, as the statistics have it"].Used)
	require.Equal(t, int64(197), after["connections of the server"].Limit)
	require.Positive(t, after["connections of the server"].Used)

	pgtest.Exec(t, pool, "DROP TABLE "+table+"_tags")
	untagged := usage(t, openStore(t, pool, pgstore.WithTable(table)))
	require.Zero(t, untagged["table of tags"].Used)
}

// usage returns the figures of a store by their names.
func usage(t *testing.T, s store.Gauge) map[string]store.Figure {
	t.Helper()
	all, err := s.Usage(t.Context())
	require.NoError(t, err)
	named := map[string]store.Figure{}
	for _, f := range all {
		named[f.Name] = f
	}
	return named
}
