package simulation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
)

// A simRun is one run of a handler.
type simRun struct {
	request *simRequest
	ctx     context.Context
	op      *idempotency.Operation
	attempt int
	life    int // of the key, in which the claim was granted
	conduct simConduct

	// Guarded by the world's mutex.
	outcome   idempotency.Outcome // zero while the run goes on
	status    int
	body      string
	overtaken bool   // another claim has taken over
	tx        *simTx // that it has joined last
	cleared   bool   // somebody has found out that it did nothing
}

func (r *simRun) name() string {
	if r.op == nil {
		return "decided by " + r.request.String()
	}
	return fmt.Sprintf("%d/%d/%d", r.request.key.index, r.life, r.attempt)
}

// A simConduct is what a run does.
type simConduct int

const (
	runKept simConduct = iota
	runLarge
	runStreaming
	runRefusing
	runTurnedAway
	runFailing
	runPanicking
	runExiting
	runDenying // an effect that it has had
	runShort
	runInsisting // on a refusal, whatever it has been told
	runBulky
)

// isSent reports whether the client sees the answer before it is whole.
func (c simConduct) isSent() bool { return c == runLarge || c == runStreaming }

// draw is what the run of a key does, and how long it takes before its effect and after.
// In a disputed world most runs refuse or fail.
func (d simDice) draw(lease time.Duration, calm, disputed bool) (c simConduct, before, after time.Duration) {
	most := 200 * time.Millisecond
	switch {
	case calm:
		most = shortestRun / 2
	case d.oneIn(3):
		most = longestRun(lease) / 2
	case d.oneIn(3):
		most = lease / 2
	}
	c = []simConduct{runKept, runLarge, runStreaming}[max(0, d.IntN(12)-9)]
	if !calm && d.oneIn(3) {
		c = runRefusing + simConduct(d.IntN(int(runShort-runRefusing)+1))
	}
	if !calm && disputed && !d.oneIn(4) {
		if d.oneIn(2) {
			return runInsisting, d.upTo(lease / 2), d.upTo(lease / 2)
		}
		return runFailing, d.upTo(lease / 10), d.upTo(lease / 10)
	}
	return c, d.upTo(most), d.upTo(most)
}

// longestRun and shortestRun are how long a run takes at most, among faults and when all
// is calm.
func longestRun(lease time.Duration) time.Duration { return 5 * lease / 2 }

const shortestRun = time.Second

// lastFailure is the attempt after which every run comes to a good end.
const lastFailure = 8

// handles is the handler of a process.
func (w *simulation) handles(p *simProcess) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		p.work(0) // death ends a call of the store, and at that instant nothing begins
		op, ok := idempotency.FromContext(r.Context())
		if !ok {
			w.unprotected(rw, r)
			return
		}
		run := &simRun{request: requestOf(r.Context()), ctx: r.Context(), op: op, attempt: op.Attempt()}
		d := w.dice(ofRun, run.request.key.index, run.attempt)
		var before, after time.Duration
		run.conduct, before, after = d.draw(w.lease, w.now() >= w.calm || run.attempt > lastFailure, w.kind == disputed || w.kind == operated)
		if w.kind == slow && run.conduct == runKept && d.oneIn(2) {
			run.conduct = runBulky
		}
		if w.kind == corrected && run.attempt <= lastFailure && w.now() < w.calm && d.oneIn(2) {
			run.conduct = runTurnedAway
		}
		if w.kind == joined {
			run.conduct = w.joinedConduct(run)
		}
		w.start(run)

		careful := d.oneIn(3) // it looks at its context, and whether its claim is valid
		if run.conduct == runTurnedAway {
			p.work(before)
			w.finish(run, rw, idempotency.NotExecuted, http.StatusTooManyRequests)
			return
		}
		if !w.works(p, run, before, careful, d) || careful && !op.Valid() {
			w.finish(run, rw, idempotency.Unknown, http.StatusServiceUnavailable)
			return
		}
		if w.kind == joined {
			w.transacts(p, run, rw, after, careful, d)
			return
		}
		body, err := w.effects(p, run, d)
		if err != nil || !w.works(p, run, after, careful, d) {
			w.finish(run, rw, idempotency.Unknown, http.StatusServiceUnavailable)
			return
		}
		w.answer(p, run, rw, body)
	})
}

// works lets time pass. It is false if the run has noticed that it should stop.
func (w *simulation) works(p *simProcess, r *simRun, d time.Duration, careful bool, dice simDice) bool {
	if careful {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-p.dead:
		case <-r.ctx.Done():
		}
		p.work(0) // of all that has happened, death comes first
		if r.ctx.Err() != nil {
			return false
		}
	} else {
		p.rest(d)
	}
	p.await(dice)
	p.work(0)
	return true
}

// effects are what the run does to the world: one thing, or two in steps.
func (w *simulation) effects(p *simProcess, r *simRun, d simDice) (body string, err error) {
	body = "charged by " + r.name()
	if !r.request.key.inSteps {
		w.effect(r, "")
		return body, nil
	}
	for _, name := range r.request.key.steps() {
		ran := false
		took := d.upTo(100 * time.Millisecond)
		got, err := idempotency.Step(r.ctx, name, func(context.Context) (string, error) {
			ran = true
			w.effect(r, name)
			p.work(took)
			return r.name(), nil
		})
		if err != nil {
			return "", err
		}
		w.mu.Lock()
		if want := r.request.key.recorded[name]; want != fmt.Sprintf("v%q", got) && r.life == r.request.key.life {
			w.failf(r.request.key.index, "step %s returns %q, recorded is %q", name, got, want)
		}
		if !ran {
			w.seen[simSteps]++
		}
		w.mu.Unlock()
		body += ", " + name + " by " + got
	}
	return body, nil
}

// answer is how a run ends that was not told to stop.
func (w *simulation) answer(p *simProcess, r *simRun, rw http.ResponseWriter, body string) {
	write := func(outcome idempotency.Outcome, status int, text string) {
		r.body = text
		w.finish(r, rw, outcome, status)
	}
	switch r.conduct {
	case runBulky:
		write(idempotency.Final, http.StatusCreated, body+strings.Repeat("!", bulkyBody))
	case runLarge:
		write(idempotency.Final, http.StatusCreated, body+strings.Repeat("!", keptBody))
	case runStreaming:
		w.head(r, rw, http.StatusOK)
		_, _ = io.WriteString(rw, body)
		_ = http.NewResponseController(rw).Flush()
		p.work(10 * time.Millisecond)
		w.end(r, idempotency.Final, http.StatusOK)
		r.body = body + " in the end"
		_, _ = io.WriteString(rw, " in the end")
	case runRefusing:
		if r.ctx.Err() != nil { // a refusal by a run that was told to stop is none
			write(idempotency.Unknown, r.statusNow(http.StatusUnprocessableEntity), body)
			return
		}
		write(idempotency.Final, http.StatusUnprocessableEntity, body)
	case runInsisting:
		r.op.SetOutcome(idempotency.Final)
		write(idempotency.Final, http.StatusUnprocessableEntity, body)
	case runDenying:
		status := []int{http.StatusUnauthorized, http.StatusUnprocessableEntity, http.StatusTooManyRequests, http.StatusPermanentRedirect}[r.attempt%4]
		if !r.request.key.inSteps || status == http.StatusUnprocessableEntity {
			r.op.SetOutcome(idempotency.Unknown)
		}
		write(idempotency.Unknown, status, body)
	case runFailing:
		write(idempotency.Unknown, http.StatusBadGateway, body)
	case runPanicking:
		w.end(r, idempotency.Unknown, 0)
		panic(guardtest.Boom)
	case runExiting:
		w.end(r, idempotency.Unknown, 0)
		runtime.Goexit()
	case runShort:
		rw.Header().Set("Content-Length", "1000")
		write(idempotency.Unknown, http.StatusOK, body)
	default:
		write(idempotency.Final, http.StatusCreated, body)
	}
}

// finish ends a run with an answer.
func (w *simulation) finish(r *simRun, rw http.ResponseWriter, outcome idempotency.Outcome, status int) {
	if outcome == idempotency.NotExecuted && r.ctx.Err() != nil {
		outcome, status = idempotency.Unknown, r.statusNow(status)
	}
	w.end(r, outcome, status)
	w.head(r, rw, status)
	_, _ = io.WriteString(rw, r.body)
}

// statusNow is the status of a run that is told to stop. One that has lost its lease refuses as if
// nothing were wrong.
func (r *simRun) statusNow(status int) int {
	if errors.Is(context.Cause(r.ctx), idempotency.ErrLeaseLost) {
		return status
	}
	return http.StatusServiceUnavailable
}

func (w *simulation) head(r *simRun, rw http.ResponseWriter, status int) {
	rw.Header().Set("X-Run", r.name())
	rw.WriteHeader(status)
}

// end says what the run has come to, before the guard knows.
func (w *simulation) end(r *simRun, outcome idempotency.Outcome, status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r.outcome, r.status = outcome, status
	w.tell(r.request, "ends", r.attempt, fmt.Sprintf("%v, %d", outcome, status))
}
