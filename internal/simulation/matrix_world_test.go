package simulation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
)

// A mishap is a fault that the nth call of one kind suffers.
type mishap struct {
	op   string
	n    int
	kind string
}

// mishapKinds are the ways in which a call can fail, as its caller and its store see it.
var mishapKinds = map[string]guardtest.Fault{
	"refused":            guardtest.Refuse,
	"reply lost":         guardtest.LoseReply,
	"hangs":              guardtest.Hang,
	"executed and hangs": mute,
	"executed late":      guardtest.Late(5 * time.Second), // when nobody waits for it any more
}

// mute executes the call and waits for the caller to give up.
func mute(ctx context.Context, proceed func() error) error {
	_ = proceed()
	<-ctx.Done()
	return ctx.Err()
}

// A conduct is what the handler of a world does. run counts from 1.
type conduct struct {
	name string
	run  func(w *faultWorld, rw http.ResponseWriter, run int)
	// takes is the time of all runs together.
	takes time.Duration
	// ends says how the first run ends. A run after it is fast and definite.
	ends idempotency.Outcome
	// lost says that the first run loses its lease.
	lost bool
	// sent says that the answer is sent before it is whole.
	sent bool
	// refuses says that the first run loses its lease, comes back after the second has had its
	// effect and failed, and then refuses. If there is no second run, the refusal is final.
	refuses bool
	// bulky says that the answer may be kept and the stores, which are healthy, are too slow.
	bulky bool
}

const keptBody = 200 // bytes of an answer that are kept

var conducts = []conduct{
	{name: "fast", ends: idempotency.Final, run: func(w *faultWorld, rw http.ResponseWriter, run int) {
		w.effect()
		w.answer(rw, run)
	}},
	{name: "slow", ends: idempotency.Final, takes: 7 * guardtest.LeaseTime / 2, run: func(w *faultWorld, rw http.ResponseWriter, run int) {
		w.effect()
		time.Sleep(7 * guardtest.LeaseTime / 2)
		w.answer(rw, run)
	}},
	{name: "large", ends: idempotency.Final, sent: true, run: func(w *faultWorld, rw http.ResponseWriter, run int) {
		w.effect()
		w.answer(rw, run)
		_, _ = io.WriteString(rw, strings.Repeat("!", keptBody))
	}},
	{name: "bulky", ends: idempotency.Final, bulky: true, takes: guardtest.LeaseTime / 2, run: func(w *faultWorld, rw http.ResponseWriter, run int) {
		w.effect()
		w.answer(rw, run)
		_, _ = io.WriteString(rw, strings.Repeat("!", bulkyBody))
	}},
	{name: "streaming", ends: idempotency.Final, sent: true, takes: guardtest.LeaseTime, run: func(w *faultWorld, rw http.ResponseWriter, run int) {
		w.effect()
		w.answer(rw, run)
		_ = http.NewResponseController(rw).Flush()
		time.Sleep(guardtest.LeaseTime - 100*time.Millisecond) // a renewal falls into the settling
		_, _ = io.WriteString(rw, ", and that was all")
	}},
	{name: "turned away", ends: idempotency.NotExecuted, run: atFirst(func(_ *faultWorld, rw http.ResponseWriter) {
		rw.WriteHeader(http.StatusTooManyRequests)
	})},
	{name: "failing", ends: idempotency.Unknown, run: atFirst(func(w *faultWorld, rw http.ResponseWriter) {
		w.effect()
		rw.WriteHeader(http.StatusBadGateway)
	})},
	{name: "panicking", ends: idempotency.Unknown, run: atFirst(func(w *faultWorld, _ http.ResponseWriter) {
		w.effect()
		panic(guardtest.Boom)
	})},
	{name: "exiting", ends: idempotency.Unknown, run: atFirst(func(w *faultWorld, _ http.ResponseWriter) {
		w.effect()
		runtime.Goexit()
	})},
	{name: "cut off", ends: idempotency.Final, takes: 2 * guardtest.LeaseTime, lost: true, run: atFirst(func(w *faultWorld, rw http.ResponseWriter) {
		w.effect()
		w.cutOff(2 * guardtest.LeaseTime)
		w.answer(rw, 1)
	})},
	{name: "overtaken and refusing", ends: idempotency.Final, takes: 2 * guardtest.LeaseTime, lost: true, refuses: true, run: func(w *faultWorld, rw http.ResponseWriter, run int) {
		switch run {
		case 1:
			w.cutOffUntil(w.failed, 2*guardtest.LeaseTime)
			w.first.SetOutcome(idempotency.Final) // it insists, and does not look at its context
			rw.WriteHeader(http.StatusUnprocessableEntity)
		case 2:
			w.effect()
			rw.WriteHeader(http.StatusBadGateway)
			time.AfterFunc(10*time.Millisecond, func() { close(w.failed) })
		default:
			w.effect()
			w.answer(rw, run)
		}
	}},
}

func atFirst(f func(w *faultWorld, rw http.ResponseWriter)) func(*faultWorld, http.ResponseWriter, int) {
	return func(w *faultWorld, rw http.ResponseWriter, run int) {
		if run == 1 {
			f(w, rw)
			return
		}
		w.effect()
		w.answer(rw, run)
	}
}

// A faultWorld is one key, two processes that share a store, and a client of each that
// retries until it has the last word. The calls of the first process suffer the mishaps.
type faultWorld struct {
	t        *testing.T
	conduct  conduct
	recovery idempotency.Recovery
	mishaps  []mishap
	shared   *idempotency.MemoryStore
	auditor  *idempotency.Guard // looks into the store past all faults
	faulty   *guardtest.Process
	started  chan struct{} // closed when the first run starts
	failed   chan struct{} // closed when the second run has failed that overtakes a refusing one
	begin    time.Time

	first *idempotency.Operation // of the first run

	mu       sync.Mutex
	away     bool // the faulty process cannot renew
	suffered int
	granted  map[int]*guardtest.Process // who was told that an attempt is its own
	runs     int
	effects  int
	attempt  int
	words    []guardtest.Reply // the last ones to each client
}

func newFaultWorld(t *testing.T, c conduct, recovery idempotency.Recovery, mishaps []mishap) *faultWorld {
	w := &faultWorld{
		t: t, conduct: c, recovery: recovery, mishaps: mishaps,
		shared: idempotency.NewMemoryStore(), started: make(chan struct{}), failed: make(chan struct{}), begin: time.Now(), granted: map[int]*guardtest.Process{},
	}
	w.auditor = guardtest.NewGuard(t, w.shared, idempotency.WithRecovery(recovery))
	w.faulty = w.process()
	for _, op := range guardtest.StoreOps {
		w.faulty.Store.On(op, func(n int) guardtest.Fault { return w.strike(op, n) })
	}
	return w
}

func (w *faultWorld) process() *guardtest.Process {
	p := &guardtest.Process{Store: &guardtest.FaultStore{Behind: w.shared}, Events: &guardtest.Events{}}
	kept := int64(keptBody)
	if w.conduct.bulky {
		kept = 2 * bulkyBody
		p.Store.Throttle(slowBytesPerSecond)
	}
	p.Guard = guardtest.NewGuard(w.t, &grantStore{p.Store, func(attempt int) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.granted[attempt] = p
	}},
		idempotency.WithLease(guardtest.LeaseTime), idempotency.WithRecovery(w.recovery),
		idempotency.WithMaxResponseBody(kept), idempotency.WithObserver(p.Events.Observe))
	guarded := p.Guard.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		op, _ := idempotency.FromContext(r.Context())
		run := w.start(p, op.Attempt())
		if run == 1 {
			w.first = op
		}
		w.conduct.run(w, rw, run)
	}))
	p.Server = guardtest.ServeRecorder(w.t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		guarded.ServeHTTP(&guardtest.Witness{ResponseWriter: rw, Shown: func(h http.Header, status int) { w.shown(p, h, status) }}, r)
	}))
	return p
}

// A grantStore reports the claims that its guard was told to have, in time.
type grantStore struct {
	*guardtest.FaultStore
	granted func(attempt int)
}

func (s *grantStore) Claim(ctx context.Context, key string, c idempotency.Claim) (idempotency.Record, error) {
	rec, err := s.FaultStore.Claim(ctx, key, c)
	if err == nil && rec.Mine && ctx.Err() == nil {
		s.granted(rec.Attempt)
	}
	return rec, err
}

// strike is the fault that a call of the faulty process suffers.
func (w *faultWorld) strike(op string, n int) guardtest.Fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.mishaps {
		if m.op == op && m.n == n {
			w.suffered++
			return mishapKinds[m.kind]
		}
	}
	if w.away && op == "renew" {
		return guardtest.Hang
	}
	return nil
}

func (w *faultWorld) cutOff(d time.Duration) { w.cutOffUntil(nil, d) }

// cutOffUntil keeps the faulty process from renewing until something has happened, or for d.
func (w *faultWorld) cutOffUntil(happened <-chan struct{}, d time.Duration) {
	away := func(is bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.away = is
	}
	away(true)
	select {
	case <-happened:
	case <-time.After(d):
	}
	away(false)
}

// start checks what must be true whenever a handler starts.
func (w *faultWorld) start(p *guardtest.Process, attempt int) (run int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.granted[attempt] != p {
		w.t.Errorf("attempt %d runs without a claim", attempt)
	}
	if attempt <= w.attempt {
		w.t.Errorf("attempt %d runs after attempt %d", attempt, w.attempt)
	}
	w.attempt = attempt
	w.runs++
	if w.runs == 1 {
		close(w.started)
	}
	return w.runs
}

func (w *faultWorld) effect() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.effects++
}

func (w *faultWorld) answer(rw http.ResponseWriter, run int) {
	rw.Header().Set("Location", fmt.Sprintf("/charges/%d", run))
	rw.WriteHeader(http.StatusCreated)
	_, _ = fmt.Fprintf(rw, "charged by run %d", run)
}

// shown checks that a client sees no definite answer that is not recorded, unless the
// store was away for longer than a client is kept waiting.
func (w *faultWorld) shown(p *guardtest.Process, h http.Header, status int) {
	if w.conduct.sent || status != http.StatusCreated || h.Get("Idempotent-Replayed") != "" {
		return
	}
	info, err := w.auditor.Lookup(w.t.Context(), idempotency.Key{Scope: "acme", Value: "k"})
	recorded := err == nil && info.State == idempotency.StateCompleted && info.Status == status
	if !recorded && p.Events.Count(idempotency.EventRecordingDelayed) == 0 {
		w.t.Errorf("an answer is shown before it is recorded: the key is %v, %v", info.State, err)
	}
}

// isLast reports whether a client may stop at this answer.
func (w *faultWorld) isLast(got guardtest.Reply, err error) bool {
	switch {
	case err != nil:
		if !errors.Is(err, guardtest.ErrCut) {
			w.t.Errorf("the client: %v", err)
		}
		return false
	case got.Problem.Code == "":
		return got.Status == http.StatusCreated || w.isRefusal(got)
	case got.Problem.Code == problem.OutcomeUnknown:
		if w.recovery != idempotency.Hold {
			w.t.Error("a key is held")
		}
		return true
	case got.Problem.Code == problem.InFlight, got.Problem.Code == problem.StoreUnavailable:
		return false
	case got.Problem.Code == problem.ResponseNotKept:
		return true
	default:
		w.t.Errorf("the client got %d %s", got.Status, got.Body)
		return true
	}
}

// isRefusal reports whether an answer is the refusal of a run that nobody came after.
func (w *faultWorld) isRefusal(got guardtest.Reply) bool {
	return w.conduct.refuses && w.recovery == idempotency.Hold && got.Status == http.StatusUnprocessableEntity
}

// retry is a client: it asks until it has the last word. pause grows up to most.
func (w *faultWorld) retry(p *guardtest.Process, pause, most time.Duration) {
	for {
		got, err := p.TryAlone(w.t.Context(), guardtest.Call{Key: "k"})
		if w.isLast(got, err) {
			w.mu.Lock()
			w.words = append(w.words, got)
			w.mu.Unlock()
			return
		}
		// Two mishaps cost nobody a lease.
		if time.Since(w.begin) > w.conduct.takes+guardtest.LeaseTime {
			w.t.Error("a client is kept waiting")
		}
		if w.t.Failed() {
			return
		}
		time.Sleep(pause)
		pause = min(pause+pause/2, most)
	}
}

// run lets the clients come to an end, checks the world, and returns how many calls of
// each kind the faulty process has made.
func (w *faultWorld) run() map[string]int {
	healthy := w.process()
	var clients sync.WaitGroup
	clients.Go(func() {
		w.retry(w.faulty, 100*time.Millisecond, 100*time.Millisecond)
		time.Sleep(time.Second)
		w.retry(w.faulty, 100*time.Millisecond, 100*time.Millisecond) // it asks again
	})
	clients.Go(func() {
		<-w.started
		time.Sleep(150 * time.Millisecond)
		w.retry(healthy, 150*time.Millisecond, 4*time.Second)
	})
	clients.Wait()
	time.Sleep(time.Minute) // what goes on in the background
	w.check()
	counts := map[string]int{}
	for _, op := range guardtest.StoreOps {
		counts[op] = w.faulty.Store.Count(op)
	}
	w.faulty.RequireQuiet(w.t)
	return counts
}

// check compares what has happened with what may have happened.
func (w *faultWorld) check() {
	held := w.recovery == idempotency.Hold
	want := 1
	if w.conduct.ends == idempotency.NotExecuted || !held && (w.conduct.ends == idempotency.Unknown || w.conduct.lost) {
		want = 2
	}
	if w.conduct.refuses && !held {
		want = 3
	}
	require.Equal(w.t, want, w.runs, "runs")
	if w.conduct.ends == idempotency.NotExecuted || w.conduct.refuses {
		want--
	}
	require.Equal(w.t, want, w.effects, "effects")

	trap := guardtest.ServeRecorder(w.t, w.auditor.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		w.t.Error("the handler runs after the last word was spoken")
	})))
	now := trap.Do(w.t, guardtest.Call{Key: "k"})
	require.Equal(w.t, w.conduct.bulky, w.conduct.name != "large" && now.Problem.Code == problem.ResponseNotKept)
	for _, got := range w.words {
		unknown := got.Problem.Code == problem.OutcomeUnknown
		switch {
		case unknown && w.conduct.lost: // true at that time
		case unknown:
			require.Equal(w.t, idempotency.Unknown, w.conduct.ends, "held although the outcome is definite")
			require.Equal(w.t, problem.OutcomeUnknown, now.Problem.Code)
		case now.Problem.Code == problem.ResponseNotKept:
			require.True(w.t, w.conduct.name == "large" || w.conduct.bulky)
			require.Equal(w.t, http.StatusCreated, now.Problem.OriginalStatus)
			require.Equal(w.t, "/charges/1", now.Problem.OriginalLocation)
		default:
			require.True(w.t, now.Replayed(), "a client was told %d %q, and now %d %q", got.Status, got.Body, now.Status, now.Body)
			require.Equal(w.t, now.Body, got.Body)
			require.Equal(w.t, now.Status, got.Status)
			require.Equal(w.t, now.Header.Get("Location"), got.Header.Get("Location"))
		}
	}
	require.Equal(w.t, w.conduct.lost, w.faulty.Events.Count(idempotency.EventLeaseLost) > 0, "the lease was lost")
	require.Zero(w.t, w.faulty.Events.Count(idempotency.EventRecordingLost))
}
