// Package routers_test runs the example programs and retries requests to them.
package routers_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/examples/routers/shop"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
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

// by returns a request of a caller's.
func by(caller, path, key, body string) guardtest.Call {
	return guardtest.Call{Path: path, Key: key, Body: body, Header: http.Header{"Authorization": {"Bearer token-of-" + caller}}}
}

func TestRetries(t *testing.T) {
	for _, name := range programs {
		t.Run(name, func(t *testing.T) {
			s := guardtest.StartProgram(t, exec.Command(filepath.Join(bin, name), "-addr", "127.0.0.1:0"))
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
				call := by("alice", "/charges", "key-of-"+strings.ReplaceAll(c.what, " ", "-"), c.body)
				first := s.Do(t, call)
				runs += c.runs
				require.Equal(t, c.status, first.Status, c.what)
				require.False(t, first.Replayed(), c.what)
				require.NotEmpty(t, first.Body, c.what)
				if c.status == http.StatusCreated {
					require.JSONEq(t, fmt.Sprintf(`{"run":%d,"attempt":1}`, runs), first.Body)
					require.Equal(t, fmt.Sprintf("/charges/%d", runs), first.Header.Get("Location"))
				}
				for range 2 {
					guardtest.RequireReplay(t, first, s.Do(t, call))
				}

				// The route behaves as it does without a guard.
				call.Key = ""
				bare := s.Do(t, call)
				runs += c.runs
				require.Equal(t, first.Status, bare.Status, c.what)
				require.Equal(t, first.Header.Get("Content-Type"), bare.Header.Get("Content-Type"), c.what)
				want := strings.Replace(first.Body, fmt.Sprintf(`"run":%d`, runs-1), fmt.Sprintf(`"run":%d`, runs), 1)
				require.Equal(t, want, bare.Body, c.what)
			}

			// A run whose connection is cut leaves no answer. The retry is its second attempt.
			cut := by("alice", "/charges", "key-of-cut", fmt.Sprintf(`{"amount":%d}`, shop.Cut))
			_, err := s.Try(t.Context(), cut)
			require.Error(t, err)
			second := s.Do(t, cut)
			runs += 2
			require.Equal(t, http.StatusCreated, second.Status)
			require.False(t, second.Replayed())
			require.JSONEq(t, fmt.Sprintf(`{"run":%d,"attempt":2}`, runs), second.Body)
			guardtest.RequireReplay(t, second, s.Do(t, cut))

			// Authentication stands before the guard, and each caller has its own keys.
			stranger := s.Do(t, by("mallory", "/charges", "key-of-success", `{"amount":100}`))
			require.Equal(t, http.StatusUnauthorized, stranger.Status)
			bob := s.Do(t, by("bob", "/charges", "key-of-success", `{"amount":100}`))
			runs++
			require.JSONEq(t, fmt.Sprintf(`{"run":%d,"attempt":1}`, runs), bob.Body)

			// The guard's own answers end the request, and no handler runs after them.
			missing := s.Do(t, by("alice", "/payouts", "", `{"amount":100}`))
			guardtest.RequireProblem(t, missing, http.StatusBadRequest, problem.KeyMissing)
			payout := s.Do(t, by("alice", "/payouts", "payout", `{"amount":100}`))
			runs++
			require.JSONEq(t, fmt.Sprintf(`{"run":%d,"attempt":1}`, runs), payout.Body)
		})
	}
}
