//go:build unix

package main

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/problem"
)

// A process is paused in the middle of a payment for longer than its lease. When it goes on,
// it finds that another one has taken over, and pays nothing. Its client gets the answer of
// the other.
func TestPausedProcess(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	paused := start(t, "-redis", redis.Addr, "-lease", "1s", "-delay", "1s")
	other := start(t, "-redis", redis.Addr, "-lease", "1s")

	running := paused.begin(t, "/charges", "order-1")
	require.NoError(t, paused.Cmd.Process.Signal(syscall.SIGSTOP))
	var taken guardtest.Reply
	require.Eventually(t, func() bool {
		taken = other.Do(t, alice("/charges", "order-1"))
		return taken.Problem.Code != problem.InFlight
	}, 10*time.Second, 10*time.Millisecond)
	requirePaid(t, taken, 2)

	require.NoError(t, paused.Cmd.Process.Signal(syscall.SIGCONT))
	got := <-running
	require.NoError(t, got.err)
	guardtest.RequireReplay(t, taken, got.Reply)
	require.Zero(t, paused.count(t)["charges"])
	require.Equal(t, 1, other.count(t)["charges"])
	guardtest.RequireReplay(t, taken, paused.Do(t, alice("/charges", "order-1")))
}
