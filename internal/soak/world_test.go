//go:build unix

package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/idempotency/internal/faultproxy"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/problem"
)

// A world is what a soak takes place in: one Redis, some places in which api processes
// run one after the other, each behind a network of its own, and clients. What happens is
// noted and not acted on, so that one broken promise does not hide the others.
type world struct {
	t      *testing.T
	redis  *redistest.Server
	ledger *ledger
	places []*place
	client *http.Client

	requests, keys, doubles, replaced, heldKeys, replays, hangups atomic.Int64

	// calm is when everything will be healed, in Unix ms: no run may last longer.
	calm atomic.Int64

	mu        sync.Mutex
	intents   map[string]*intent
	processes map[string]*process
	retired   []retired
	failures  []string
	effects   int
	takeover  time.Duration // the longest until a run was taken over whose effect had happened
	effected  chan struct{} // closed at the next effect
}

// A place is where one process of the api runs, and after its end the next.
type place struct {
	n     int
	proxy *faultproxy.Proxy

	mu   sync.Mutex
	runs int
	now  *process
}

func (p *place) process() *process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

type retired struct {
	at time.Time
	*intent
}

const (
	// lease is long enough for the store to be away for a while, and for a process on
	// a busy machine to be late, without a run losing its claim.
	lease = 6 * time.Second
	// grace is how long an orderly end may take: a run of more than a lease may have begun just before,
	// and Redis may be away several times until it is recorded.
	grace = 20 * time.Second
	// zombies is how long after its end a key may still be run by a process that was
	// stopped meanwhile.
	zombies = 4 * lease
)

func newWorld(t *testing.T, places int) *world {
	w := &world{
		t: t,
		// What Redis acknowledges it has written down.
		redis:     redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always"),
		ledger:    newLedger(t),
		client:    &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}},
		intents:   make(map[string]*intent),
		processes: make(map[string]*process),
		effected:  make(chan struct{}),
	}
	t.Cleanup(w.client.CloseIdleConnections)
	w.ledger.judge = w.judge
	for n := range places {
		p := &place{n: n + 1, proxy: faultproxy.New(t, w.redis.Addr)}
		w.places = append(w.places, p)
		w.start(p)
	}
	return w
}

// start starts the next process of a place.
func (w *world) start(p *place) {
	p.runs++
	name := fmt.Sprintf("api-%d.%d", p.n, p.runs)
	next := launch(w.t, name, "-redis", p.proxy.Addr(), "-ledger", w.ledger.url,
		"-lease", lease.String(), "-grace", grace.String())
	w.mu.Lock()
	w.processes[name] = next
	w.mu.Unlock()
	p.mu.Lock()
	p.now = next
	p.mu.Unlock()
}

// fail notes a broken promise. It may be called by any goroutine.
func (w *world) fail(in *intent, format string, args ...any) {
	var what strings.Builder
	fmt.Fprintf(&what, "%s %s %s: ", time.Now().Format(clock), in.route, in.name())
	fmt.Fprintf(&what, format, args...)
	for _, e := range w.ledger.of(in.name()) {
		fmt.Fprintf(&what, "\n\teffect %s of %s, attempt %d, arrived %s, began %s",
			e.ID, e.Process, e.Attempt, e.Arrived.Format(clock), e.Began.Format(clock))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.failures) < 50 {
		w.failures = append(w.failures, what.String())
	}
}

const clock = "15:04:05.000"

// judge looks at each effect. A second one of an intent is lawful where the route runs
// again, if the process of the one before was disturbed in between, and only by the
// next attempt, which does not begin before the lease of the former has ended.
func (w *world) judge(now effect, before []effect) {
	w.mu.Lock()
	in := w.intents[now.Intent]
	w.effects++
	close(w.effected)
	w.effected = make(chan struct{})
	w.mu.Unlock()
	switch {
	case in == nil:
		w.fail(&intent{key: now.Intent}, "an effect after the end of its intent: %+v", now)
		return
	case now.Body != digest(in.body):
		w.fail(in, "a run of another request")
	}
	for _, was := range before {
		w.doubles.Add(1)
		first, second := was, now
		if first.Attempt > second.Attempt {
			first, second = second, first
		}
		w.mu.Lock()
		p := w.processes[first.Process]
		w.mu.Unlock()
		switch {
		case exclusive(in.route):
			w.fail(in, "two effects where there may be one")
		case first.Attempt == second.Attempt:
			w.fail(in, "two effects of one attempt")
		case !p.disturbed(first.Arrived):
			w.fail(in, "two effects although %s was not disturbed; its log:\n%s", p.name, p.log())
		case second.Began.Before(first.Arrived.Add(lease)):
			w.fail(in, "overtaken before the lease has ended")
		default:
			w.mu.Lock()
			w.takeover = max(w.takeover, second.Began.Sub(first.Arrived))
			w.mu.Unlock()
		}
	}
}

// live is the life of one key: several clients send it at once until it is settled, then
// it is sent again, and at the end it is looked at.
func (w *world) live(rng *rand.Rand, n uint64, overdue <-chan struct{}) {
	in := w.plan(rng, n)
	w.mu.Lock()
	w.intents[in.name()] = in
	w.mu.Unlock()
	w.keys.Add(1)
	var duplicates sync.WaitGroup
	for range 1 + rng.IntN(3) {
		own := rand.New(rand.NewPCG(rng.Uint64(), n))
		duplicates.Go(func() { w.insist(own, in, overdue) })
	}
	duplicates.Wait()
	for range 1 + rng.IntN(2) {
		w.insist(rng, in, overdue)
	}
	if rng.IntN(8) == 0 {
		w.contradict(rng, in)
	}
	w.audit(in)
	w.retire(in)
	if old := w.recall(rng); old != nil {
		w.insist(rng, old, overdue)
	}
}

// plan decides what happens to the nth key. Two tenants use each key.
func (w *world) plan(rng *rand.Rand, n uint64) *intent {
	o := order{Size: []int{0, 100, 2 << 10, 20 << 10, 200 << 10}[rng.IntN(1+rng.IntN(5))]}
	o.Padding = strings.Repeat("x", []int{0, 1 << 10, 40 << 10}[rng.IntN(1+rng.IntN(3))])
	route := []string{rerun, rerun, wait, hold, hold, once}[rng.IntN(6)]
	o.Delay, o.Linger = between(rng, 0, 20), between(rng, 0, 1+rng.IntN(200))
	const long = lease + time.Second // the claim must be renewed
	if time.Now().Add(long).UnixMilli() < w.calm.Load() {
		switch rng.IntN(200) {
		case 0:
			o.Delay = long
		case 1:
			o.Linger = long
		}
	}
	o.TurnAway = rng.IntN(16) == 0
	o.Flush = rng.IntN(16) == 0
	return newIntent(route, fmt.Sprint("tenant-", n%2), fmt.Sprint("key-", n/2), o)
}

// insist sends a request until it is settled, each time to any of the processes.
func (w *world) insist(rng *rand.Rand, in *intent, overdue <-chan struct{}) {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 250*time.Millisecond) {
		p := w.places[rng.IntN(len(w.places))].process()
		limit := patience
		if rng.IntN(4) == 0 {
			limit = between(rng, 50, 1000) // a client that hangs up, and comes back
		}
		got := w.send(in, p, in.body, limit)
		v, err := in.take(p, got)
		if err != nil {
			w.fail(in, "%v: %v from %s", err, got, p.name)
			return
		}
		if v == settled {
			w.compare(in, p, got)
			return
		}
		select {
		case <-overdue:
			w.fail(in, "does not settle: %v from %s", got, p.name)
			return
		case <-time.After(pause/2 + rand.N(pause)):
		}
	}
}

// compare looks whether an answer came too late to be shown. An answer that is not recorded
// yet may be shown as long as nobody can have taken over. One that is sent in pieces is
// gone before that question arises.
func (w *world) compare(in *intent, p *process, got reply) {
	if got.replayed() {
		w.replays.Add(1)
	}
	if got.status != http.StatusCreated || got.replayed() || in.order.Flush {
		return
	}
	const slack = time.Second // for the way to the client
	received := time.Now()
	for _, e := range w.ledger.of(in.name()) {
		if e.Attempt > got.attempt() && e.Began.Add(slack).Before(received) {
			w.fail(in, "attempt %d was shown by %s although another has taken over", got.attempt(), p.name)
		}
	}
}

// send sends a request once. The client hangs up after a while; patience is too long for
// any answer.
func (w *world) send(in *intent, p *process, body []byte, limit time.Duration) reply {
	w.requests.Add(1)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	got := in.send(ctx, w.client, p, body)
	if limit < patience && errors.Is(got.err, context.DeadlineExceeded) {
		w.hangups.Add(1)
		got.err = errHungUp
	}
	return got
}

// contradict sends another request with the same key. It is refused, and by nothing else
// than what it is.
func (w *world) contradict(rng *rand.Rand, in *intent) {
	p := w.places[rng.IntN(len(w.places))].process()
	got := w.send(in, p, append([]byte(" "), in.body...), patience)
	switch {
	case got.code == problem.KeyReused, got.code == problem.StoreUnavailable:
	case p.disturbed(got.sent):
	default:
		w.fail(in, "another payload got %v", got)
	}
}

// audit compares what the clients were told with what has happened.
func (w *world) audit(in *intent) {
	effects := w.ledger.of(in.name())
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.held {
		w.heldKeys.Add(1)
	}
	if in.first != nil && in.record != nil && in.first.digest != in.record.digest {
		w.replaced.Add(1)
	}
	for _, a := range []*answered{in.first, in.record} {
		if a != nil && !slices.ContainsFunc(effects, func(e effect) bool { return e.ID == a.effect }) {
			w.fail(in, "an answer without its effect: %+v", a)
		}
	}
}

// retire forgets an intent, when nothing can happen to it any more.
func (w *world) retire(in *intent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.retired = append(w.retired, retired{time.Now(), in})
	for time.Since(w.retired[0].at) > zombies {
		name := w.retired[0].name()
		delete(w.intents, name)
		w.ledger.forget(name)
		w.retired = w.retired[1:]
	}
}

// recall returns an intent that was settled some time ago and is still remembered.
func (w *world) recall(rng *rand.Rand) *intent {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.retired) == 0 {
		return nil
	}
	return w.retired[rng.IntN(len(w.retired))].intent
}
