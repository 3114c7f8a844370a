// Package pgserver starts real PostgreSQL servers, and PgBouncers in front of them, for tests: child
// processes on free loopback ports, each with a directory of its own, that end with the test. It knows no driver, so that
// the tests of every module may use it.
//
// Tests that need one are skipped where PostgreSQL is not installed. With POSTGRES_REQUIRED=1 in
// the environment, as in continuous integration, they fail.
package pgserver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long a server may take to start or to end.
const patience = 2 * time.Minute

// A Server is one running server.
type Server struct {
	// DSN is how to connect to it.
	DSN string

	settings []string
	args     []string
	ready    func() bool // tells whether the server answers
	log      string
	cmd      *exec.Cmd
	ended    chan struct{} // closed when the process has
}

// shared is the server that all tests of a program use that need nothing special.
var shared struct {
	once   sync.Once
	server *Server
	dir    string
	err    error
}

// Main runs the tests of a package and ends the shared server after them.
func Main(m *testing.M) int {
	defer func() {
		if shared.server != nil {
			shared.server.Kill()
		}
		_ = os.RemoveAll(shared.dir)
	}()
	return m.Run()
}

// Shared returns the server of the test program, which is started for the first test.
func Shared(t testing.TB) *Server {
	t.Helper()
	shared.once.Do(func() {
		if shared.dir, shared.err = makeDir(); shared.err == nil {
			shared.server, shared.err = launch(shared.dir)
		}
	})
	need(t, shared.err)
	return shared.server
}

// Start starts a server of the test's own, with further settings as "name=value".
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	dir, err := makeDir()
	need(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s, err := launch(dir, settings...)
	need(t, err)
	t.Cleanup(s.Kill)
	return s
}

// makeDir makes a directory, and not in that of a test, into which another user may not go.
func makeDir() (string, error) { return os.MkdirTemp("", "pgserver") }

// need skips or fails the test if there is no server.
func need(t testing.TB, err error) {
	t.Helper()
	switch {
	case err == nil:
	case errors.Is(err, exec.ErrNotFound) && os.Getenv("POSTGRES_REQUIRED") != "1":
		t.Skip("PostgreSQL or PgBouncer is not installed:", err)
	default:
		t.Fatal(err)
	}
}

// program finds a program that Debian does not put on the PATH.
func program(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin/", "/usr/sbin/"} {
		if found, _ := filepath.Glob(pattern + name); len(found) > 0 {
			return found[len(found)-1], nil
		}
	}
	return "", err
}

// launch makes a data directory in dir and starts a server with it.
func launch(dir string, settings ...string) (*Server, error) {
	initdb, err := program("initdb")
	if err != nil {
		return nil, err
	}
	if err := giveAway(dir); err != nil {
		return nil, err
	}
	// Tests kill processes and not machines, so nothing needs to reach the disk.
	makes := command(initdb, "-D", filepath.Join(dir, "data"), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	if out, err := makes.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, out)
	}
	return serve(dir, settings)
}

// serve starts a server with the data directory in dir.
func serve(dir string, settings []string) (*Server, error) {
	postgres, err := program("postgres")
	if err != nil {
		return nil, err
	}
	for range 5 { // a port may be taken between its choice and its use
		var port string
		if port, err = freePort(); err != nil {
			return nil, err
		}
		s := &Server{
			DSN:      fmt.Sprintf("postgres://postgres@127.0.0.1:%s/postgres?sslmode=disable", port),
			settings: settings,
			log:      filepath.Join(dir, "log"),
			args: []string{
				postgres, "-D", filepath.Join(dir, "data"), "-p", port, "-k", dir, "-h", "127.0.0.1",
				"-c", "fsync=off", "-c", "max_connections=200", "-c", "shared_buffers=64MB", "-c", "autovacuum_naptime=10s", "-c", "deadlock_timeout=50ms",
			},
		}
		for _, set := range settings {
			s.args = append(s.args, "-c", set)
		}
		s.ready = func() bool { return saysReady(filepath.Join(dir, "data", "postmaster.pid"), s.cmd.Process.Pid) }
		if err = s.start(); err == nil {
			return s, nil
		}
	}
	return nil, err
}

// saysReady reports whether a server has written that it takes connections, and not the one that was there before it.
// pg_ctl reads it, too. A pg_isready every 20 ms takes more of the processors than the start of the server.
func saysReady(file string, pid int) bool {
	said, _ := os.ReadFile(file)
	lines := strings.Split(string(said), "\n")
	return len(lines) > 7 && lines[0] == strconv.Itoa(pid) && strings.TrimSpace(lines[7]) == "ready"
}

// start runs the process and returns when it answers.
func (s *Server) start() error {
	s.cmd = command(s.args[0], s.args[1:]...)
	// A file and not a pipe, which would keep Wait from returning while a backend lives.
	out, err := os.Create(s.log)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	s.cmd.Stdout, s.cmd.Stderr = out, out
	if err := s.cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	s.ended = ended
	go func() {
		_ = s.cmd.Wait()
		close(ended)
	}()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if s.ready() {
			return nil
		}
		select {
		case <-ended:
			return s.failure("does not start")
		case <-time.After(20 * time.Millisecond):
		}
	}
	s.Kill()
	return s.failure("does not answer")
}

func (s *Server) failure(what string) error {
	said, _ := os.ReadFile(s.log)
	return fmt.Errorf("%s %s: %s", filepath.Base(s.args[0]), what, said)
}

// Log returns what the server has logged since it was started.
func (s *Server) Log(t testing.TB) string {
	t.Helper()
	said, err := os.ReadFile(s.log)
	if err != nil {
		t.Fatal(err)
	}
	return string(said)
}

// Kill ends the server at once. Its backends notice that and end, too.
func (s *Server) Kill() {
	_ = s.cmd.Process.Kill()
	<-s.ended
}

// Crash ends the server as a crash of the machine does: what it has not written is lost. It is what
// pg_ctl stop -m immediate does.
func (s *Server) Crash() {
	_ = s.cmd.Process.Signal(syscall.SIGQUIT)
	<-s.ended
}

// Restart starts a server that was killed or has crashed, on the same port.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
}

// BecomeStandby starts the server again as a standby, which answers and does not write.
func (s *Server) BecomeStandby(t testing.TB) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(filepath.Dir(s.log), "data", "standby.signal"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.Crash()
	s.Restart(t)
}

// StartStandby starts a synchronous standby of the server, whose commits wait for it from then on.
func (s *Server) StartStandby(t testing.TB) *Server {
	t.Helper()
	backup, err := program("pg_basebackup")
	need(t, err)
	dir, err := makeDir()
	need(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	need(t, giveAway(dir))
	data := filepath.Join(dir, "data")
	if out, err := command(backup, "-D", data, "-d", s.DSN, "-R", "--checkpoint=fast", "--no-sync").CombinedOutput(); err != nil {
		t.Fatalf("pg_basebackup: %v: %s", err, out)
	}
	standby, err := serve(dir, s.settings)
	need(t, err)
	t.Cleanup(standby.Kill)
	return standby
}

// Promote starts a standby that has crashed as a server of its own.
func (s *Server) Promote(t testing.TB) {
	t.Helper()
	if err := os.Remove(filepath.Join(filepath.Dir(s.log), "data", "standby.signal")); err != nil {
		t.Fatal(err)
	}
	s.Restart(t)
}

// freePort returns a port that nobody listens on. It lies below those that the kernel gives to outgoing
// connections: one of these would keep a server that has crashed from starting again.
func freePort() (port string, err error) {
	for range 100 {
		port = strconv.Itoa(10000 + rand.IntN(10000)) // Redis servers of tests have those above
		var l net.Listener
		if l, err = new(net.ListenConfig).Listen(context.Background(), "tcp", net.JoinHostPort("127.0.0.1", port)); err == nil {
			return port, l.Close()
		}
	}
	return "", err
}
