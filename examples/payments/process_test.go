package main

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/problem"
)

// runMain in the environment makes this test binary run the program that it tests.
const runMain = "PAYMENTS_TEST_RUN_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(runMain) != "" {
		main()
		return
	}
	redistest.AtOnce(8)
	os.Exit(m.Run())
}

// A process is a running payment API.
type process struct{ *guardtest.Program }

// start starts a process on a free port.
func start(t *testing.T, args ...string) process {
	t.Helper()
	cmd := guardtest.Itself([]string{runMain + "=1"}, append([]string{"-addr", "127.0.0.1:0"}, args...)...)
	return process{guardtest.StartProgram(t, cmd)}
}

const hundredEuros = `{"amount":100,"currency":"eur"}`

// alice returns a payment of hers.
func alice(path, key string) guardtest.Call {
	return guardtest.Call{Path: path, Key: key, Body: hundredEuros, Header: http.Header{"Authorization": {"Bearer token-of-alice"}}}
}

// count returns how many payments of each kind the process has made.
func (p process) count(t *testing.T) map[string]int {
	t.Helper()
	resp, err := p.Client.Get(p.URL + "/count")
	require.NoError(t, err)
	defer resp.Body.Close()
	var counts map[string]int
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&counts))
	return counts
}

// A result is an answer, or the error that a client got instead.
type result struct {
	guardtest.Reply
	err error
}

// try sends a payment, and lets it go on when the test has ended.
func (p process) try(t *testing.T, c guardtest.Call, results chan<- result) {
	reply, err := p.Try(context.WithoutCancel(t.Context()), c)
	results <- result{reply, err}
}

// begin sends the same payment twice at once and returns when one of them is refused as a
// duplicate. The other one is then in flight, and its result comes later.
func (p process) begin(t *testing.T, path, key string) <-chan result {
	t.Helper()
	results := make(chan result, 2)
	for range 2 {
		go p.try(t, alice(path, key), results)
	}
	refused := <-results
	require.NoError(t, refused.err)
	guardtest.RequireProblem(t, refused.Reply, http.StatusConflict, problem.InFlight)
	require.Equal(t, "1", refused.Header.Get("Retry-After"))
	return results
}

// requirePaid checks that an answer is that of a run, and returns the payment.
func requirePaid(t *testing.T, got guardtest.Reply, attempt int) (paid payment) {
	t.Helper()
	require.Equal(t, http.StatusCreated, got.Status, got.Body)
	require.False(t, got.Replayed())
	require.NoError(t, json.Unmarshal([]byte(got.Body), &paid))
	require.Equal(t, attempt, paid.Attempt)
	require.NotEmpty(t, paid.ID)
	require.True(t, strings.HasSuffix(got.Header.Get("Location"), "/"+paid.ID), got.Header.Get("Location"))
	return paid
}

func TestPaymentsAreSafeToRetry(t *testing.T) {
	t.Parallel()
	p := start(t, "-delay", "1s")

	first := p.Do(t, alice("/charges", "order-1"))
	requirePaid(t, first, 1)
	guardtest.RequireReplay(t, first, p.Do(t, alice("/charges", "order-1")))

	other := alice("/charges", "order-1")
	other.Body = `{"amount":999,"currency":"eur"}`
	guardtest.RequireProblem(t, p.Do(t, other), http.StatusConflict, problem.KeyReused)

	running := p.begin(t, "/charges", "order-2") // one of two at once is refused as in flight
	second := <-running
	require.NoError(t, second.err)
	requirePaid(t, second.Reply, 1)
	guardtest.RequireReplay(t, second.Reply, p.Do(t, alice("/charges", "order-2")))

	guardtest.RequireProblem(t, p.Do(t, alice("/charges", "bad,key")), http.StatusBadRequest, problem.KeyInvalid)
	guardtest.RequireProblem(t, p.Do(t, alice("/charges", "")), http.StatusBadRequest, problem.KeyMissing)
	require.Equal(t, map[string]int{"charges": 2, "payouts": 0, "transfers": 0}, p.count(t))
}

func TestTransfersWaitForTheAnswer(t *testing.T) {
	t.Parallel()
	p := start(t, "-delay", "1s")

	const clients = 5
	results := make(chan result, clients)
	for range clients {
		go p.try(t, alice("/transfers", "order-3"), results)
	}
	var all []guardtest.Reply
	for range clients {
		got := <-results
		require.NoError(t, got.err)
		all = append(all, got.Reply)
	}
	ran := slices.IndexFunc(all, func(a guardtest.Reply) bool { return !a.Replayed() })
	require.GreaterOrEqual(t, ran, 0)
	requirePaid(t, all[ran], 1)
	for _, a := range slices.Delete(slices.Clone(all), ran, ran+1) {
		guardtest.RequireReplay(t, all[ran], a)
	}
	require.Equal(t, 1, p.count(t)["transfers"])

	// The key is optional here: each request without one is a transfer of its own.
	requirePaid(t, p.Do(t, alice("/transfers", "")), 1)
	require.Equal(t, 2, p.count(t)["transfers"])
}

// In a shell, the lines that the program prints do what their comments say.
func TestPrintedCommands(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"sh", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(tool + " is not installed")
		}
	}
	p := start(t, "-delay", "1s")
	script := ""
	for !strings.Contains(script, "/count") { // the last line
		line, err := p.Stdout.ReadString('\n')
		require.NoError(t, err)
		script += line
	}
	shell := exec.CommandContext(t.Context(), "sh", "-c", script)
	shell.Stderr = t.Output()
	out, err := shell.Output()
	require.NoError(t, err)

	var got []string
	for _, answer := range strings.Split(string(out), "HTTP/1.1 ")[1:] {
		label, _, _ := strings.Cut(answer, " ")
		if code := regexp.MustCompile(`"code":"([^"]+)"`).FindStringSubmatch(answer); code != nil {
			label += " " + code[1]
		}
		if strings.Contains(answer, "Idempotent-Replayed: true") {
			label += " replayed"
		}
		got = append(got, label)
	}
	require.Len(t, got, 8, "%s", out)
	slices.Sort(got[3:5]) // two at once
	slices.Sort(got[5:7])
	require.Equal(t, []string{
		"201", "201 replayed", "409 key-reused", "201", "409 in-flight", "201", "201 replayed", "400 key-invalid",
	}, got, "%s", out)
	require.Contains(t, string(out), `{"charges":2,"payouts":0,"transfers":1}`)
}

func TestProcessesShareOneKey(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	processes := []process{
		start(t, "-redis", redis.Addr, "-delay", "50ms"),
		start(t, "-redis", redis.Addr, "-delay", "50ms"),
	}

	const clients = 200
	results := make(chan result, clients)
	for i := range clients {
		go processes[i%2].try(t, alice("/charges", "order-1"), results)
	}
	var ran, others []guardtest.Reply
	for range clients {
		got := <-results
		require.NoError(t, got.err)
		if got.Status == http.StatusCreated && !got.Replayed() {
			ran = append(ran, got.Reply)
		} else {
			others = append(others, got.Reply)
		}
	}
	require.Len(t, ran, 1)
	requirePaid(t, ran[0], 1)
	for _, got := range others {
		if got.Replayed() {
			guardtest.RequireReplay(t, ran[0], got)
		} else {
			guardtest.RequireProblem(t, got, http.StatusConflict, problem.InFlight)
		}
	}
	charges := 0
	for _, p := range processes {
		guardtest.RequireReplay(t, ran[0], p.Do(t, alice("/charges", "order-1")))
		charges += p.count(t)["charges"]
	}
	require.Equal(t, 1, charges)
}

// When the process that holds a key is killed, a charge runs again and a payout is held.
func TestKilledProcess(t *testing.T) {
	t.Parallel()
	const lease = 30 * time.Second

	// settled kills a process in the middle of a payment, and sends the payment to the survivor before
	// and after the end of the lease.
	settled := func(t *testing.T, path, key string) (got guardtest.Reply, survivor process) {
		redis := redistest.Start(t)
		start := func(delay string) process {
			return start(t, "-redis", redis.Addr, "-lease", lease.String(), "-delay", delay)
		}
		survivor = start("0s")
		victim := start("1h")
		running := victim.begin(t, path, key)
		require.NoError(t, victim.Cmd.Process.Kill())
		require.Error(t, (<-running).err)
		require.Equal(t, problem.InFlight, survivor.Do(t, alice(path, key)).Problem.Code, "the lease outlives its process")
		redis.Advance(t, "", lease)
		return survivor.Do(t, alice(path, key)), survivor
	}

	t.Run("a charge runs again", func(t *testing.T) {
		t.Parallel()
		second, survivor := settled(t, "/charges", "order-1")
		requirePaid(t, second, 2)
		guardtest.RequireReplay(t, second, survivor.Do(t, alice("/charges", "order-1")))
		require.Equal(t, 1, survivor.count(t)["charges"])
	})
	t.Run("a payout is held", func(t *testing.T) {
		t.Parallel()
		held, survivor := settled(t, "/payouts", "order-2")
		guardtest.RequireProblem(t, held, http.StatusConflict, problem.OutcomeUnknown)
		require.Zero(t, survivor.count(t)["payouts"])
	})
}

func TestTerminatedProcessLeavesItsAnswer(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	leaving := start(t, "-redis", redis.Addr, "-delay", "1s")
	staying := start(t, "-redis", redis.Addr)

	running := leaving.begin(t, "/charges", "order-1")
	leaving.Stop(t)
	first := <-running
	require.NoError(t, first.err)
	requirePaid(t, first.Reply, 1)

	guardtest.RequireReplay(t, first.Reply, staying.Do(t, alice("/charges", "order-1")))
	require.Zero(t, staying.count(t)["charges"])
}

func TestRedisThatEvictsIsRefused(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	_, _, err := openStore(t.Context(), redis.Addr)
	require.ErrorContains(t, err, "allkeys-lru")
}
