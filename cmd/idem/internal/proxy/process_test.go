package proxy

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
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

	"example.com/idempotency/internal/guardtest"
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

// A reply is what a client got, or that it got nothing.
type reply struct {
	status   int
	code     string
	body     string
	replayed bool
	err      error
}

// charge sends one try of a charge.
func charge(ctx context.Context, addr, id string) reply {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/charges", strings.NewReader(`{"id":"`+id+`"}`))
	if err != nil {
		return reply{err: err}
	}
	r.Close = true
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer alice")
	r.Header.Set("Idempotency-Key", id)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return reply{err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header.Get("Idempotency-Error"), string(body), resp.Header.Get("Idempotent-Replayed") != "", err}
}

// insist sends a charge until there is an answer, or nobody will run it any more.
func insist(ctx context.Context, p *process, id string) reply {
	for {
		got := charge(ctx, p.address(), id)
		switch {
		case got.err == nil && got.status == http.StatusCreated, got.code == "outcome-unknown", ctx.Err() != nil:
			return got
		}
		pause(20 * time.Millisecond)
	}
}
