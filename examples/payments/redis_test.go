package main

import (
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/problem"
)

func TestProcessesShareOneKey(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	processes := []*process{
		start(t, "-redis", redis.Addr, "-delay", "50ms"),
		start(t, "-redis", redis.Addr, "-delay", "50ms"),
	}

	const clients = 200
	results := make([]result, clients)
	var wg sync.WaitGroup
	for i := range results {
		wg.Go(func() {
			a, err := processes[i%2].try(t.Context(), "/charges", "order-1", hundredEuros)
			results[i] = result{a, err}
		})
	}
	wg.Wait()

	var ran []answer
	for _, got := range results {
		require.NoError(t, got.err)
		if got.status == http.StatusCreated && !got.replayed {
			ran = append(ran, got.answer)
		}
	}
	require.Len(t, ran, 1)
	requirePaid(t, ran[0], 1)
	for _, got := range results {
		switch {
		case got.replayed:
			requireReplay(t, ran[0], got.answer)
		case got.status != http.StatusCreated:
			require.Equal(t, http.StatusConflict, got.status, got.body)
			require.Equal(t, problem.InFlight, got.code)
		}
	}
	charges := 0
	for _, p := range processes {
		requireReplay(t, ran[0], p.pay(t, "/charges", "order-1", hundredEuros))
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
	settled := func(t *testing.T, path, key string) (got answer, survivor *process) {
		redis := redistest.Start(t)
		start := func(delay string) *process {
			return start(t, "-redis", redis.Addr, "-lease", lease.String(), "-delay", delay)
		}
		survivor = start("0s")
		victim := start("1h")
		running := victim.begin(t, path, key)
		require.NoError(t, victim.cmd.Process.Kill())
		require.Error(t, (<-running).err)
		require.Equal(t, problem.InFlight, survivor.pay(t, path, key, hundredEuros).code, "the lease outlives its process")
		redis.Advance(t, "", lease)
		return survivor.pay(t, path, key, hundredEuros), survivor
	}

	t.Run("a charge runs again", func(t *testing.T) {
		t.Parallel()
		second, survivor := settled(t, "/charges", "order-1")
		requirePaid(t, second, 2)
		requireReplay(t, second, survivor.pay(t, "/charges", "order-1", hundredEuros))
		require.Equal(t, 1, survivor.count(t)["charges"])
	})
	t.Run("a payout is held", func(t *testing.T) {
		t.Parallel()
		held, survivor := settled(t, "/payouts", "order-2")
		require.Equal(t, http.StatusConflict, held.status)
		require.Equal(t, problem.OutcomeUnknown, held.code)
		require.Empty(t, held.header.Get("Retry-After"))
		require.Zero(t, survivor.count(t)["payouts"])
	})
}

func TestTerminatedProcessLeavesItsAnswer(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	leaving := start(t, "-redis", redis.Addr, "-delay", "1s")
	staying := start(t, "-redis", redis.Addr)

	running := leaving.begin(t, "/charges", "order-1")
	require.NoError(t, leaving.cmd.Process.Signal(syscall.SIGTERM))
	first := <-running
	require.NoError(t, first.err)
	requirePaid(t, first.answer, 1)
	require.NoError(t, leaving.cmd.Wait(), "it ends by itself, without an error")

	requireReplay(t, first.answer, staying.pay(t, "/charges", "order-1", hundredEuros))
	require.Zero(t, staying.count(t)["charges"])
}

func TestRedisThatEvictsIsRefused(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	_, _, err := openStore(t.Context(), redis.Addr)
	require.ErrorContains(t, err, "allkeys-lru")
}
