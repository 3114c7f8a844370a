package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/internal/pagetest"
	"example.com/idempotency/internal/pgserver"
	"example.com/idempotency/internal/redistest"
)

// This file is a bad night: a service that knows nothing of us stands behind idem proxy, with a real Redis or
// PostgreSQL, and things go wrong. Somebody sees it in the metrics by which the shipped alerts fire, and settles it with idem. No line
// of code is written for that.

// hurry is for those who wait for the test. With STORY=defaults, the proxy has the lease and the timeout of those who set none.
func hurry() []string {
	if os.Getenv("STORY") == "defaults" {
		return nil
	}
	return []string{"--lease", "2s", "--timeout", "2s"}
}

// nightPatience is longer than the default lease, the default timeout and a look together.
const nightPatience = 3 * time.Minute

// A bank is the service: it books, and answers when it may.
type bank struct {
	*httptest.Server
	booked  atomic.Int32
	stuck   atomic.Bool
	release chan struct{} // lets those who are stuck go
}

func newBank(t *testing.T) *bank {
	t.Helper()
	b := &bank{release: make(chan struct{})}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		n := b.booked.Add(1)
		if b.stuck.Load() {
			<-b.release
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "booked %d", n)
	}))
	t.Cleanup(func() { close(b.release); b.Close() })
	return b
}

// A night is a proxy in a process of its own.
type night struct {
	t            *testing.T
	bank         *bank
	store        []string // the flags that name it, for the proxy and for idem
	cmd          *exec.Cmd
	front, admin string
}

func newNight(t *testing.T, store ...string) *night {
	t.Helper()
	n := &night{t: t, bank: newBank(t), store: store}
	n.start()
	t.Cleanup(func() { n.kill() })
	return n
}

// start runs the proxy until it is killed.
func (n *night) start() {
	n.t.Helper()
	self, err := os.Executable()
	require.NoError(n.t, err)
	n.cmd = exec.CommandContext(context.Background(), self, append([]string{
		"proxy", "--to", n.bank.URL, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--recovery", "hold",
		"--scope", "header:X-Tenant", "--findable", "--reference", "field:order",
	}, append(hurry(), n.store...)...)...)
	n.cmd.Args[0] = "idem"
	n.cmd.Path = self
	log, err := n.cmd.StderrPipe()
	require.NoError(n.t, err)
	require.NoError(n.t, n.cmd.Start())
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		var line struct{ Msg, On, Admin string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "listening" {
			n.front, n.admin = line.On, line.Admin
			break
		}
	}
	require.NotEmpty(n.t, n.front)
	go func() { _, _ = io.Copy(io.Discard, log) }()
}

func (n *night) kill() {
	_ = n.cmd.Process.Kill()
	_ = n.cmd.Wait()
}

// post sends a payment of alice, and returns the status and the body of the answer, or 0.
func (n *night) post(key string) (int, string) { return n.postOf("alice", key, `{"amount":100}`) }

func (n *night) postOf(tenant, key, payment string) (int, string) {
	r, err := http.NewRequestWithContext(n.t.Context(), http.MethodPost, "http://"+n.front+"/payments", strings.NewReader(payment))
	if err != nil {
		return 0, err.Error()
	}
	r.Header.Set("X-Tenant", tenant)
	r.Header.Set("Idempotency-Key", key)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

// metric returns the largest value of a metric that has such labels.
func (n *night) metric(pattern string) (most float64) {
	resp, err := http.Get("http://" + n.admin + "/metrics")
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	for _, m := range regexp.MustCompile(`(?m)^`+pattern+` (\S+)$`).FindAllSubmatch(text, -1) {
		v, _ := strconv.ParseFloat(string(m[len(m)-1]), 64)
		most = max(most, v)
	}
	return most
}

// An alert is one of otelidempotency/prometheus/rules.yml: a metric with labels, what it must be above, and for how long.
type alert struct {
	name, series string
	above        float64
	lasts        string
}

// shipped reads what makes an alert fire. Counters of incidents begin at zero, so that an increase is a value.
func shipped(t *testing.T, name string) alert {
	t.Helper()
	_, rule, found := strings.Cut(string(pagetest.File(t, "../../otelidempotency/prometheus/rules.yml")), "- alert: "+name+"\n")
	require.True(t, found, name)
	rule, _, _ = strings.Cut(rule, "- alert: ")
	expr := regexp.MustCompile(`(idempotency_\w+)\{([^}]*)\}[^>]*> ([\d.]+)`).FindStringSubmatch(rule)
	require.NotNil(t, expr, rule)
	above, err := strconv.ParseFloat(expr[3], 64)
	require.NoError(t, err)
	a := alert{name: name, series: expr[1] + `\{[^}]*` + regexp.QuoteMeta(expr[2]) + `[^}]*\}`, above: above, lasts: "0m"}
	if lasts := regexp.MustCompile(`\bfor: (\w+)`).FindStringSubmatch(rule); lasts != nil {
		a.lasts = lasts[1]
	}
	return a
}

// signal waits until an alert has what it fires by, and returns how long that took. It asks ten times a second: each time,
// the proxy collects all metrics.
func (n *night) signal(since time.Time, name string) time.Duration {
	n.t.Helper()
	a := shipped(n.t, name)
	require.Eventually(n.t, func() bool { return n.metric(a.series) > a.above }, nightPatience, 100*time.Millisecond, name)
	seen := time.Since(since)
	n.t.Logf("%s has its reason after %.1f s, and fires if that lasts for %s", name, seen.Seconds(), a.lasts)
	return seen
}

// ends waits until what an alert fires by is over.
func (n *night) ends(since time.Time, name string) {
	n.t.Helper()
	a := shipped(n.t, name)
	require.Eventually(n.t, func() bool { return n.metric(a.series) <= a.above }, nightPatience, 100*time.Millisecond, name)
	n.t.Logf("%s has ended %.1f s after the decision", name, time.Since(since).Seconds())
}

// The alerts of the story.
const (
	held       = "IdempotencyHeld"
	recordGone = "IdempotencyRecordGone"
	storeReset = "IdempotencyStoreReset"
	refuses    = "IdempotencyStoreRefuses"
)

// idem calls the command line, which must succeed.
func (n *night) idem(args ...string) string {
	n.t.Helper()
	got := call(n.t, append(args, n.store...)...)
	require.Equal(n.t, inspect.ExitOK, got.code, got.err)
	return got.out
}

// decide settles the one record that is held, as a person does: held, why, resolve.
func (n *night) decide(since time.Time, decision ...string) time.Duration {
	n.t.Helper()
	var held struct{ Record, Seen string }
	require.NoError(n.t, json.Unmarshal([]byte(n.idem("held", "-o", "json")), &held))
	require.Contains(n.t, n.idem("why", held.Record), "Nobody knows")
	n.idem(append([]string{"resolve", held.Record, decision[0], "--seen", held.Seen, "--reason", "asked the bank", "--actor", "ada"}, decision[1:]...)...)
	return time.Since(since)
}

// tell says what stands in the table of docs/explanation/durability.md.
func (n *night) tell(seen, settled time.Duration) {
	n.t.Helper()
	n.t.Logf("first signal after %.1f s, settled after %.1f s, lines of own code: 0", seen.Seconds(), settled.Seconds())
}

func killedNight(n *night) {
	n.bank.stuck.Store(true)
	go n.post("k")
	require.Eventually(n.t, func() bool { return n.bank.booked.Load() == 1 }, guardtest.Patience, time.Millisecond)
	n.kill()
	killed := time.Now()
	n.start()
	seen := n.signal(killed, held)
	status, _ := n.post("k")
	require.Equal(n.t, http.StatusConflict, status)
	settled := n.decide(killed, "final", "--unsealed", "--status", "201", "--body", "booked 1")
	n.ends(time.Now(), held)
	status, body := n.post("k")
	require.Equal(n.t, http.StatusCreated, status)
	require.Equal(n.t, "booked 1", body)
	require.EqualValues(n.t, 1, n.bank.booked.Load())
	n.tell(seen, settled)
}

func hangingNight(n *night) {
	n.bank.stuck.Store(true)
	began := time.Now()
	answered := make(chan int, 1)
	go func() { status, _ := n.post("k"); answered <- status }()
	require.Equal(n.t, http.StatusConflict, <-answered)
	seen := n.signal(began, held)
	n.bank.stuck.Store(false)
	settled := n.decide(began, "not-executed")
	n.ends(time.Now(), held)
	status, _ := n.post("k")
	require.Equal(n.t, http.StatusCreated, status)
	n.tell(seen, settled)
}

// Somebody asks whether order 77 went through, and knows no key. Later the tenant goes, and its answers with it.
func askingNight(n *night) {
	for i := range 20 {
		status, _ := n.postOf("alice", fmt.Sprint("k", i), fmt.Sprintf(`{"order":%d}`, 70+i))
		require.Equal(n.t, http.StatusCreated, status)
		status, _ = n.postOf("bob", fmt.Sprint("k", i), fmt.Sprintf(`{"order":"b-%d"}`, i))
		require.Equal(n.t, http.StatusCreated, status)
	}
	asked := time.Now()
	var found struct {
		Record, State string
		Status        int
	}
	require.NoError(n.t, json.Unmarshal([]byte(n.idem("find", "--reference", "77", "-o", "json")), &found))
	require.Equal(n.t, "completed", found.State)
	require.Contains(n.t, n.idem("why", found.Record), "201")
	n.tell(time.Since(asked), time.Since(asked))

	left := time.Now()
	erase := []string{"erase", "--tenant", "alice", "--reason", "contract ended", "--actor", "ada"}
	require.Contains(n.t, n.idem(append(erase, "--dry-run")...), "It would erase 20 completed")
	require.Contains(n.t, n.idem(erase...), "Erased 20 completed")
	require.Equal(n.t, inspect.ExitNotFound, call(n.t, append([]string{"find", "--tenant", "alice"}, n.store...)...).code)
	require.EqualValues(n.t, 40, n.bank.booked.Load())
	status, body := n.postOf("bob", "k0", `{"order":"b-0"}`)
	require.Equal(n.t, http.StatusCreated, status)
	require.Equal(n.t, "booked 2", body, "what others have stays")
	n.tell(time.Since(left), time.Since(left))
}

// nightStores are what a night may have its records in.
var nightStores = map[string]func(t *testing.T) []string{
	"Redis":      func(t *testing.T) []string { return []string{"--redis", "redis://" + redistest.Start(t).Addr} },
	"PostgreSQL": func(t *testing.T) []string { return postgresPlace(t, pgserver.Shared(t).DSN).flags },
}

func TestBadNight(t *testing.T) {
	t.Parallel()
	for name, store := range nightStores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Run("killed before the record", func(t *testing.T) {
				t.Parallel()
				killedNight(newNight(t, store(t)...))
			})
			t.Run("a service hangs", func(t *testing.T) {
				t.Parallel()
				hangingNight(newNight(t, store(t)...))
			})
			t.Run("a tenant asks, and goes", func(t *testing.T) {
				t.Parallel()
				askingNight(newNight(t, store(t)...))
			})
		})
	}
	t.Run("Redis comes back empty", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t)
		n := newNight(t, "--redis", "redis://"+server.Addr)
		status, _ := n.post("k")
		require.Equal(t, http.StatusCreated, status)
		require.Eventually(t, func() bool { return strings.Contains(n.idem("stats"), "born: 20") }, guardtest.Patience, 20*time.Millisecond, "it has begun to look")
		server.Kill()
		server.Restart(t)
		emptied := time.Now()
		require.Eventually(t, func() bool { status, _ := n.post("k"); return status == http.StatusCreated }, guardtest.Patience, 20*time.Millisecond)
		n.signal(emptied, storeReset)
		n.tell(n.signal(emptied, recordGone), time.Since(emptied))
	})
	t.Run("Redis is full", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t)
		n := newNight(t, "--redis", "redis://"+server.Addr)
		server.Do(t, "CONFIG", "SET", "maxmemory", "1")
		full := time.Now()
		status, _ := n.post("k")
		require.Equal(t, http.StatusServiceUnavailable, status)
		require.Zero(t, n.bank.booked.Load())
		seen := n.signal(full, refuses)
		got := call(t, append([]string{"doctor"}, n.store...)...).exits(t, inspect.ExitUnhealthy)
		require.Regexp(t, `memory +fail`, got.out)
		server.Do(t, "CONFIG", "SET", "maxmemory", "0")
		require.Eventually(t, func() bool { status, _ := n.post("k"); return status == http.StatusCreated }, guardtest.Patience, 20*time.Millisecond)
		require.EqualValues(t, 1, n.bank.booked.Load())
		n.tell(seen, time.Since(full))
	})
	t.Run("Redis fails over during a run", func(t *testing.T) {
		t.Parallel()
		master := redistest.Start(t)
		replica := redistest.StartReplica(t, master)
		way := newWay(t, master.Addr)
		n := newNight(t, "--redis", "redis://"+way.Addr().String(), "--timeout", "1m", "--lease", "1m") // longer than the failover
		n.bank.stuck.Store(true)
		answered := make(chan int, 1)
		go func() { status, _ := n.post("k"); answered <- status }()
		require.Eventually(t, func() bool { return n.bank.booked.Load() == 1 }, guardtest.Patience, time.Millisecond)
		master.Do(t, "WAIT", 1, 1000)
		master.Kill()
		killed := time.Now()
		status, _ := n.post("another")
		require.Equal(t, http.StatusServiceUnavailable, status)
		seen := n.signal(killed, refuses)
		replica.Do(t, "REPLICAOF", "NO", "ONE")
		way.turn(replica.Addr)
		n.bank.stuck.Store(false)
		n.bank.release <- struct{}{}
		require.Equal(t, http.StatusCreated, <-answered)
		status, body := n.post("k")
		require.Equal(t, http.StatusCreated, status)
		require.Equal(t, "booked 1", body, "the claim was on the replica, and the run recorded its answer there")
		n.tell(seen, time.Since(killed))
	})
	t.Run("among many records", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t)
		n := newNight(t, "--redis", "redis://"+server.Addr)
		n.post("first")
		many := 20_000 // two million take half a minute
		if text := os.Getenv("STORY_RECORDS"); text != "" {
			many, _ = strconv.Atoi(text)
		}
		server.Do(t, "EVAL", `local of = redis.call('KEYS', 'idem:*') for i, k in ipairs(of) do if redis.call('TYPE', k).ok == 'hash' then
			local d = redis.call('DUMP', k) for i = 1, tonumber(ARGV[1]) do redis.call('RESTORE', k .. i, 86400000, d) end return end end`, 0, many)
		require.Greater(t, server.Do(t, "DBSIZE"), int64(many))
		n.bank.stuck.Store(true)
		began := time.Now()
		go n.post("k")
		n.signal(began, held)
		looked := time.Now()
		n.idem("held")
		t.Logf("the first page of held among %d records took %v", many, time.Since(looked))
		require.Less(t, time.Since(looked), time.Second)
		n.decide(began, "final", "--unsealed", "--status", "201")
	})
}

// Runs die before, in and after a charge and its ledger entry. Whoever is awake resumes each, as the runbook says of steps with
// derived keys.
func TestBadNightOfALedger(t *testing.T) {
	const runs, deaths = 60, 6
	at, _ := redisPlace(t)
	guard := guardtest.NewGuard(t, at.records, idempotency.WithRecovery(idempotency.Hold), idempotency.WithRoute("POST /payments"))
	made := map[string]map[string]bool{"charge": {}, "ledger": {}} // by derived keys
	pay := func(key string, dies int) (w *httptest.ResponseRecorder) {
		w = httptest.NewRecorder()
		defer func() { _ = recover() }()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
		r.Header.Set("Idempotency-Key", key)
		guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			place := 0
			mayDie := func() {
				if place++; place == dies {
					panic(http.ErrAbortHandler)
				}
			}
			mayDie()
			for _, name := range []string{"charge", "ledger"} {
				_, err := idempotency.Step(r.Context(), name, func(ctx context.Context) (int, error) {
					made[name][idempotency.DeriveKey(ctx, name)] = true
					mayDie()
					return 1, nil
				})
				if mayDie(); err != nil {
					return // without an answer, which is not 201
				}
			}
			w.WriteHeader(http.StatusCreated)
		})).ServeHTTP(w, r)
		return w
	}
	for n := range runs {
		pay(fmt.Sprint("k", n), 1+n%deaths) // the last of them does not die
	}
	lost := len(made["charge"]) - len(made["ledger"])
	for line := range strings.Lines(at.idem(t, "held", "-o", "json", "--limit", "100").exits(t, inspect.ExitOK).out) {
		var held struct{ Record, Seen string }
		require.NoError(t, json.Unmarshal([]byte(line), &held))
		at.idem(t, "resolve", held.Record, "resume", "--seen", held.Seen, "--reason", "the keys are derived", "--actor", "ada").exits(t, inspect.ExitOK)
	}
	for n := range runs {
		require.Equal(t, http.StatusCreated, pay(fmt.Sprint("k", n), 0).Code)
	}
	require.Len(t, made["charge"], runs)
	require.Len(t, made["ledger"], runs)
	t.Logf("%d charges had no entry when their runs died; 0 of %d have none now", lost, runs)
}

// A way leads to a server, and can be turned to another.
type way struct {
	net.Listener
	mu    sync.Mutex
	to    string
	conns []net.Conn
}

func newWay(t *testing.T, to string) *way {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w := &way{Listener: l, to: to}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go w.lead(c)
		}
	}()
	t.Cleanup(func() { _ = l.Close(); w.turn("") })
	return w
}

func (w *way) lead(c net.Conn) {
	defer c.Close()
	w.mu.Lock()
	to := w.to
	w.conns = append(w.conns, c)
	w.mu.Unlock()
	up, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer up.Close()
	go func() { _, _ = io.Copy(up, c); _ = up.Close() }()
	_, _ = io.Copy(c, up)
}

// turn ends the connections, and leads new ones to another server.
func (w *way) turn(to string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.to = to
	for _, c := range w.conns {
		_ = c.Close()
	}
	w.conns = nil
}
