// Package redistest starts real Redis servers for tests: child processes on free
// loopback ports that keep nothing and end with the test.
//
// Tests that need one run with REDIS_REQUIRED=1 in the environment, as in continuous integration, and then
// fail where no redis-server is installed. Otherwise they are skipped.
package redistest

import (
	"context"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A Server is one running redis-server.
type Server struct {
	// Addr is where it listens.
	Addr string

	args  []string
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process has
}

// Start starts a server with further command line arguments, and returns when it
// answers. It ends with the test.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	ports := allPorts
	if slices.Contains(args, "--cluster-enabled") {
		ports = clusterPorts
	}
	return launch(t, ports, func(dir, port string) []string {
		return append([]string{
			"--port", port, "--bind", "127.0.0.1", "--dir", dir, "--logfile", "log",
			"--save", "", "--appendonly", "no", "--daemonize", "no",
			// A replica need not wait for more replicas to share its first copy with.
			"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1",
		}, args...)
	})
}

// launch starts a server with a directory and a port of its own, one of the first so many, from which
// commandLine makes its arguments.
func launch(t testing.TB, ports int, commandLine func(dir, port string) []string) *Server {
	t.Helper()
	if os.Getenv("REDIS_REQUIRED") != "1" {
		t.Skip("REDIS_REQUIRED=1 runs it with a redis-server, and so does make check")
	}
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Fatal("redis-server is not installed, and REDIS_REQUIRED=1")
	}
	dir := t.TempDir()
	// A port may be taken between its choice and its use.
	for range 5 {
		port := freePort(t, ports)
		s := &Server{
			Addr: net.JoinHostPort("127.0.0.1", port),
			args: append([]string{path}, commandLine(dir, port)...),
		}
		if s.start() {
			t.Cleanup(s.Kill)
			return s
		}
	}
	t.Fatal("redis-server does not start")
	return nil
}

// start runs the process and tells whether it is ready: it, and not another server that
// has got its port.
func (s *Server) start() bool {
	s.cmd = exec.CommandContext(context.Background(), s.args[0], s.args[1:]...)
	endWithParent(s.cmd)
	if s.cmd.Start() != nil {
		return false
	}
	ended := make(chan struct{})
	s.ended = ended
	go func() {
		_ = s.cmd.Wait()
		close(ended)
	}()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		reply, _ := s.do("INFO")
		info := s.info(reply)
		if info["process_id"] == strconv.Itoa(s.cmd.Process.Pid) && info["loading"] != "1" { // a Sentinel loads nothing
			return true
		}
		select {
		case <-ended:
			return false
		case <-time.After(5 * time.Millisecond):
		}
	}
	s.Kill()
	return false
}

// Kill ends the process at once, without giving it time to do anything.
func (s *Server) Kill() {
	_ = s.cmd.Process.Kill()
	<-s.ended
}

// Restart starts a killed server again at the same address, with what it has persisted:
// by default nothing.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	if !s.start() {
		t.Fatalf("redis-server %s does not start again", s.Addr)
	}
}

// Pause stops the process without ending it: its connections stay open and silent.
func (s *Server) Pause(t testing.TB) {
	t.Helper()
	if err := s.cmd.Process.Signal(signalStop); err != nil {
		t.Fatal(err)
	}
}

// Resume lets a paused process go on.
func (s *Server) Resume(t testing.TB) {
	t.Helper()
	if err := s.cmd.Process.Signal(signalContinue); err != nil {
		t.Fatal(err)
	}
}

// Do sends a command and returns its reply: string, int64, []any or nil.
func (s *Server) Do(t testing.TB, args ...any) any {
	t.Helper()
	reply, err := s.do(args...)
	if err != nil {
		t.Fatalf("redis %s: %v: %v", s.Addr, args, err)
	}
	return reply
}

func (s *Server) do(args ...any) (any, error) {
	c, err := dial(s.Addr)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	return c.do(args...)
}

// Info returns one section of what the server says about itself.
func (s *Server) Info(t testing.TB, section string) map[string]string {
	t.Helper()
	return s.info(s.Do(t, "INFO", section))
}

func (s *Server) info(reply any) map[string]string {
	info := make(map[string]string)
	text, _ := reply.(string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info
}

// Before reports whether the server is an older Redis than that version. Valkey says that it is a Redis
// 7.2, and is none of the older ones.
func (s *Server) Before(t testing.TB, version string) bool {
	t.Helper()
	is, err := parseVersion(s.Info(t, "server")["redis_version"])
	if err != nil {
		t.Fatal(err)
	}
	than, err := parseVersion(version)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Compare(is, than) < 0
}

// parseVersion returns the numbers of a version.
func parseVersion(version string) (numbers []int, err error) {
	for part := range strings.SplitSeq(version, ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil, err
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}

// Calls returns how often each command was executed since the server was started or
// [Server.ForgetCalls] was called. Commands in scripts and transactions count too.
func (s *Server) Calls(t testing.TB) map[string]int {
	t.Helper()
	calls := make(map[string]int)
	for name, value := range s.Info(t, "commandstats") {
		count, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
		n, err := strconv.Atoi(count)
		if err != nil {
			t.Fatalf("commandstats: %s:%s", name, value)
		}
		calls[strings.TrimPrefix(name, "cmdstat_")] = n
	}
	return calls
}

// ForgetCalls makes [Server.Calls] begin anew.
func (s *Server) ForgetCalls(t testing.TB) {
	t.Helper()
	s.Do(t, "CONFIG", "RESETSTAT")
}

// Advance lets d pass for the keys whose names begin with prefix: their expiry comes
// nearer by d. That is what passing time does to a client that leaves time to the
// expiry clock of the server.
func (s *Server) Advance(t testing.TB, prefix string, d time.Duration) {
	t.Helper()
	c, err := dial(s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	do := func(args ...any) any {
		reply, err := c.do(args...)
		if err != nil {
			t.Fatalf("redis %s: %v: %v", s.Addr, args, err)
		}
		return reply
	}
	// KEYS, because a SCAN may return a key twice.
	for _, key := range do("KEYS", prefix+"*").([]any) {
		ttl := do("PTTL", key).(int64)
		switch left := ttl - d.Milliseconds(); {
		case ttl < 0:
		case left <= 0:
			do("DEL", key)
		default:
			do("PEXPIRE", key, left)
		}
	}
}

// StartReplica starts a replica of master and returns when it has its data.
func StartReplica(t testing.TB, master *Server) *Server {
	t.Helper()
	online := func() int {
		replication, n := master.Info(t, "replication"), 0
		for name, said := range replication {
			if strings.HasPrefix(name, "slave") && strings.Contains(said, "state=online") {
				n++
			}
		}
		return n
	}
	before := online()
	replica := StartReplicaVia(t, master.Addr)
	if !waitFor(func() bool { return online() > before }) {
		t.Fatal("master does not find its replica in step")
	}
	return replica
}

// StartReplicaVia is [StartReplica] for a master that the replica is to reach at addr,
// where something may stand between the two.
func StartReplicaVia(t testing.TB, addr string) *Server {
	t.Helper()
	host, port, _ := net.SplitHostPort(addr)
	replica := Start(t, "--replicaof", host, port)
	if !waitFor(func() bool { return replica.Info(t, "replication")["master_link_status"] == "up" }) {
		t.Fatal("replica does not find its master")
	}
	return replica
}

// waitFor asks until the answer is yes, or for as long as it is reasonable.
func waitFor(yes func() bool) bool {
	for deadline := time.Now().Add(patience); !yes(); {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(5 * time.Millisecond)
	}
	return true
}

// The ports of servers, from firstPort on. They lie below those that the kernel gives to outgoing
// connections, of which the tests make many. The nodes of a Cluster talk to each other on ports that are
// ten thousand higher, before Redis 7.0 always, and no other server has these.
const (
	firstPort    = 20000
	allPorts     = 10000
	clusterPorts = 2700
)

// freePort returns one of the first so many ports, on which nobody listens.
func freePort(t testing.TB, ports int) string {
	t.Helper()
	for range 100 {
		port := strconv.Itoa(firstPort + rand.IntN(ports))
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort("127.0.0.1", port))
		if err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatal("no free port")
	return ""
}
