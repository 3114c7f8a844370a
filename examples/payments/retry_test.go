package main

import (
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/problem"
)

func TestPaymentsAreSafeToRetry(t *testing.T) {
	t.Parallel()
	p := start(t, "-delay", "1s")

	first := p.pay(t, "/charges", "order-1", hundredEuros)
	requirePaid(t, first, 1)
	requireReplay(t, first, p.pay(t, "/charges", "order-1", hundredEuros))

	other := p.pay(t, "/charges", "order-1", `{"amount":999,"currency":"eur"}`)
	require.Equal(t, http.StatusConflict, other.status)
	require.Equal(t, problem.KeyReused, other.code)
	require.Empty(t, other.header.Get("Retry-After"), "sending it again will not help")

	running := p.begin(t, "/charges", "order-2") // one of two at once is refused as in flight
	second := <-running
	require.NoError(t, second.err)
	requirePaid(t, second.answer, 1)
	requireReplay(t, second.answer, p.pay(t, "/charges", "order-2", hundredEuros))

	bad := p.pay(t, "/charges", "bad,key", hundredEuros)
	require.Equal(t, http.StatusBadRequest, bad.status)
	require.Equal(t, problem.KeyInvalid, bad.code)

	missing := p.pay(t, "/charges", "", hundredEuros)
	require.Equal(t, http.StatusBadRequest, missing.status)
	require.Equal(t, problem.KeyMissing, missing.code)

	require.Equal(t, map[string]int{"charges": 2, "payouts": 0, "transfers": 0}, p.count(t))
}

func TestTransfersWaitForTheAnswer(t *testing.T) {
	t.Parallel()
	p := start(t, "-delay", "1s")

	const clients = 5
	answers := make(chan result, clients)
	for range clients {
		go func() {
			a, err := p.try(t.Context(), "/transfers", "order-3", hundredEuros)
			answers <- result{a, err}
		}()
	}
	var all []answer
	for range clients {
		got := <-answers
		require.NoError(t, got.err)
		all = append(all, got.answer)
	}
	ran := slices.IndexFunc(all, func(a answer) bool { return !a.replayed })
	require.GreaterOrEqual(t, ran, 0)
	requirePaid(t, all[ran], 1)
	for _, a := range slices.Delete(slices.Clone(all), ran, ran+1) {
		requireReplay(t, all[ran], a)
	}
	require.Equal(t, 1, p.count(t)["transfers"])

	// The key is optional here: each request without one is a transfer of its own.
	requirePaid(t, p.pay(t, "/transfers", "", hundredEuros), 1)
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
	_, script, ok := strings.Cut(p.banner, "\n\n")
	require.True(t, ok)
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

func TestTerminationFinishesTheRun(t *testing.T) {
	t.Parallel()
	p := start(t, "-delay", "1s")

	running := p.begin(t, "/charges", "order-1")
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	got := <-running
	require.NoError(t, got.err)
	requirePaid(t, got.answer, 1)
	require.NoError(t, p.cmd.Wait(), "it ends by itself, without an error")
}
