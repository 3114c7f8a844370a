//go:build unix

package main

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// runMain in the environment makes this test binary run the program that it tests.
const runMain = "QUICKSTART_TEST_RUN_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(runMain) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// The program serves, and a signal ends it in order.
func TestProgramServesAndShutsDown(t *testing.T) {
	const addr = "127.0.0.1:8080"
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", addr)
	if err != nil {
		t.Skipf("another program has the address of this one: %v", err)
	}
	require.NoError(t, listener.Close())

	program := exec.Command(os.Args[0])
	program.Env = append(os.Environ(), runMain+"=1")
	program.Stderr = t.Output()
	require.NoError(t, program.Start())
	t.Cleanup(func() { _ = program.Process.Kill() })
	charge := func() (status int, replayed string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+"/charges", strings.NewReader(`{"amount":100}`))
		require.NoError(t, err)
		r.SetBasicAuth("alice", "alice's token")
		r.Header.Set("Idempotency-Key", "order-1")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0, "" // it does not listen yet
		}
		defer resp.Body.Close()
		return resp.StatusCode, resp.Header.Get("Idempotent-Replayed")
	}
	require.Eventually(t, func() bool {
		status, _ := charge()
		return status == http.StatusCreated
	}, 10*time.Second, 20*time.Millisecond)
	_, replayed := charge()
	require.Equal(t, "true", replayed)

	require.NoError(t, program.Process.Signal(syscall.SIGTERM))
	require.NoError(t, program.Wait(), "the exit status")
}
