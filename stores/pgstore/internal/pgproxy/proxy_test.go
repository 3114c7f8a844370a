package pgproxy_test

import (
	"context"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/idempotency/stores/pgstore/internal/pgproxy"
	"example.com/idempotency/stores/pgstore/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// Each fault strikes the round trip of an INSERT with its COMMIT. The row is there or not, and the
// client gets an error or not.
func TestFaults(t *testing.T) {
	server := pgtest.Shared(t)
	pool := server.Pool(t)
	pgtest.Exec(t, pool, "CREATE TABLE inserted (name text)")
	terminate := func(pid int) {
		if _, err := pool.Exec(context.Background(), "SELECT pg_terminate_backend($1, 60000)", pid); err != nil {
			t.Error(err)
		}
	}
	for name, c := range map[string]struct {
		fault func(later chan struct{}) pgproxy.Fault
		fails bool
		rows  int
	}{
		"none":         {func(chan struct{}) pgproxy.Fault { return pgproxy.Fault{} }, false, 1},
		"request lost": {func(chan struct{}) pgproxy.Fault { return pgproxy.Fault{LoseRequest: true} }, true, 0},
		"reply lost":   {func(chan struct{}) pgproxy.Fault { return pgproxy.Fault{LoseReply: true} }, true, 1},
		"silent":       {func(later chan struct{}) pgproxy.Fault { return pgproxy.Fault{Silent: later} }, true, 1},
		"late":         {func(later chan struct{}) pgproxy.Fault { return pgproxy.Fault{Late: later} }, true, 1},
		"terminated before": {
			func(chan struct{}) pgproxy.Fault { return pgproxy.Fault{Before: terminate} }, true, 0,
		},
		"terminated after the COMMIT": {
			func(chan struct{}) pgproxy.Fault { return pgproxy.Fault{During: terminate} }, true, 1,
		},
		"terminated before the COMMIT": {
			func(chan struct{}) pgproxy.Fault { return pgproxy.Fault{During: terminate, Between: true} }, true, 0,
		},
		"terminated after": {
			func(chan struct{}) pgproxy.Fault { return pgproxy.Fault{After: terminate} }, false, 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, proxy := connect(t, server.DSN)
			rows := func() (n int) {
				require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM inserted WHERE name = $1", name).Scan(&n))
				return n
			}
			later := make(chan struct{})
			proxy.Arm(2, c.fault(later))
			pgtest.Exec(t, conn, "BEGIN")
			atMost := time.Minute
			if name == "silent" { // nothing else ends the call
				atMost = time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), atMost)
			defer cancel()
			batch := new(pgx.Batch)
			batch.Queue("INSERT INTO inserted VALUES ($1)", name)
			batch.Queue("COMMIT")
			err := conn.SendBatch(ctx, batch).Close()
			require.Equal(t, c.fails, err != nil, "%v", err)
			if name == "late" {
				require.Zero(t, rows())
				<-conn.PgConn().CleanupDone() // the client cancels what it has lost: not the INSERT yet to come
			}
			close(later)
			<-proxy.Done()
			require.True(t, proxy.Fired())
			if name == "late" { // delivered, and executed when the server comes to it
				require.Eventually(t, func() bool { return rows() == c.rows }, time.Minute, time.Millisecond)
			}
			require.Equal(t, c.rows, rows())
		})
	}
}

// connect returns a connection through a proxy of its own, on which each statement takes one round
// trip.
func connect(t *testing.T, dsn string) (*pgx.Conn, *pgproxy.Proxy) {
	t.Helper()
	at, err := url.Parse(dsn)
	require.NoError(t, err)
	proxy, err := pgproxy.New(at.Host)
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	at.Host = proxy.Addr()
	config, err := pgx.ParseConfig(at.String())
	require.NoError(t, err)
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	conn, err := pgx.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn, proxy
}
