package proxy

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
)

// This file has proxies in the process of the test, and services that misbehave.

// A front is a proxy in front of a service.
type front struct {
	*httptest.Server
	log *guardtest.LockedBuffer
}

// startFront serves a proxy for a service, with a store in memory.
func startFront(t *testing.T, to string, change func(*Config)) *front {
	t.Helper()
	c := Default()
	c.To = to
	if change != nil {
		change(&c)
	}
	log := new(guardtest.LockedBuffer)
	logger := slog.New(slog.NewJSONHandler(log, nil))
	store := idempotency.NewMemoryStore()
	table, handler, err := c.build(store, logs{logger, logger.Handler()})
	require.NoError(t, err)
	s := httptest.NewUnstartedServer(handler)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Config.ErrorLog = slog.NewLogLogger(logger.Handler(), slog.LevelInfo)
	s.Start()
	t.Cleanup(func() {
		s.Close()
		require.NoError(t, table.root.Shutdown(t.Context()))
	})
	return &front{s, log}
}

// send sends a request with a key and a caller. Fields are "Name: value"; a name with a minus in front is taken away.
func (f *front) send(t *testing.T, method, path, key string, fields ...string) guardtest.Reply {
	t.Helper()
	return f.sendBody(t, method, path, "", append([]string{"Authorization: Bearer alice", "Idempotency-Key: " + key}, fields...)...)
}

// sendBody sends a request with a body, and these fields only.
func (f *front) sendBody(t *testing.T, method, path, body string, fields ...string) guardtest.Reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, f.URL+path, strings.NewReader(body))
	require.NoError(t, err)
	for _, field := range fields {
		name, value, _ := strings.Cut(field, ": ")
		if gone, ok := strings.CutPrefix(name, "-"); ok {
			r.Header.Del(gone)
		} else if field != "Idempotency-Key: " {
			r.Header.Add(name, value)
		}
	}
	return f.do(t, r)
}

func (f *front) do(t *testing.T, r *http.Request) guardtest.Reply {
	t.Helper()
	got, err := guardtest.Read(f.Client().Do(r)) //nolint:bodyclose // Read closes it
	require.NoError(t, err)
	return got
}

// received reads the answer to a request that was sent by hand.
func received(t *testing.T, in *bufio.Reader) guardtest.Reply {
	t.Helper()
	got, err := guardtest.Read(http.ReadResponse(in, nil)) //nolint:bodyclose // Read closes it
	require.NoError(t, err)
	return got
}

// dial sends a request by hand.
func (f *front) dial(t *testing.T, request string) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", f.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	_, err = io.WriteString(c, request)
	require.NoError(t, err)
	return c, bufio.NewReader(c)
}

// startTold serves a proxy for a service that answers with the header that it got.
func startTold(t *testing.T, path string, change func(*Config)) *front {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Date"] = nil
		all := r.Header.Clone()
		all["Host"], all["Target"] = []string{r.Host}, []string{r.RequestURI}
		_ = json.NewEncoder(w).Encode(all)
	}))
	t.Cleanup(s.Close)
	return startFront(t, s.URL+path, change)
}

// told returns the header that the service got.
func told(t *testing.T, got guardtest.Reply) (h http.Header) {
	t.Helper()
	require.Equal(t, http.StatusOK, got.Status, got.Body)
	require.NoError(t, json.Unmarshal([]byte(got.Body), &h))
	return h
}

// A rawService answers each request as a function of its number says, byte by byte.
type rawService struct {
	net.Listener
	url string

	mu    sync.Mutex
	seen  []*http.Request
	conns []net.Conn
}

// startRaw serves. The function gets the number of the request, from 1, and the connection, on which it answers;
// if it returns false the connection is closed.
func startRaw(t *testing.T, l net.Listener, answer func(n int, c net.Conn) bool) *rawService {
	t.Helper()
	s := &rawService{Listener: l, url: "http://" + l.Addr().String()}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns = append(s.conns, c)
			s.mu.Unlock()
			conns.Go(func() { s.serve(c, answer) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		s.mu.Lock()
		for _, c := range s.conns {
			c.Close()
		}
		s.mu.Unlock()
		conns.Wait()
	})
	return s
}

func (s *rawService) serve(c net.Conn, answer func(n int, c net.Conn) bool) {
	defer c.Close()
	in := bufio.NewReader(c)
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		s.mu.Lock()
		s.seen = append(s.seen, r)
		n := len(s.seen)
		s.mu.Unlock()
		if !answer(n, c) {
			return
		}
	}
}

func (s *rawService) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.seen)
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return l
}

const (
	wholeAnswer  = "HTTP/1.1 201 Created\r\nContent-Length: 4\r\n\r\ndone"
	halfDeclared = "HTTP/1.1 201 Created\r\nContent-Length: 40\r\n\r\ndone"
	halfChunked  = "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ndone\r\n"
)

// This file has proxies and services that are processes of their own, and can be killed.

// TestMain is also the proxy, for a test that runs one: with its configuration in a file.
func TestMain(m *testing.M) {
	if to := os.Getenv("PROXY_BARE"); to != "" {
		_, _ = fmt.Fprintln(os.Stderr, bare(to))
		os.Exit(1)
	}
	file := os.Getenv("PROXY_FILE")
	if file == "" {
		os.Exit(guardtest.Main(m))
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	c := Default()
	err := c.Read(file)
	if err == nil {
		err = Run(ctx, c, os.Stderr)
	}
	stop()
	if err != nil {
		_, _ = io.WriteString(os.Stderr, err.Error())
		os.Exit(1)
	}
	os.Exit(0)
}

// A process is a child that can be started again after its death.
type process struct {
	args  []string
	env   []string
	ready func(line string) string // the address, in the line that tells it
	out   bool                     // it tells it on its standard output

	mu   sync.Mutex
	cmd  *exec.Cmd
	addr string
}

func (p *process) start() error {
	cmd := exec.CommandContext(context.Background(), p.args[0], p.args[1:]...)
	cmd.Env = append(os.Environ(), p.env...)
	pipe, err := cmd.StderrPipe()
	if p.out {
		cmd.Stderr = os.Stderr
		pipe, err = cmd.StdoutPipe()
	}
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(pipe)
	for lines.Scan() {
		if addr := p.ready(lines.Text()); addr != "" {
			p.mu.Lock()
			p.cmd, p.addr = cmd, addr
			p.mu.Unlock()
			go func() { _, _ = io.Copy(io.Discard, pipe) }()
			return nil
		}
	}
	return errors.Join(errors.New("it ended at once"), cmd.Wait())
}

func (p *process) address() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.addr
}

// kill ends the process at once, as kill -9 does.
func (p *process) kill() { _ = p.end(syscall.SIGKILL) }

func (p *process) end(with syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return nil
	}
	cmd := p.cmd
	p.cmd = nil
	return errors.Join(cmd.Process.Signal(with), cmd.Wait())
}

// listening returns the address in the first line of a proxy's log.
func listening(line string) string {
	var l struct{ Msg, On string }
	if json.Unmarshal([]byte(line), &l) != nil || l.Msg != "listening" {
		return ""
	}
	return l.On
}

// newProxy starts a proxy with a file of settings.
func newProxy(t *testing.T, settings string) *process {
	t.Helper()
	file := filepath.Join(t.TempDir(), "proxy.yaml")
	require.NoError(t, os.WriteFile(file, []byte(settings), 0o600))
	p := &process{args: []string{os.Args[0]}, env: []string{"PROXY_FILE=" + file}, ready: listening}
	require.NoError(t, p.start())
	t.Cleanup(p.kill)
	return p
}

// newService starts a service in another language, with a ledger of its effects.
func newService(t *testing.T, language, ledger string) *process {
	t.Helper()
	program := map[string][]string{
		"node": {"node", "testdata/service.cjs"}, "python": {"python3", "testdata/service.py"},
	}[language]
	path, err := exec.LookPath(program[0])
	if err != nil {
		t.Skip(program[0] + " is not installed") // scripts/test.sh knows these words
	}
	p := &process{args: []string{path, program[1], ledger, "5"}, out: true, ready: func(line string) string { return "127.0.0.1:" + line }}
	require.NoError(t, p.start())
	t.Cleanup(p.kill)
	return p
}

// pause lets other processes work.
func pause(d time.Duration) {
	time.Sleep(d) // other processes tell nobody where they are
}

// effects counts the lines of a ledger that are of one charge.
func effects(ledger, id string) int {
	text, err := os.ReadFile(ledger)
	if err != nil {
		return 0
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		if line == id+"\n" {
			n++
		}
	}
	return n
}

// charge sends one try of a charge.
func charge(ctx context.Context, addr, id string) (guardtest.Reply, error) {
	s := guardtest.Server{URL: "http://" + addr, Client: http.DefaultClient}
	return s.Try(ctx, guardtest.Call{Key: id, Body: `{"id":"` + id + `"}`, Header: http.Header{
		"Authorization": {"Bearer alice"}, "Connection": {"close"},
	}})
}

// insist sends a charge until there is an answer, or nobody will run it any more.
func insist(ctx context.Context, p *process, id string) (guardtest.Reply, error) {
	for {
		got, err := charge(ctx, p.address(), id)
		switch {
		case err == nil && got.Status == http.StatusCreated, got.Problem.Code == problem.OutcomeUnknown, ctx.Err() != nil:
			return got, err
		}
		pause(20 * time.Millisecond)
	}
}
