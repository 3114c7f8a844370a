package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// A simulation is one world: a store, the processes that share it and their clients.
//
// All that is random is drawn from the seed and the name of whoever draws, so that it
// does not depend on the order in which goroutines run; and times are drawn to the
// nanosecond, so that no two actors act at the same instant.
type simulation struct {
	t         *testing.T
	seed      uint64
	mode      simMode
	begin     time.Time
	calm      time.Duration // when the faults end
	kind      simKind
	rebinding bool          // a request that was turned away may be corrected
	lease     time.Duration // the longest of its processes
	store     *idempotency.MemoryStore
	bank      simBank
	gateway   *simGateway  // of a gated world
	weather   []simWeather // of each process and of its successors
	versions  []simVersion // likewise

	mu        sync.Mutex
	processes []*simProcess // alive or dead, one for each weather
	keys      []*simKey
	events    []simEvent
	seen      simTotals
	suspect   int // the key with which something is wrong
	ending    bool
}

// A simDice is what somebody draws from.
type simDice struct{ *rand.Rand }

// dice returns those of whoever has this name.
func (w *simulation) dice(name ...int) simDice {
	h := w.seed
	if w.mode == liveness { // other worlds than in the first mode
		h = ^h
	}
	for _, n := range name {
		h = (h ^ uint64(n+1)) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	return simDice{rand.New(rand.NewPCG(w.seed, h))}
}

// What the first part of a name says.
const (
	ofWorld = iota
	ofWeather
	ofClient
	ofRequest
	ofCall
	ofRun
	ofLoss
	ofOperator
	ofVersion
	ofTransaction
)

func (d simDice) upTo(most time.Duration) time.Duration {
	return time.Duration(1 + d.Int64N(int64(most)))
}

func (d simDice) between(least, most time.Duration) time.Duration { return least + d.upTo(most-least) }

func (d simDice) oneIn(n int) bool { return d.IntN(n) == 0 }

func newSimulation(t *testing.T, seed uint64, mode simMode) *simulation {
	w := &simulation{t: t, seed: seed, mode: mode, begin: time.Now(), store: idempotency.NewMemoryStore()}
	d := w.dice(ofWorld)
	w.kind = simKinds[d.IntN(len(simKinds))]
	w.lease = []time.Duration{3 * time.Second, 9 * time.Second, 30 * time.Second}[d.IntN(3)]
	w.calm = 5 * w.lease
	if mode == safety {
		w.calm = 24 * time.Hour
	}
	v := simVersion{lease: w.lease, kept: keptBody}
	if d.oneIn(3) {
		v.wait = d.upTo(w.lease)
	}
	if d.oneIn(2) {
		v.recovery = idempotency.Hold
	}
	w.rebinding = w.dice(ofWorld, 2).oneIn(2)
	keys := 2 + d.IntN(3)
	if w.kind == disputed {
		keys, v.recovery, v.wait = 1, idempotency.Rerun, 0
	}
	if w.kind == operated { // decisions meet
		keys = 1
	}
	for range keys {
		w.keys = append(w.keys, newSimKey(len(w.keys), d.oneIn(4) && !w.sealed() && w.kind != joined))
	}
	for i := range 2 + d.IntN(2) {
		w.weather = append(w.weather, newSimWeather(w.dice(ofWeather, i), w.lease, w.kind))
		w.versions = append(w.versions, w.version(i, v))
		w.processes = append(w.processes, w.process(i))
	}
	if w.kind == gated {
		w.gateway = w.newGateway()
	}
	return w
}

func (w *simulation) now() time.Duration { return time.Since(w.begin) }

// run lets the clients come to an end, and looks at what they leave behind.
func (w *simulation) run() {
	var actors sync.WaitGroup
	for i := range w.weather {
		actors.Go(func() { w.rain(i) })
	}
	for i := range 3 + w.dice(ofWorld, 1).IntN(3) {
		actors.Go(func() { w.client(i) })
	}
	w.intervene(&actors)
	actors.Wait()
	if w.mode == liveness {
		time.Sleep(max(0, w.calm-w.now()) + w.lease + w.givingUp()) // what is settled in the background
		w.checkAllIsRecorded()
		w.checkNothingIsHeldForNothing()
		w.checkBulkyIsNotKept()
		w.checkNothingIsOpen()
	}
	w.mu.Lock()
	w.ending = true
	alive := w.processes
	w.mu.Unlock()
	for _, p := range alive {
		ctx, cancel := context.WithTimeout(context.Background(), w.lease)
		err := p.guard.Shutdown(ctx)
		cancel()
		if w.mode == liveness && err != nil {
			w.failf(everyKey, "something is left to be done at the end: %v", err)
		}
	}
	time.Sleep(10 * w.lease) // what is still under way arrives
	if w.kind != operated && !w.t.Failed() {
		time.Sleep(max(0, w.calm-w.now()))
		w.lookLater()
	}
}

// failf reports what is wrong, once. It tells the seed too, should the world never end.
func (w *simulation) failf(key int, format string, args ...any) {
	if !w.t.Failed() {
		w.suspect = key
		w.t.Errorf("%v, SEED=%d: at %v, key %d: %s", w.mode, w.seed, w.now(), key, fmt.Sprintf(format, args...))
	}
}

// rain crashes a process whenever its weather says so, and starts the next one.
func (w *simulation) rain(i int) {
	for _, c := range w.weather[i].crashes {
		time.Sleep(c.from - w.now())
		w.mu.Lock()
		p := w.processes[i]
		w.seen[simCrashes]++
		w.events = append(w.events, simEvent{at: w.now(), key: everyKey, what: fmt.Sprintf("process %d dies", i)})
		w.mu.Unlock()
		p.die()
		time.Sleep(c.to - w.now())
		w.mu.Lock()
		w.processes[i] = w.process(i)
		w.mu.Unlock()
	}
}

// A simRequest is one request of a client. It travels in the request's context, which
// the store calls on its behalf inherit.
type simRequest struct {
	client, op, try int
	key             *simKey
	payload         int
	process         *simProcess

	// Guarded by the world's mutex.
	calls   map[string]int  // of the store, by kind
	astray  []time.Duration // when those were sent that a fault befell, in fair weather
	copied  bool            // one was delivered twice
	owners  []store.Owner   // its own, and the one as which it asks for a lost claim again
	life    int             // of the key, in which its claim was granted
	granted int             // the attempt that the guard was told to have
	run     *simRun
	passed  *simRequest // what a gateway has made of it
	told    bool        // by the store of a record of somebody else
	delayed bool        // it is answered before its run is recorded, if ever
	// The store has taken what the run left, or has said that another has the key.
	settled, displaced bool
	supplanted         bool // the key of its run was found with another payload
	// saw is what an operator or a resolver knows of the key, and decision its answer.
	saw      *idempotency.RecordInfo
	decision *simRun
}

type simRequestKey struct{}

func requestOf(ctx context.Context) *simRequest { return ctx.Value(simRequestKey{}).(*simRequest) }

func (q *simRequest) String() string { return fmt.Sprintf("c%d/%d/%d", q.client, q.op, q.try) }

// client makes a few requests, one after the other, and retries each until it has the
// last word; in the first mode it may lose patience.
func (w *simulation) client(id int) {
	d := w.dice(ofClient, id)
	for op := range 3 + d.IntN(4) {
		time.Sleep(d.upTo(3 * w.lease / 2))
		key := w.keys[d.IntN(len(w.keys))]
		payload := 0
		if d.oneIn(12) {
			payload = 1
		}
		asked := w.now()
		pause := 50 * time.Millisecond
		if w.kind == disputed { // the record is free for a while
			pause = w.lease / 3
		}
		for try := 0; ; try++ {
			q := &simRequest{client: id, op: op, try: try, key: key, payload: payload, calls: map[string]int{}}
			last := w.send(q)
			if w.isTooLate(key, asked) {
				return
			}
			if last {
				break
			}
			if w.kind == corrected && w.wasTurnedAway(q) {
				payload++
				if d.oneIn(2) { // it takes its time
					time.Sleep(min(3*w.lease, w.calm-w.now()))
				}
			}
			time.Sleep(d.between(pause/2, pause))
			pause = min(2*pause, w.lease/3)
		}
	}
}

// wasTurnedAway reports whether a request was told that nothing was done.
func (w *simulation) wasTurnedAway(q *simRequest) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return q.run != nil && q.run.outcome == idempotency.NotExecuted
}

// isTooLate reports whether a client stops asking: in the second mode, that is a failure.
func (w *simulation) isTooLate(key *simKey, asked time.Duration) bool {
	if w.mode == safety {
		return w.now() > asked+4*w.lease
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if late := w.now() - max(asked, w.calm) - w.patience(); late > 0 {
		w.failf(key.index, "a client is kept waiting")
	}
	return w.t.Failed()
}

// patience is how long after the end of all faults a client may have to wait: a run may
// still be going on and end without an answer, or its process may be dead; then there is
// one more run.
func (w *simulation) patience() time.Duration {
	retry := w.lease / 3
	storeTimeout := min(2*time.Second, w.lease/3)
	heartbeat := w.lease / 3
	return longestRun(w.lease) + w.lease + storeTimeout + heartbeat + shortestRun + 2*retry + w.givingUp()
}

// send makes one request and reports whether its answer is the last word.
func (w *simulation) send(q *simRequest) bool {
	d := w.dice(ofRequest, q.client, q.op, q.try)
	q.process = w.processOf(d, q)
	if w.gateway != nil && d.oneIn(2) {
		q.process = w.gateway.simProcess
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if d.oneIn(4) {
		ctx, cancel = context.WithTimeout(ctx, d.upTo(w.lease)) // it hangs up and asks again
		defer cancel()
	}
	got, ok := w.ask(ctx, q)
	return ok && w.answered(q, got)
}

func (w *simulation) anyProcess(d simDice) *simProcess {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.processes[d.IntN(len(w.processes))]
}

// processOf returns the process that a request goes to. In calm, a client turns to each in turn:
// by chance it could meet the one that cannot read its record again and again.
func (w *simulation) processOf(d simDice, q *simRequest) *simProcess {
	p := w.anyProcess(d)
	if w.now() < w.calm {
		return p
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.processes[(q.client+q.try)%len(w.processes)]
}

// ask sends a request to its process. It reports false if there is no answer: if the process
// dies, or if the client hangs up. At one instant, both come before an answer.
func (w *simulation) ask(ctx context.Context, q *simRequest) (guardtest.Reply, bool) {
	p := q.process
	type result struct {
		guardtest.Reply
		err error
	}
	answered := make(chan result, 1)
	go func() {
		ctx := context.WithValue(ctx, simRequestKey{}, q)
		got, err := p.TryAlone(ctx, guardtest.Call{Key: fmt.Sprintf("key-%d", q.key.index), Body: fmt.Sprintf(`{"amount":%d}`, q.payload)})
		answered <- result{got, err}
	}()
	var r result
	select {
	case r = <-answered:
	case <-p.dead:
	case <-ctx.Done():
	}
	if p.isDead() || ctx.Err() != nil {
		return guardtest.Reply{}, false
	}
	if r.err != nil && !errors.Is(r.err, guardtest.ErrCut) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.failf(q.key.index, "%v: %v", q, r.err)
	}
	return r.Reply, r.err == nil
}

// answered checks what a client was told, and reports whether it is the last word.
func (w *simulation) answered(q *simRequest, got guardtest.Reply) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tell(q, "is answered", 0, fmt.Sprintf("%d %s %.30s", got.Status, got.Problem.Code, got.Header.Get("X-Run")))
	if got.Problem.Code != "" && got.Replayed() {
		w.failf(q.key.index, "%v gets a refusal for a recorded answer: %s", q, got.Problem.Code)
	}
	w.checkWord(q, got)
	switch got.Problem.Code {
	case "":
		return w.checkAnswer(q, got.Status, got.Header, got.Body)
	case problem.InFlight, problem.StoreUnavailable, problem.TryLater, problem.ShuttingDown, problem.NoAnswer:
		return false
	case problem.RolledBack, problem.CannotCommit:
		w.deniesCommit(q)
		return false
	case problem.KeyReused:
		w.seen[simReused]++
		// A gateway binds the key in a store of its own.
		if bound := q.key.bound; w.gateway == nil && (len(bound) == 0 || len(bound) == 1 && bound[q.payload]) {
			w.failf(q.key.index, "%v is told that its key is another's", q)
		}
	case problem.OutcomeUnknown:
		w.seen[simHeld]++
		if !w.mayHold() {
			w.failf(q.key.index, "the key is held")
		}
	case problem.ResponseNotKept:
		if !q.key.hasLarge() {
			w.failf(q.key.index, "%v is refused a recorded answer", q)
		}
	default:
		w.failf(q.key.index, "%v gets %d %s", q, got.Status, got.Body)
	}
	return true
}

// mayHold reports whether there are processes that hold keys.
func (w *simulation) mayHold() bool {
	return w.kind != joined && slices.ContainsFunc(w.versions, func(v simVersion) bool { return v.recovery == idempotency.Hold })
}

// hasLarge reports whether an answer was recorded that may have been too large to be kept.
func (k *simKey) hasLarge() bool {
	return slices.ContainsFunc(k.all, func(r *simRun) bool { return (r.conduct == runLarge || r.conduct == runBulky) && k.answers[r.name()] })
}

// tell adds to the story.
func (w *simulation) tell(q *simRequest, what string, attempt int, note string) {
	w.events = append(w.events, simEvent{w.now(), q.key.index, q.String(), what, attempt, note})
}

// checkAllIsRecorded is what has to be true a lease after all faults: an answer whose
// process has lived on, and whose claim nobody took over, is recorded.
func (w *simulation) checkAllIsRecorded() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range w.keys {
		for _, r := range k.runs {
			if r.outcome == idempotency.Final && r.tx == nil && !r.overtaken && !r.request.process.isDead() && !k.answers[r.name()] {
				w.failf(k.index, "the answer of attempt %d is never recorded", r.attempt)
			}
		}
		if k.completed != nil {
			rec, err := w.store.Get(context.Background(), k.stored())
			require.NoError(w.t, err)
			require.Equal(w.t, store.Completed, rec.State)
		}
	}
}

// serves is the process's end of the network.
func (w *simulation) serves(p *simProcess, guarded http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		q := requestOf(r.Context())
		p.await(w.dice(ofRequest, q.client, q.op, q.try, 1))
		guarded.ServeHTTP(&guardtest.Witness{ResponseWriter: rw, Shown: func(h http.Header, status int) { w.shown(q, h, status) }}, r)
	})
}
