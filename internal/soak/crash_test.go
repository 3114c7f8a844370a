//go:build unix

package soak

import (
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/problem"
)

// crashLease is how long a key stays blocked after its process was killed. On a busy
// machine a run with a shorter one finds, before its effect, that it has lost it.
const crashLease = 2 * time.Second

// A crashCase is a moment of a run at which its process is killed, and what becomes of
// the key on a route: who answers, and what has been done in the end.
type crashCase struct {
	moment  string
	blocked bool // for as long as the lease
	held    bool
	attempt int // whose answer it is, unless the key is held
	effects []int
}

var crashTable = map[string][]crashCase{
	rerun: {
		{moment: beforeClaim, attempt: 1, effects: []int{1}},
		{moment: afterClaim, blocked: true, attempt: 2, effects: []int{2}},
		{moment: afterEffect, blocked: true, attempt: 2, effects: []int{1, 2}},
		{moment: afterRecord, attempt: 1, effects: []int{1}},
	},
	hold: {
		{moment: beforeClaim, attempt: 1, effects: []int{1}},
		{moment: afterClaim, blocked: true, held: true},
		{moment: afterEffect, blocked: true, held: true, effects: []int{1}},
		{moment: afterRecord, attempt: 1, effects: []int{1}},
	},
	// The run may be repeated, its step may not.
	once: {
		{moment: beforeClaim, attempt: 1, effects: []int{1}},
		{moment: afterClaim, blocked: true, attempt: 2, effects: []int{2}},
		{moment: afterMark, blocked: true, held: true},
		{moment: afterEffect, blocked: true, held: true, effects: []int{1}},
		{moment: afterRecord, attempt: 1, effects: []int{1}},
	},
}

func TestKilledAtEveryMomentOfARun(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	ledger := newLedger(t)
	args := []string{"-redis", redis.Addr, "-ledger", ledger.url, "-lease", crashLease.String(), "-grace", "10s"}
	survivor := launch(t, "survivor", args...)
	takeovers := 0
	for route, cases := range crashTable {
		for _, c := range cases {
			if c.blocked && route != hold {
				takeovers++
			}
		}
	}
	t.Cleanup(func() { // when all cases are over
		require.Eventually(t, func() bool { return survivor.said(logTakeover) == takeovers }, patience, 20*time.Millisecond,
			"%d of %d takeovers were reported", survivor.said(logTakeover), takeovers)
	})
	for route, cases := range crashTable {
		for _, c := range cases {
			t.Run(route[1:]+" "+c.moment, func(t *testing.T) {
				t.Parallel()
				in := newIntent(route, "tenant", strings.ReplaceAll(t.Name(), ",", ""), order{Size: 100})
				victim := launch(t, "victim", append(args, "-crash", c.moment)...)
				sent := time.Now()
				require.Error(t, in.send(t.Context(), http.DefaultClient, victim, in.body).err)
				var exit *exec.ExitError
				require.ErrorAs(t, victim.exit(t), &exit)
				require.Equal(t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal())
				victim.kill() // it did that itself; the client is to know

				got := in.retry(t, survivor)
				blocked := time.Since(sent)
				if c.held {
					require.Equal(t, problem.OutcomeUnknown, got.code, got)
					require.Empty(t, got.header.Get("Retry-After"))
				} else {
					require.Equal(t, http.StatusCreated, got.status, got)
					require.Equal(t, c.attempt, in.first.attempt)
				}
				require.Equal(t, c.moment == afterRecord, got.replayed())
				if c.blocked {
					require.GreaterOrEqual(t, blocked, crashLease)
				}
				var attempts []int
				for _, e := range ledger.of(in.name()) {
					attempts = append(attempts, e.Attempt)
				}
				require.Equal(t, c.effects, attempts)

				last := in.send(t.Context(), http.DefaultClient, survivor, in.body)
				require.Equal(t, got.code, last.code)
				require.Equal(t, got.digest(), last.digest())
				require.Len(t, ledger.of(in.name()), len(c.effects))
			})
		}
	}
}

// retry sends the request to one process until it is settled.
func (in *intent) retry(t *testing.T, p *process) reply {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) { // a client that retries
		got := in.send(t.Context(), http.DefaultClient, p, in.body)
		v, err := in.take(p, got)
		require.NoError(t, err, got)
		if v == settled {
			return got
		}
		require.True(t, time.Now().Before(end), "not settled: %v", got)
	}
}
