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

	"example.com/idempotency/internal/faultproxy"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/problem"
)

// A pair is two processes that share a Redis. The first is the one that something
// happens to; its way to Redis goes through the proxy.
type pair struct {
	redis        *redistest.Server
	ledger       *ledger
	proxy        *faultproxy.Proxy
	first, other *process
}

func newPair(t *testing.T, lease, grace time.Duration) *pair {
	t.Helper()
	p := &pair{redis: redistest.Start(t), ledger: newLedger(t)}
	p.proxy = faultproxy.New(t, p.redis.Addr)
	args := []string{"-ledger", p.ledger.url, "-lease", lease.String(), "-grace", grace.String()}
	p.first = launch(t, "first", append(args, "-redis", p.proxy.Addr())...)
	p.other = launch(t, "other", append(args, "-redis", p.redis.Addr)...)
	return p
}

// begin sends a request to the first process and returns when its run has made its
// effect and stands behind it.
func (p *pair) begin(t *testing.T, in *intent) (*gate, <-chan reply) {
	t.Helper()
	g := p.ledger.gate(in.name())
	done := in.start(t, p.first)
	select {
	case <-g.reached:
	case got := <-done:
		require.FailNow(t, "no effect", "%v", got)
	case <-time.After(patience):
		require.FailNow(t, "no effect")
	}
	return g, done
}

// start sends a request without waiting for its answer.
func (in *intent) start(t *testing.T, p *process) <-chan reply {
	t.Helper()
	done := make(chan reply, 1)
	go func() { done <- in.send(t.Context(), http.DefaultClient, p, in.body) }()
	return done
}

func receive(t *testing.T, done <-chan reply) reply {
	t.Helper()
	select {
	case got := <-done:
		return got
	case <-time.After(patience):
		require.FailNow(t, "no answer")
		return reply{}
	}
}

// requireOwn checks the answer of the run that a request has caused.
func requireOwn(t *testing.T, got reply) {
	t.Helper()
	require.Equal(t, http.StatusCreated, got.status, got)
	require.False(t, got.replayed())
}

// requireReplayed checks that the other process has the first's answer.
func (p *pair) requireReplayed(t *testing.T, in *intent, first reply) {
	t.Helper()
	got := in.send(t.Context(), http.DefaultClient, p.other, in.body)
	require.Equal(t, http.StatusCreated, got.status, got)
	require.True(t, got.replayed())
	require.Equal(t, first.digest(), got.digest())
}

// A process that is asked to end while the store is away for a while lets its runs end,
// tells those who wait, records everything, and only then ends.
func TestTerminatedProcessLosesNothing(t *testing.T) {
	t.Parallel()
	p := newPair(t, 20*time.Second, patience)
	running := newIntent(wait, "tenant", "running", order{Size: 100})
	ended := newIntent(rerun, "tenant", "ended", order{Size: 20 << 10})
	last := newIntent(hold, "tenant", "last", order{})

	runningGate, runningDone := p.begin(t, running)
	endedGate, endedDone := p.begin(t, ended)
	lastGate, lastDone := p.begin(t, last)
	duplicate := running.start(t, p.first)
	require.Eventually(t, func() bool {
		listeners := p.redis.Do(t, "PUBSUB", "NUMSUB", "idem:settled").([]any)
		return listeners[1] == int64(1)
	}, patience, 10*time.Millisecond)

	p.proxy.Refuse()
	close(endedGate.open)
	endedAnswer := receive(t, endedDone)
	requireOwn(t, endedAnswer)
	require.Eventually(t, func() bool { return p.first.said(logDelayed) == 1 }, patience, 10*time.Millisecond)

	p.first.terminate()
	terminated := time.Now()
	told := receive(t, duplicate)
	require.Less(t, time.Since(terminated), waiting*2/3)
	require.Equal(t, problem.InFlight, told.code, told)
	require.Equal(t, "1", told.header.Get("Retry-After"))
	close(lastGate.open)
	lastAnswer := receive(t, lastDone)
	requireOwn(t, lastAnswer)
	select {
	case <-p.first.ended:
		require.FailNow(t, "ended before everything was recorded")
	default:
	}

	p.proxy.Heal()
	close(runningGate.open)
	runningAnswer := receive(t, runningDone)
	requireOwn(t, runningAnswer)
	require.NoError(t, p.first.exit(t))
	require.Zero(t, p.first.said(logLost))
	p.first.requireSound(t)
	p.requireReplayed(t, running, runningAnswer)
	p.requireReplayed(t, ended, endedAnswer)
	p.requireReplayed(t, last, lastAnswer)
	for _, in := range []*intent{running, ended, last} {
		require.Len(t, p.ledger.of(in.name()), 1)
	}
}

// A process that is asked to end while the store is away, and stays away, gives up when
// its time is over, and says what it could not record. That is left to its lease.
func TestTerminatedProcessWithoutStoreEndsInTime(t *testing.T) {
	t.Parallel()
	const lease, grace = 6 * time.Second, time.Second // the lease outlasts the clients' patience
	p := newPair(t, lease, grace)
	again := newIntent(rerun, "tenant", "again", order{Size: 100})
	held := newIntent(hold, "tenant", "held", order{Size: 100})
	var answers []reply
	var gates []*gate
	var done []<-chan reply
	for _, in := range []*intent{again, held} {
		g, d := p.begin(t, in)
		gates, done = append(gates, g), append(done, d)
	}
	p.proxy.Refuse()
	for i := range gates {
		close(gates[i].open)
		got := receive(t, done[i])
		requireOwn(t, got)
		answers = append(answers, got)
	}

	start := time.Now()
	p.first.terminate()
	require.Error(t, p.first.exit(t))
	require.GreaterOrEqual(t, time.Since(start), grace)
	require.Equal(t, len(gates), p.first.said(logLost))
	p.first.requireSound(t)

	second := again.retry(t, p.other)
	requireOwn(t, second)
	require.Equal(t, "2", second.header.Get("X-Attempt"))
	require.NotEqual(t, answers[0].digest(), second.digest())
	require.Equal(t, problem.OutcomeUnknown, held.retry(t, p.other).code)
	require.Len(t, p.ledger.of(again.name()), 2)
	require.Len(t, p.ledger.of(held.name()), 1)
}

// A process that stands still for longer than its lease, after an effect, finds when it
// goes on that its claim is not sure any more. Its client gets the answer of whoever has
// taken over, or, where nobody may, its own.
func TestStoppedProcessShowsNoSecondAnswer(t *testing.T) {
	t.Parallel()
	p := newPair(t, 3*time.Second, patience)
	taken := newIntent(rerun, "tenant", "taken", order{Size: 100})
	held := newIntent(hold, "tenant", "held", order{Size: 100})
	alone := newIntent(rerun, "tenant", "alone", order{Size: 100})
	intents := []*intent{taken, held, alone}
	var gates []*gate
	var done []<-chan reply
	for _, in := range intents {
		g, d := p.begin(t, in)
		gates, done = append(gates, g), append(done, d)
	}

	p.first.stop()
	second := taken.retry(t, p.other)
	requireOwn(t, second)
	require.Equal(t, "2", second.header.Get("X-Attempt"))
	require.Equal(t, problem.OutcomeUnknown, held.retry(t, p.other).code)

	// The runs go on when the process does, and not when its renewals have succeeded.
	for _, g := range gates {
		close(g.open)
	}
	p.first.resume()
	got := receive(t, done[0])
	require.True(t, got.replayed(), got)
	require.Equal(t, second.digest(), got.digest())
	for i, in := range intents[1:] {
		got := receive(t, done[i+1])
		requireOwn(t, got)
		p.requireReplayed(t, in, got)
		require.Len(t, p.ledger.of(in.name()), 1)
	}
	p.requireReplayed(t, taken, second)
	require.Len(t, p.ledger.of(taken.name()), 2)
	// Where nobody has come meanwhile, the process may have renewed its claim first.
	for _, in := range []*intent{taken, held} {
		require.Equal(t, 1, p.ledger.overtaken[in.name()], in.key)
	}
}

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
