package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
)

// TestStepPrograms runs random programs of steps on processes that fail in all the ways
// that processes do, retried by two clients, and checks what Step promises. SEED in the
// environment repeats a run.
func TestStepPrograms(t *testing.T) {
	seed := rand.Uint64()
	if s := os.Getenv("SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
	}
	programs, batch := uint64(400/share), uint64(80)
	if exhaustive {
		programs = 4000
	}
	derived := make(map[string]string) // of all programs: whose each is
	var seen totals
	for from := uint64(0); from < programs && !t.Failed(); from += batch {
		synctest.Test(t, func(t *testing.T) {
			for n := from; n < from+batch && !t.Failed(); n++ {
				newWorld(t, seed, n, derived).run(&seen)
			}
			time.Sleep(time.Minute) // the last calls of processes that hang time out
		})
	}
	// A generator that makes nothing happen proves nothing.
	t.Logf("%d programs: %+v", programs, seen)
	require.Greater(t, seen.runs, int(3*programs/2)) // about 2.2 for each
	for what, n := range map[string]int{
		"recorded": seen.recorded, "replayed": seen.replayed, "uncertain": seen.uncertain,
		"lost": seen.lost, "refused": seen.refused, "answered": seen.answered, "forgotten": seen.forgotten,
	} {
		require.Greater(t, n, int(programs/100), what)
	}
}

// totals count what happened in all programs.
type totals struct {
	runs      int // of handlers and functions
	recorded  int // steps
	replayed  int // steps that a later attempt found
	uncertain int // steps that were found begun
	lost      int // steps that happened and could not be recorded
	refused   int // steps not begun because the lease was over
	answered  int // clients with a final answer
	forgotten int // records
}

// What happens to a step in one attempt.
const (
	actOK = iota
	actFail
	actPermanent
	actPanic
	actGoexit
	actCrashBefore  // the process dies before the effect,
	actCrashBetween // between effect and record,
	actCrashAfter   // and after the record
	actNapBefore    // the process is cut off, and paused for longer than the lease, before
	actNap          // and during the step
	actRefuse       // the store fails for a moment,
	actLoseReply    // or its answer is lost
	actDrop         // the store stays away for the rest of the step
	actForget       // the store loses the record, once in a program
	acts
)

// calmAfter is the attempt after which nothing goes wrong any more.
const calmAfter = 7

const programLease = 3 * time.Second

// A world is one program: one key, the steps of its handler, and what has become of them.
type world struct {
	t       *testing.T
	seed, n uint64
	key     idempotency.Key
	asJob   bool // run by Do rather than by a handler
	steps   []string
	once    map[string]bool // marked with AtMostOnce
	store   *idempotency.MemoryStore
	derived map[string]string

	mu       sync.Mutex
	current  *programProcess
	all      []*programProcess
	attempt  int
	effects  int
	begun    map[string]int
	recorded map[string]string // as first recorded, in the stored form
	answer   string
	seen     totals

	forgot  bool
	sending int
	excused map[string]bool // steps that nobody knew of any more when the record was forgotten
}

type programProcess struct {
	store guardtest.StepFaultStore
	guard *idempotency.Guard
	dead  bool
}

func newWorld(t *testing.T, seed, n uint64, derived map[string]string) *world {
	w := &world{
		t: t, seed: seed, n: n, derived: derived,
		key:      idempotency.Key{Scope: "acme", Value: fmt.Sprintf("program-%d", n)},
		store:    idempotency.NewMemoryStore(),
		once:     map[string]bool{},
		begun:    map[string]int{},
		excused:  map[string]bool{},
		recorded: map[string]string{},
	}
	r := w.random(0, 0)
	w.asJob = r.IntN(2) == 0
	for i := range 1 + r.IntN(5) {
		name := fmt.Sprintf("s%d", i)
		w.steps = append(w.steps, name)
		w.once[name] = r.IntN(5) == 0
	}
	return w
}

// random is a source that depends on the program, attempt and step, and on nothing that
// the scheduler decides.
func (w *world) random(attempt, step int) *rand.Rand {
	return rand.New(rand.NewPCG(w.seed, w.n<<16|uint64(attempt)<<8|uint64(step)))
}

func (w *world) errorf(format string, args ...any) {
	w.t.Errorf("SEED=%d, program %d: %s", w.seed, w.n, fmt.Sprintf(format, args...))
}

// run lets two clients retry until each has a final answer or learns that there is none.
func (w *world) run(sum *totals) {
	guardtest.Together(2, func(client int) {
		pauses := w.random(200, client)
		for range 200 {
			if w.send() {
				return
			}
			time.Sleep(time.Duration(100+pauses.IntN(2000)) * time.Millisecond)
		}
		w.errorf("client %d never got an answer", client)
	})
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for _, p := range w.all {
		_ = p.guard.Shutdown(over) // a dead process finishes nothing
	}
	synctest.Wait()
	sum.add(w.seen)
}

func (s *totals) add(o totals) {
	s.runs += o.runs
	s.recorded += o.recorded
	s.replayed += o.replayed
	s.uncertain += o.uncertain
	s.lost += o.lost
	s.refused += o.refused
	s.answered += o.answered
	s.forgotten += o.forgotten
}

// send makes one request, and reports whether its answer is the last word.
func (w *world) send() (settled bool) {
	p := w.process()
	w.mu.Lock()
	w.sending++
	w.mu.Unlock()
	var answer string
	var err error
	ended := make(chan struct{})
	go func() { // on a goroutine of its own, because it may end in Goexit
		defer close(ended)
		defer func() { _ = recover() }()
		err = errors.New("the connection was cut")
		if w.asJob {
			answer, _, err = idempotency.Do(context.Background(), p.guard, w.key, func(ctx context.Context) (string, error) {
				return w.handle(ctx, p)
			})
		} else {
			answer, err = w.request(p)
		}
	}()
	<-ended
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sending--
	switch {
	case err == nil && w.answer == "":
		w.answer = answer
	case err == nil && w.answer != answer:
		w.errorf("one client got %q and another %q", w.answer, answer)
	}
	if err == nil {
		w.seen.answered++
	}
	return err == nil || errors.Is(err, idempotency.ErrHeld)
}

func (w *world) request(p *programProcess) (string, error) {
	s := guardtest.ServeRecorder(w.t, p.guard.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		answer, err := w.handle(r.Context(), p)
		if err != nil {
			http.Error(rw, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = rw.Write([]byte(answer))
	})))
	got, err := s.Try(context.Background(), guardtest.Call{Key: w.key.Value})
	switch {
	case err != nil:
		return "", err
	case got.Problem.Code == problem.OutcomeUnknown:
		return "", idempotency.ErrHeld
	case got.Status != http.StatusOK:
		return "", fmt.Errorf("status %d: %s", got.Status, got.Body)
	}
	return got.Body, nil
}

// settling reports whether a process that lives has a run which it could not tell the store of yet.
func (w *world) settling() bool {
	return slices.ContainsFunc(w.all, func(p *programProcess) bool { return !p.dead && p.guard.Stats().Pending > 0 })
}

// handle is the program: its steps one after another, in some programs the first two at
// once. Its answer is what the steps returned.
func (w *world) handle(ctx context.Context, p *programProcess) (string, error) {
	op, _ := idempotency.FromContext(ctx)
	w.mu.Lock()
	w.seen.runs++
	if w.sending > 1 || w.settling() {
		w.excuse(nil) // a run begins beside one whose record is lost
	}
	reached := make(map[string]bool)
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.excuse(reached)
	}()
	if op.Attempt() <= w.attempt {
		w.errorf("attempt %d after %d", op.Attempt(), w.attempt)
	}
	w.attempt = op.Attempt()
	for _, name := range append([]string{""}, w.steps...) {
		whose := w.key.Value + "/" + name
		key := idempotency.DeriveKey(ctx, name)
		if other, ok := w.derived[key]; ok && other != whose {
			w.errorf("%s and %s have the same derived key", other, whose)
		}
		w.derived[key] = whose
		w.derived["of "+whose] = key
	}
	w.mu.Unlock()

	values := make([]string, len(w.steps))
	errs := make([]error, len(w.steps))
	step := func(i, act int) {
		w.mu.Lock()
		reached[w.steps[i]] = true
		w.mu.Unlock()
		values[i], errs[i] = w.step(ctx, p, i, act)
	}
	next := 0
	if len(w.steps) > 1 && w.random(0, 1).IntN(2) == 0 {
		guardtest.Together(2, func(i int) { step(i, w.act(op.Attempt(), i)%actPanic) })
		next = 2
	}
	for i := range w.steps {
		if i >= next {
			step(i, w.act(op.Attempt(), i))
		}
		if errs[i] != nil && !errors.Is(errs[i], idempotency.ErrPermanent) {
			return "", errs[i]
		}
	}
	if w.act(op.Attempt(), len(w.steps)) == actNap {
		w.nap(p)
	}
	return strings.Join(values, " "), nil
}

// act is what goes wrong with a step.
func (w *world) act(attempt, step int) int {
	r := w.random(attempt, 2+step)
	if attempt > calmAfter || r.IntN(2) == 0 {
		return actOK
	}
	return r.IntN(acts)
}

// nap is a pause for longer than the lease, in which nothing is renewed.
func (w *world) nap(p *programProcess) {
	p.store.On("renew", guardtest.Always(guardtest.Hang))
	time.Sleep(programLease + 2*time.Second)
	p.store.On("renew", nil)
}

func (w *world) step(ctx context.Context, p *programProcess, i, act int) (string, error) {
	name := w.steps[i]
	var opts []idempotency.TaskOption
	if w.once[name] {
		opts = append(opts, idempotency.AtMostOnce())
	}
	if act == actNapBefore {
		w.nap(p)
	}
	ran := false
	got, err := idempotency.Step(ctx, name, func(ctx context.Context) (string, error) {
		ran = true
		return w.effect(ctx, p, name, act)
	}, opts...)
	if act == actDrop {
		p.store.On("step", nil)
	}
	w.check(name, ran, got, err)
	if act == actCrashAfter {
		w.crash(p)
	}
	if errors.Is(err, idempotency.ErrPermanent) {
		return name + "!" + err.Error(), err
	}
	return name + "=" + got, err
}

// effect is the function of a step.
func (w *world) effect(ctx context.Context, p *programProcess, name string, act int) (string, error) {
	w.mu.Lock()
	w.begun[name]++
	w.effects++
	value := fmt.Sprintf("%s#%d", name, w.effects) // no two runs of a step have the same
	if first, ok := w.recorded[name]; ok {
		w.errorf("%s runs again although %q is recorded", name, first)
	}
	if w.once[name] && w.begun[name] > 1 && !w.excused[name] {
		w.errorf("%s runs %d times although at most once", name, w.begun[name])
	}
	if key := idempotency.DeriveKey(ctx, name); w.derived["of "+w.key.Value+"/"+name] != key {
		w.errorf("the derived key of %s has changed to %s", name, key)
	}
	w.mu.Unlock()

	switch act {
	case actFail:
		return "", errors.New("failed")
	case actPermanent:
		return "", idempotency.Permanent(errors.New("declined " + value))
	case actPanic:
		panic("boom")
	case actGoexit:
		runtime.Goexit()
	case actCrashBefore, actCrashBetween: // for the record it is the same
		w.crash(p)
	case actNap:
		w.nap(p)
	case actForget:
		w.forget()
	case actRefuse, actLoseReply, actDrop:
		hit := map[int]func(int) guardtest.Fault{
			actRefuse: guardtest.First(p.store.Count("step")+2, guardtest.Refuse), actLoseReply: guardtest.First(p.store.Count("step")+2, guardtest.LoseReply),
			actDrop: guardtest.Always(guardtest.Refuse),
		}
		p.store.On("step", hit[act])
	}
	return value, nil
}

// check compares what Step returned with what is recorded.
func (w *world) check(name string, ran bool, got string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	recorded, ok := w.recorded[name]
	switch {
	case err == nil && !w.forgot && recorded != fmt.Sprintf("v%q", got):
		w.errorf("%s returned %q, recorded is %q", name, got, recorded)
	case errors.Is(err, idempotency.ErrPermanent) && !w.forgot && !errors.Is(err, idempotency.ErrNotRecorded) && recorded != "e"+err.Error():
		w.errorf("%s failed with %q, recorded is %q", name, err, recorded)
	case errors.Is(err, idempotency.ErrNotRecorded):
		w.seen.lost++
	case errors.Is(err, idempotency.ErrUncertain):
		w.seen.uncertain++
		if !w.once[name] || ok || ran {
			w.errorf("%s is uncertain: once %v, recorded %q, ran %v", name, w.once[name], recorded, ran)
		}
	case errors.Is(err, idempotency.ErrLeaseLost):
		w.seen.refused++
	case errors.Is(err, idempotency.ErrStepMisuse), errors.Is(err, idempotency.ErrCorrupt):
		w.errorf("%s: %v", name, err)
	}
	if !ran && (err == nil || errors.Is(err, idempotency.ErrPermanent)) {
		w.seen.replayed++
	}
}
