package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/problem"
)

// runMain in the environment makes this test binary run the program that it tests. So the
// race detector watches the processes if it watches the tests.
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
type process struct {
	url    string
	banner string // what it printed at start
	cmd    *exec.Cmd
	client *http.Client
}

// start starts a process on a free port and returns when it listens. It is killed at
// the end of the test.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	p := &process{
		cmd:    exec.Command(os.Args[0], append([]string{"-addr", "127.0.0.1:0"}, args...)...),
		client: &http.Client{Transport: transport},
	}
	p.cmd.Env = append(os.Environ(), runMain+"=1")
	p.cmd.Stderr = t.Output()
	stdout, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	})
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		p.banner += lines.Text() + "\n"
		if url, ok := strings.CutPrefix(lines.Text(), "listening on "); ok {
			p.url = url
		}
		if strings.Contains(lines.Text(), "/count") { // the last line
			break
		}
	}
	require.NotEmpty(t, p.url, "the process does not listen; it printed %q", p.banner)
	return p
}

// An answer is the whole answer that a client got.
type answer struct {
	status   int
	header   http.Header
	body     string
	replayed bool
	code     problem.Code // of a refusal by the guard
	payment  payment
}

const hundredEuros = `{"amount":100,"currency":"eur"}`

// pay sends a payment for alice.
func (p *process) pay(t *testing.T, path, key, body string) answer {
	t.Helper()
	got, err := p.try(t.Context(), path, key, body)
	require.NoError(t, err)
	return got
}

func (p *process) try(ctx context.Context, path, key, body string) (answer, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	r.Header.Set("Authorization", "Bearer token-of-alice")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	resp, err := p.client.Do(r)
	if err != nil {
		return answer{}, err
	}
	return readAnswer(resp)
}

func readAnswer(resp *http.Response) (answer, error) {
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, err
	}
	a := answer{
		status:   resp.StatusCode,
		header:   resp.Header,
		body:     string(body),
		replayed: resp.Header.Get("Idempotent-Replayed") == "true",
	}
	switch {
	case resp.Header.Get("Content-Type") == "application/problem+json":
		var document problem.Document
		err = json.Unmarshal(body, &document)
		a.code = document.Code
	case a.status == http.StatusCreated:
		err = json.Unmarshal(body, &a.payment)
	}
	return a, err
}

// count returns how many payments of each kind the process has made.
func (p *process) count(t *testing.T) map[string]int {
	t.Helper()
	resp, err := p.client.Get(p.url + "/count")
	require.NoError(t, err)
	defer resp.Body.Close()
	var counts map[string]int
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&counts))
	return counts
}

// A result is an answer, or the error that a client got instead.
type result struct {
	answer
	err error
}

// begin sends the same payment twice at once and returns when one of them is refused as a
// duplicate. The other one is then in flight, and its result comes later.
func (p *process) begin(t *testing.T, path, key string) <-chan result {
	t.Helper()
	results := make(chan result, 2)
	for range 2 {
		go func() {
			a, err := p.try(context.WithoutCancel(t.Context()), path, key, hundredEuros)
			results <- result{a, err}
		}()
	}
	refused := <-results
	require.NoError(t, refused.err)
	require.Equal(t, problem.InFlight, refused.code, refused.body)
	require.Equal(t, "1", refused.header.Get("Retry-After"))
	return results
}

func requirePaid(t *testing.T, a answer, attempt int) {
	t.Helper()
	require.Equal(t, http.StatusCreated, a.status, a.body)
	require.False(t, a.replayed)
	require.Equal(t, attempt, a.payment.Attempt)
	require.NotEmpty(t, a.payment.ID)
	require.True(t, strings.HasSuffix(a.header.Get("Location"), "/"+a.payment.ID), a.header.Get("Location"))
}

// requireReplay checks that a repeats first, except for the mark of a replay and for the
// Date, which is fresh.
func requireReplay(t *testing.T, first, a answer) {
	t.Helper()
	require.True(t, a.replayed, a.body)
	require.Equal(t, first.status, a.status)
	require.Equal(t, first.body, a.body)
	want, got := first.header.Clone(), a.header.Clone()
	for _, name := range []string{"Date", "Idempotent-Replayed"} {
		want.Del(name)
		got.Del(name)
	}
	require.Equal(t, want, got)
}
