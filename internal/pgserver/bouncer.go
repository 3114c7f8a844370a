package pgserver

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// StartBouncer starts a PgBouncer in front of the server, which gives each transaction a server
// connection of its pool, with further settings as "name=value". It ends with the test.
func StartBouncer(t testing.TB, s *Server, settings ...string) *Server {
	t.Helper()
	dir, err := makeDir()
	need(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	b, err := launchBouncer(dir, s, settings)
	need(t, err)
	t.Cleanup(b.Kill)
	return b
}

func launchBouncer(dir string, s *Server, settings []string) (*Server, error) {
	bouncer, err := program("pgbouncer")
	if err != nil {
		return nil, err
	}
	ready, err := program("pg_isready")
	if err != nil {
		return nil, err
	}
	behind, err := url.Parse(s.DSN)
	if err != nil {
		return nil, err
	}
	if err := giveAway(dir); err != nil {
		return nil, err
	}
	for range 5 { // a port may be taken between its choice and its use
		var port string
		if port, err = freePort(); err != nil {
			return nil, err
		}
		config := filepath.Join(dir, "pgbouncer.ini")
		text := strings.Join(append([]string{
			"[databases]",
			fmt.Sprintf("postgres = host=127.0.0.1 port=%s dbname=postgres user=postgres", behind.Port()),
			"[pgbouncer]",
			"listen_addr = 127.0.0.1", "listen_port = " + port, "unix_socket_dir =", "auth_type = any",
			"pool_mode = transaction", "max_client_conn = 500",
		}, settings...), "\n") + "\n"
		if err = os.WriteFile(config, []byte(text), 0o644); err != nil {
			return nil, err
		}
		front := *behind
		front.Host = "127.0.0.1:" + port
		b := &Server{
			DSN: front.String(),
			ready: func() bool {
				return command(ready, "-q", "-h", "127.0.0.1", "-p", port, "-d", "postgres", "-U", "postgres", "-t", "1").Run() == nil
			},
			log:  filepath.Join(dir, "log"),
			args: []string{bouncer, config},
		}
		if err = b.start(); err == nil {
			return b, nil
		}
	}
	return nil, err
}
