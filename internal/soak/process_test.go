//go:build unix

package soak

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/redistest"
)

// A process is a running api.
type process struct {
	name, url string
	cmd       *exec.Cmd
	stdin     io.Closer     // whose end would end the process
	ended     chan struct{} // closed when the process has, with err set
	err       error
	orderly   bool // it was asked to end

	mu        sync.Mutex
	incidents []incident
	logged    map[string]int // number of log lines by message
	alarms    []string       // what a sound process does not say
	losses    []string       // the log lines of runs that could not be settled
	recent    []string       // the last lines of the log
}

// An incident is a time in which a process could not do what it had begun. One that has
// not ended ends at the zero time.
type incident struct{ from, to time.Time }

// launch starts a process and returns when it listens. It is killed at the end of the
// test.
func launch(t *testing.T, name string, args ...string) *process {
	t.Helper()
	p := &process{
		name:  name,
		cmd:   exec.Command(os.Args[0], append([]string{"-name", name}, args...)...),
		ended: make(chan struct{}), logged: make(map[string]int),
	}
	p.cmd.Env = append(os.Environ(), runAPI+"=1")
	stdin, err := p.cmd.StdinPipe()
	require.NoError(t, err)
	p.stdin = stdin
	stdout, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	stderr, err := p.cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	url, err := bufio.NewReader(stdout).ReadString('\n')
	p.url = strings.TrimSpace(url)
	go func() {
		p.listen(stderr)
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.kill()
		<-p.ended
	})
	require.NoError(t, err, "%s does not listen", name)
	return p
}

// listen reads the log to its end, and keeps how often each thing was said. What is not
// a line of the log was said by the runtime: a panic, or the race detector.
func (p *process) listen(stderr io.Reader) {
	for lines := bufio.NewReader(stderr); ; {
		text, err := lines.ReadString('\n')
		var line struct{ Msg string }
		isLog := json.Unmarshal([]byte(text), &line) == nil
		p.mu.Lock()
		if isLog {
			p.logged[line.Msg]++
			p.recent = append(p.recent[max(0, len(p.recent)-recentLines+1):], text)
			if line.Msg == logLost {
				p.losses = append(p.losses, text)
			}
		} else if text != "" && len(p.alarms) < 5000 {
			p.alarms = append(p.alarms, text)
		}
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// What the library logs.
const (
	logDelayed = "idempotency: settling a run goes on in the background"
	logLost    = "idempotency: run could not be settled"
	logLeft    = "idempotency: claim could not be given back"
	logLease   = "idempotency: lease lost"
	logStore   = "idempotency: store call failed"

	logTakeover = "idempotency: key taken over from a run whose lease had ended"
)

// recentLines is how much of a process's log is kept for the report of a broken promise.
const recentLines = 400

// log returns the last lines of the process's log.
func (p *process) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.recent, "")
}

// stacks ends the process, and returns what each of its goroutines was doing.
func (p *process) stacks() string {
	p.disturb(syscall.SIGQUIT)
	<-p.ended
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.alarms, "")
}

// said returns how often the process has logged a message.
func (p *process) said(message string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.logged[message]
}

// logOf returns what the end of the log says of a record.
func (p *process) logOf(record string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	about := slices.DeleteFunc(slices.Clone(p.recent), func(line string) bool { return !strings.Contains(line, record) })
	return strings.Join(about, "")
}

// requireSound fails if the process has said what no sound process says. It must have
// ended.
func (p *process) requireSound(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	require.Empty(t, p.alarms, "%s said:\n%s", p.name, strings.Join(p.alarms, ""))
}

// disturb begins an incident, and then signals: whoever sees the signal's effect must
// find the incident.
func (p *process) disturb(signal syscall.Signal) {
	p.mu.Lock()
	p.incidents = append(p.incidents, incident{from: time.Now()})
	p.mu.Unlock()
	_ = p.cmd.Process.Signal(signal)
}

func (p *process) kill() { p.disturb(syscall.SIGKILL) }
func (p *process) stop() { p.disturb(syscall.SIGSTOP) }

// terminate asks the process to end in an orderly way.
func (p *process) terminate() {
	p.orderly = true
	p.disturb(syscall.SIGTERM)
}

// resume lets a stopped process go on.
func (p *process) resume() {
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	p.mu.Lock()
	defer p.mu.Unlock()
	last := &p.incidents[len(p.incidents)-1]
	last.to = time.Now()
}

// disturbed reports whether the process had an incident since a time.
func (p *process) disturbed(since time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, i := range p.incidents {
		if i.to.IsZero() || i.to.After(since) {
			return true
		}
	}
	return false
}

// exit waits until the process has ended and returns how.
func (p *process) exit(t *testing.T) error {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		require.FailNow(t, p.name+" does not end")
	}
	return p.err
}

// patience is how long anything may take on a busy machine.
const patience = 30 * time.Second

// stats asks the process how it is.
func (p *process) stats(t *testing.T) stats {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/stats", nil)
	require.NoError(t, err)
	r.Close = true
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	var s stats
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&s))
	return s
}

// runAPI in the environment makes this test binary be the program that it tests: the
// processes of the tests are built, with or without the race detector, as the tests are.
const runAPI = "SOAK_RUN_API"

func TestMain(m *testing.M) {
	if os.Getenv(runAPI) != "" {
		os.Exit(apiMain())
	}
	redistest.AtOnce(8)
	os.Exit(m.Run())
}

// apiMain is the program. It prints its address when it listens and ends at SIGTERM, in
// an orderly way, or at once when its standard input does: whoever started it has gone.
func apiMain() int {
	var c config
	flag.StringVar(&c.name, "name", "", "what the ledger calls this process")
	flag.StringVar(&c.redis, "redis", "", "address of Redis")
	flag.StringVar(&c.ledger, "ledger", "", "URL of the ledger")
	flag.DurationVar(&c.lease, "lease", 0, "lease of the guard")
	flag.DurationVar(&c.grace, "grace", 0, "how long a shutdown may take")
	flag.IntVar(&c.version, "version", 0, "of an api that shows what is true from outside, if not 0")
	flag.StringVar(&c.crash, "crash", "", "moment at which the process kills itself")
	flag.Parse()

	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	redis.SetLogger(quiet{}) // the library reports what matters of a failing store
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	slog.SetDefault(log)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := c.serve(ctx, func(url string) { fmt.Println(url) }); err != nil {
		log.Error("api", "error", err)
		return 1
	}
	return 0
}

type config struct {
	name, redis, ledger string
	lease, grace        time.Duration
	crash               string
	version             int
}

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}
