package simulation

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// A faultWorld is one key, two processes that share a store, and a client of each that
// retries until it has the last word. The mishaps happen at the calls of the first process.
type faultWorld struct {
	*matrix
	t         *testing.T
	mishaps   []mishap
	processes [2]*guardtest.Process
	faulty    *guardtest.Process // the first of them
	started   chan struct{}      // closed when the first run starts
	failed    chan struct{}      // closed when the second run has failed that overtakes a refusing one
	begin     time.Time
	acting    sync.Mutex // held while somebody waits for all others to come to rest

	mu       sync.Mutex
	look     *idempotency.Guard // looks into the store past all faults
	away     bool               // the faulty process cannot renew
	suffered int
	granted  map[int]grant // by attempt
	runs     int
	last     grant          // of the last run
	bookings map[string]int // effects, by the key that they are derived with
	words    []word         // the last ones to each client
	recorded bool           // an answer was, at some time
	era      int            // counts the acts of others that have changed something
	life     int            // counts the records
	reopened int            // counts the acts after which there may be one more run
	decided  bool           // by hand, what the answer is
	late     *store.Seen    // what a late operator has seen
}

// A grant says who was told that an attempt is its own, and of which record.
type grant struct {
	to            *guardtest.Process
	life, attempt int
}

// A word is what a client was told that asked in an era.
type word struct {
	guardtest.Reply
	era int
}

func newFaultWorld(t *testing.T, m *matrix, mishaps []mishap) *faultWorld {
	w := &faultWorld{
		matrix: m, t: t, mishaps: mishaps,
		started: make(chan struct{}), failed: make(chan struct{}), begin: time.Now(), granted: map[int]grant{}, bookings: map[string]int{},
	}
	shared := idempotency.NewMemoryStore()
	w.look = w.newAuditor(shared)
	faulty, healthy := m.company.versions(t)
	w.processes = [2]*guardtest.Process{w.process(shared, faulty), w.process(shared, healthy)}
	w.faulty = w.processes[0]
	for _, op := range guardtest.StoreOps {
		w.faulty.Store.On(op, func(n int) guardtest.Fault { return w.strike(op, n) })
	}
	return w
}

// newAuditor returns a guard that looks into a store past all faults. It can read what each version
// has written.
func (w *faultWorld) newAuditor(shared *idempotency.MemoryStore) *idempotency.Guard {
	options := []idempotency.Option{idempotency.WithRecovery(w.recovery)}
	if w.company.newer != nil {
		options = append(options, w.company.newer(w.t)...)
	}
	return guardtest.NewGuard(w.t, shared, options...)
}

func (w *faultWorld) auditor() *idempotency.Guard {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.look
}

func (w *faultWorld) process(shared *idempotency.MemoryStore, version []idempotency.Option) *guardtest.Process {
	p := &guardtest.Process{Store: &guardtest.FaultStore{Behind: shared}, Events: &guardtest.Events{}}
	kept := int64(keptBody)
	if w.conduct.bulky {
		kept = 2 * bulkyBody
		p.Store.Throttle(slowBytesPerSecond)
	}
	options := append(version, idempotency.WithLease(guardtest.LeaseTime), idempotency.WithRecovery(w.recovery),
		idempotency.WithLimits(idempotency.Limits{ResponseBody: kept}), idempotency.WithObserver(p.Events.Observe))
	st := &grantStore{p.Store, w, p}
	p.Guard = guardtest.NewGuard(w.t, st, options...)
	w.t.Cleanup(func() { _ = p.Guard.Shutdown(guardtest.Shortly(w.t)) }) // a broken guard may have no end
	var handler http.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		op, _ := idempotency.FromContext(r.Context())
		run := w.start(p, op.Attempt())
		w.conduct.run(&faultRun{w, r.Context(), op}, rw, run)
	})
	if w.company.nested {
		handler = nest(w.t, guardtest.NewGuard(w.t, st, options...), eachItsOwn(), handler)
	}
	guarded := p.Guard.Handler(handler)
	p.Server = guardtest.ServeRecorder(w.t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if w.conduct.limit > 0 && !w.begun() {
			ctx, cancel := context.WithTimeout(r.Context(), w.conduct.limit)
			defer cancel()
			r = r.WithContext(ctx)
		}
		guarded.ServeHTTP(&guardtest.Witness{ResponseWriter: rw, Shown: func(h http.Header, status int) { w.shown(p, h, status) }}, r)
	}))
	return p
}

// A grantStore reports the claims that its guard was told to have, in time, and that an answer was
// recorded.
type grantStore struct {
	*guardtest.FaultStore
	world   *faultWorld
	process *guardtest.Process
}

func (s *grantStore) Claim(ctx context.Context, key string, c store.Claim) (store.Record, error) {
	rec, err := s.FaultStore.Claim(ctx, key, c)
	if err == nil && rec.Mine && ctx.Err() == nil {
		s.world.mu.Lock()
		defer s.world.mu.Unlock()
		s.world.granted[rec.Attempt] = grant{s.process, s.world.life, rec.Attempt}
	}
	return rec, err
}

func (s *grantStore) Complete(ctx context.Context, key string, o store.Owner, c store.Completion) error {
	err := s.FaultStore.Complete(ctx, key, o, c)
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	s.world.recorded = s.world.recorded || err == nil
	return err
}

// strike is what happens at a call of the faulty process.
func (w *faultWorld) strike(op string, n int) guardtest.Fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	var (
		fault guardtest.Fault
		acts  []func()
	)
	if w.away && op == "renew" {
		fault = guardtest.Hang
	}
	if late := w.late; late != nil {
		acts = append(acts, func() { w.tryLate(*late) })
	}
	for _, m := range w.mishaps {
		switch {
		case m.op != op || m.n != n:
			continue
		case isFault(m):
			fault = faults[m.kind]
		default:
			acts = append(acts, func() { w.act(m) })
		}
		w.suffered++
	}
	if acts == nil {
		return fault
	}
	return func(ctx context.Context, proceed func() error) error {
		for _, act := range acts {
			act()
		}
		if fault == nil {
			return proceed()
		}
		return fault(ctx, proceed)
	}
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

// begun reports whether a run has begun.
func (w *faultWorld) begun() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.runs > 0
}

// start checks what must be true whenever a handler starts.
func (w *faultWorld) start(p *guardtest.Process, attempt int) (run int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	g := w.granted[attempt]
	if g.to != p {
		w.t.Errorf("attempt %d runs without a claim", attempt)
	}
	if g.life == w.last.life && attempt <= w.last.attempt {
		w.t.Errorf("attempt %d runs after attempt %d", attempt, w.last.attempt)
	}
	if w.decided {
		w.t.Errorf("attempt %d runs after it was decided what the answer is", attempt)
	}
	w.last = g
	w.runs++
	if w.runs == 1 {
		close(w.started)
	}
	return w.runs
}

// effect books with a bank that recognises a repetition by its key.
func (w *faultRun) effect() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bookings[idempotency.DeriveKey(w.ctx, "charge")+" "+w.op.ID()]++
	if len(w.bookings) > 1 {
		w.t.Errorf("the bank does not recognise the second effect: %v", w.bookings)
	}
}

func (w *faultWorld) answer(rw http.ResponseWriter, run int) {
	rw.Header().Set("Location", fmt.Sprintf("/charges/%d", run))
	rw.WriteHeader(http.StatusCreated)
	_, _ = fmt.Fprintf(rw, "charged by run %d", run)
}

// shown checks that a client sees no definite answer that is not recorded, unless the
// store was away for longer than a client is kept waiting, and none that contradicts what was
// decided by hand.
func (w *faultWorld) shown(p *guardtest.Process, h http.Header, status int) {
	if w.conduct.sent || status != http.StatusCreated || h.Get("Idempotent-Replayed") != "" {
		return
	}
	info, err := w.auditor().Lookup(w.t.Context(), guardtest.HeldKey)
	w.mu.Lock()
	defer w.mu.Unlock()
	recorded := err == nil && info.State == store.Completed && info.Status == status
	wasRecorded := w.life > 0 && w.recorded // and the record was lost or forgotten right then
	if w.decided || !recorded && !wasRecorded && p.Events.Count(event.RecordingDelayed) == 0 {
		w.t.Errorf("an answer is shown before it is recorded: the key is %v with status %d, %v", info.State, info.Status, err)
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
		return got.Status == http.StatusCreated || got.Body == decidedAnswer || w.isRefusal(got)
	case got.Problem.Code == problem.OutcomeUnknown:
		if w.recovery != idempotency.Hold {
			w.t.Error("a key is held")
		}
		return true
	case got.Problem.Code == problem.InFlight, got.Problem.Code == problem.StoreUnavailable,
		got.Problem.Code == problem.NoAnswer && w.conduct.limit > 0:
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
	return w.conduct.refuses && (w.recovery == idempotency.Hold || w.life > 0) && got.Status == http.StatusUnprocessableEntity
}

// retry is a client: it asks until it has the last word. pause grows up to most. It turns to each
// of the servers in turn.
func (w *faultWorld) retry(pause, most time.Duration, servers ...*guardtest.Server) {
	for n := 0; ; n++ {
		asked := w.now()
		select {
		case <-w.started:
		default:
			n = 0 // the first run is that of the faulty process
		}
		got, err := servers[n%len(servers)].TryAlone(w.t.Context(), guardtest.Call{Key: "k"})
		if w.isLast(got, err) {
			w.mu.Lock()
			w.words = append(w.words, word{got, asked})
			w.mu.Unlock()
			return
		}
		w.mu.Lock()
		late := time.Since(w.begin) - w.conduct.takes - guardtest.LeaseTime // two mishaps cost nobody a lease
		if late -= time.Duration(w.reopened) * (w.conduct.takes + guardtest.LeaseTime); late > 0 {
			w.t.Error("a client is kept waiting")
		}
		w.mu.Unlock()
		if w.t.Failed() {
			return
		}
		time.Sleep(pause)
		pause = min(pause+pause/2, most)
	}
}

// now is the era.
func (w *faultWorld) now() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.era
}

// run lets the clients come to an end, checks the world, and returns how many calls of
// each kind the faulty process has made.
func (w *faultWorld) run() map[string]int {
	one, other := []*guardtest.Server{w.faulty.Server}, []*guardtest.Server{w.processes[1].Server}
	switch {
	case w.company.newer != nil:
		one, other = append(one, other...), append(other, one...)
	case w.company.gated:
		one[0] = w.gateway(w.faulty)
	}
	var clients sync.WaitGroup
	clients.Go(func() {
		w.retry(101*time.Millisecond, 997*time.Millisecond, one...)
		time.Sleep(time.Second)
		w.retry(101*time.Millisecond, 997*time.Millisecond, one...) // it asks again
	})
	clients.Go(func() {
		select {
		case <-w.started:
		case <-time.After(w.conduct.takes + guardtest.LeaseTime): // which is a failure
		}
		time.Sleep(150 * time.Millisecond)
		w.retry(150*time.Millisecond, 4*time.Second, other...)
	})
	clients.Wait()
	time.Sleep(time.Minute) // what goes on in the background
	now := w.check()
	counts := map[string]int{}
	for _, op := range guardtest.StoreOps {
		counts[op] = w.faulty.Store.Count(op)
	}
	time.Sleep(15 * time.Minute) // a claim that was lost may still arrive
	w.faulty.RequireQuiet(w.t)
	if now.Problem.Code == problem.OutcomeUnknown {
		time.Sleep(366 * 24 * time.Hour)
		require.Equal(w.t, problem.OutcomeUnknown, w.ask().Problem.Code, "what was held a year ago")
	}
	return counts
}

// ask asks when the last word was spoken: nobody runs any more.
func (w *faultWorld) ask() guardtest.Reply {
	trap := guardtest.ServeRecorder(w.t, w.auditor().Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		w.t.Error("the handler runs after the last word was spoken")
	})))
	return trap.Do(w.t, guardtest.Call{Key: "k"})
}

// check compares what has happened with what may have happened, and returns what a client is told
// in the end.
func (w *faultWorld) check() guardtest.Reply {
	w.checkRuns()
	w.words = slices.DeleteFunc(w.words, func(told word) bool { return told.era < w.era })
	if len(w.words) == 0 {
		return guardtest.Reply{}
	}
	now := w.ask()
	if w.decided {
		require.Equal(w.t, decidedAnswer, now.Body)
	}
	if w.era == 0 {
		require.Equal(w.t, w.conduct.bulky, w.conduct.name != "large" && now.Problem.Code == problem.ResponseNotKept)
	}
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
			if w.era == 0 {
				require.Equal(w.t, "/charges/1", now.Problem.OriginalLocation)
			}
		default:
			require.True(w.t, now.Replayed(), "a client was told %d %q, and now %d %q", got.Status, got.Body, now.Status, now.Body)
			require.Equal(w.t, now.Body, got.Body)
			require.Equal(w.t, now.Status, got.Status)
			require.Equal(w.t, now.Header.Get("Location"), got.Header.Get("Location"))
		}
	}
	if w.era == 0 {
		require.Equal(w.t, w.conduct.lost, w.faulty.Events.Count(event.LeaseLost) > 0, "the lease was lost")
	}
	require.Zero(w.t, w.faulty.Events.Count(event.RecordingLost))
	return now
}

// checkRuns counts runs and effects. After each act of others that leaves the outcome open there may
// be one more run.
func (w *faultWorld) checkRuns() {
	held := w.recovery == idempotency.Hold
	want := 1
	if w.conduct.ends == idempotency.NotExecuted || !held && (w.conduct.ends == idempotency.Unknown || w.conduct.lost) {
		want = 2
	}
	if !held && (w.conduct.refuses || w.conduct.again) {
		want = 3
	}
	if w.era > 0 {
		require.LessOrEqual(w.t, w.runs, want+w.reopened, "runs")
		require.Positive(w.t, w.runs)
		return
	}
	require.Equal(w.t, want, w.runs, "runs")
	if w.conduct.ends == idempotency.NotExecuted || w.conduct.refuses {
		want--
	}
	effects := 0
	for _, n := range w.bookings {
		effects += n
	}
	require.Equal(w.t, want, effects, "effects")
}
