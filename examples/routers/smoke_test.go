// Package routers_test runs the example programs and retries requests to them.
package routers_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/examples/routers/shop"
)

var programs = []string{"servemux", "chi", "gin", "echo"}

// bin is the directory with the programs.
var bin string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if bin, err = os.MkdirTemp("", "routers"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(bin) }()
		args := []string{"build", "-o", bin + string(filepath.Separator)}
		for _, name := range programs {
			args = append(args, "./"+name)
		}
		if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

// start runs a program on a free port and returns its address.
func start(t *testing.T, name string) string {
	t.Helper()
	cmd := exec.Command(filepath.Join(bin, name), "-addr", "127.0.0.1:0")
	cmd.Stderr = t.Output()
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	require.True(t, ok, line)
	return url
}

// A call is one request; the zero caller is alice.
type call struct{ path, key, body, caller string }

type answer struct {
	status   int
	header   http.Header
	body     string
	replayed bool
}

// client opens a connection for each request. Go's client repeats a request with a key by
// itself when a connection that it has used before is cut.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func send(t *testing.T, url string, c call) (answer, error) {
	t.Helper()
	if c.caller == "" {
		c.caller = "alice"
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+c.path, strings.NewReader(c.body))
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer token-of-"+c.caller)
	r.Header.Set("Content-Type", "application/json")
	if c.key != "" {
		r.Header.Set("Idempotency-Key", c.key)
	}
	resp, err := client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return answer{resp.StatusCode, resp.Header, string(body), resp.Header.Get("Idempotent-Replayed") == "true"}, nil
}

func TestRetries(t *testing.T) {
	t.Parallel()
	for _, name := range programs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := start(t, name)
			runs := 0

			for _, c := range []struct {
				what, body string
				status     int
				runs       int
			}{
				{"success", `{"amount":100}`, http.StatusCreated, 1},
				{"error", `{"amount":0}`, http.StatusUnprocessableEntity, 1},
				{"abort", fmt.Sprintf(`{"amount":%d}`, shop.Declined), http.StatusPaymentRequired, 1},
				{"bad body", `{"amount":`, http.StatusBadRequest, 0},
			} {
				call := call{path: "/charges", key: "key-of-" + strings.ReplaceAll(c.what, " ", "-"), body: c.body}
				first, err := send(t, url, call)
				require.NoError(t, err, c.what)
				runs += c.runs
				require.Equal(t, c.status, first.status, c.what)
				require.False(t, first.replayed, c.what)
				require.NotEmpty(t, first.body, c.what)
				if c.status == http.StatusCreated {
					require.JSONEq(t, fmt.Sprintf(`{"run":%d,"attempt":1}`, runs), first.body)
					require.Equal(t, fmt.Sprintf("/charges/%d", runs), first.header.Get("Location"))
				}
				for range 2 {
					retry, err := send(t, url, call)
					require.NoError(t, err, c.what)
					requireReplay(t, first, retry)
				}

				// The route behaves as it does without a guard.
				call.key = ""
				bare, err := send(t, url, call)
				require.NoError(t, err, c.what)
				runs += c.runs
				require.Equal(t, first.status, bare.status, c.what)
				require.Equal(t, first.header.Get("Content-Type"), bare.header.Get("Content-Type"), c.what)
				want := strings.Replace(first.body, fmt.Sprintf(`"run":%d`, runs-1), fmt.Sprintf(`"run":%d`, runs), 1)
				require.Equal(t, want, bare.body, c.what)
			}

			// A run whose connection is cut leaves no answer. The retry is its second attempt.
			cut := call{path: "/charges", key: "key-of-cut", body: fmt.Sprintf(`{"amount":%d}`, shop.Cut)}
			_, err := send(t, url, cut)
			require.Error(t, err)
			second, err := send(t, url, cut)
			require.NoError(t, err)
			runs += 2
			require.Equal(t, http.StatusCreated, second.status)
			require.False(t, second.replayed)
			require.JSONEq(t, fmt.Sprintf(`{"run":%d,"attempt":2}`, runs), second.body)
			third, err := send(t, url, cut)
			require.NoError(t, err)
			requireReplay(t, second, third)

			// Authentication stands before the guard, and each caller has its own keys.
			charge := call{path: "/charges", key: "key-of-success", body: `{"amount":100}`}
			charge.caller = "mallory"
			stranger, err := send(t, url, charge)
			require.NoError(t, err)
			require.Equal(t, http.StatusUnauthorized, stranger.status)
			charge.caller = "bob"
			bob, err := send(t, url, charge)
			require.NoError(t, err)
			runs++
			require.JSONEq(t, fmt.Sprintf(`{"run":%d,"attempt":1}`, runs), bob.body)

			// The guard's own answers end the request, and no handler runs after them.
			missing, err := send(t, url, call{path: "/payouts", body: `{"amount":100}`})
			require.NoError(t, err)
			require.Equal(t, http.StatusBadRequest, missing.status)
			require.Contains(t, missing.body, `"code":"key-missing"`)
			payout, err := send(t, url, call{path: "/payouts", key: "payout", body: `{"amount":100}`})
			require.NoError(t, err)
			runs++
			require.JSONEq(t, fmt.Sprintf(`{"run":%d,"attempt":1}`, runs), payout.body)
		})
	}
}

// requireReplay checks that got repeats first, except for the mark of a replay and for the
// Date, which is fresh.
func requireReplay(t *testing.T, first, got answer) {
	t.Helper()
	require.True(t, got.replayed)
	require.Equal(t, first.status, got.status)
	require.Equal(t, first.body, got.body)
	want, have := first.header.Clone(), got.header.Clone()
	for _, name := range []string{"Date", "Idempotent-Replayed"} {
		want.Del(name)
		have.Del(name)
	}
	require.Equal(t, want, have)
}
