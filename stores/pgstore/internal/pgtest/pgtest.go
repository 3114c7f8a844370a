// Package pgtest gives the tests of pgstore real PostgreSQL servers; see package
// [example.com/idempotency/internal/pgserver].
package pgtest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/idempotency/internal/pgserver"
)

// A Server is one running server.
type Server struct{ *pgserver.Server }

// Main runs the tests of a package and ends the shared server after them.
func Main(m *testing.M) int { return pgserver.Main(m) }

// Shared returns the server of the test program, which is started for the first test.
func Shared(t testing.TB) *Server {
	t.Helper()
	return &Server{pgserver.Shared(t)}
}

// Start starts a server of the test's own, with further settings as "name=value".
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	return &Server{pgserver.Start(t, settings...)}
}

// StartBouncer starts a PgBouncer in front of the server, which gives each transaction a server
// connection of its pool, with further settings as "name=value".
func (s *Server) StartBouncer(t testing.TB, settings ...string) *Server {
	t.Helper()
	return &Server{pgserver.StartBouncer(t, s.Server, settings...)}
}

// Pool returns a pool of connections to the server, which is closed with the test.
func (s *Server) Pool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), s.DSN)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}
