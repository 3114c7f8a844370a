package conform

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"example.com/idempotency/cmd/idem/internal/conform/report"
)

// A trial is one series of requests. Checks that look at the same series share it.
type trial struct {
	lab     *lab
	steps   []report.Step
	shots   []shot
	answers []answer
	marks   []int // effects since the beginning, at the moments that the experiment has chosen; -1 if unknown
	plain   bool  // effects are not counted
	start   int   // what the counter showed at the beginning
	ended   int   // and at the end
	before  int   // the last number that was used before the trial
	after   int   // and in it
	untried string
	blind   bool // an answer was never seen, so its ID is not known
	// calm says that no effect of anything earlier can come in the trial, and patient that all of its own have come
	// when they are counted.
	calm, patient bool
	waited        time.Duration // for how long nothing had come when it began
	make          func()
}

// begin forgets what there was in the trial, and counts effects from now on.
func (t *trial) begin() {
	t.steps, t.shots, t.answers, t.marks = nil, nil, nil, nil
	t.before, t.untried, t.blind = t.lab.unique, "", false
	if t.plain || t.lab.noEffects != "" {
		return
	}
	t.waited = t.wait()
	if t.calm {
		t.waited = t.lab.cfg.Late
	}
	t.start, _ = t.rest(t.waited)
}

func (t *trial) note(s shot, a answer) answer {
	t.shots, t.answers = append(t.shots, s), append(t.answers, a)
	t.lab.acted = time.Now()
	t.steps = append(t.steps, report.Step{Sent: s.String(), Came: a.String()})
	return a
}

// stop ends the trial if an error is none of the server's.
func (t *trial) stop(err error) bool {
	if err != nil && t.untried == "" {
		t.untried = err.Error()
	}
	return t.untried != ""
}

// skip ends the trial because something is missing that it needs.
func (t *trial) skip(format string, args ...any) { t.stop(fmt.Errorf(format, args...)) }

// send sends a request.
func (t *trial) send(s shot) answer {
	if t.untried != "" || t.stop(t.lab.wire.take(t.lab.ctx, 1)) {
		return answer{}
	}
	return t.note(s, t.lab.wire.send(t.lab.ctx, s, t.lab.keyHeader))
}

// sendBroken sends a request over a connection that breaks.
func (t *trial) sendBroken(s shot, at breakage, note string) {
	if t.untried != "" || t.stop(t.lab.wire.take(t.lab.ctx, 1)) {
		return
	}
	a := t.note(s.noted(note), t.lab.wire.sendBroken(t.lab.ctx, s, t.lab.keyHeader, at))
	t.blind = t.blind || !a.lost
}

// burst sends requests at once.
func (t *trial) burst(shots []shot) {
	if t.untried != "" || t.stop(t.lab.wire.take(t.lab.ctx, len(shots))) {
		return
	}
	answers := make([]answer, len(shots))
	var wg sync.WaitGroup
	for i, s := range shots {
		wg.Go(func() { answers[i] = t.lab.wire.send(t.lab.ctx, s, t.lab.keyHeader) })
	}
	wg.Wait()
	for i, a := range answers {
		t.note(shots[i].noted(fmt.Sprintf("%d at once", len(shots))), a)
	}
}

// settled sends a request until it is not refused because of another one, or patience ends.
func (t *trial) settled(s shot) answer {
	deadline := time.Now().Add(t.lab.cfg.Patience)
	for tries := 1; ; tries++ {
		if t.untried != "" || t.stop(t.lab.wire.take(t.lab.ctx, 1)) {
			return answer{}
		}
		a := t.lab.wire.send(t.lab.ctx, s, t.lab.keyHeader)
		again := a.err != nil || slices.Contains([]int{409, 423, 425, 429, 500, 502, 503, 504}, a.status)
		if !again || time.Now().After(deadline) {
			if tries > 1 {
				s = s.noted(fmt.Sprintf("sent %d times", tries))
			}
			return t.note(s, a)
		}
		if t.stop(sleep(t.lab.ctx, min(time.Duration(tries)*20*time.Millisecond, 500*time.Millisecond))) {
			return answer{}
		}
	}
}

// restart lets the server be killed and started, and waits until it listens.
func (t *trial) restart() {
	if t.untried != "" {
		return
	}
	t.lab.known = -1 // its counter may begin anew
	if err := t.lab.cfg.Restart(t.lab.ctx); err != nil {
		t.skip("the command that restarts the server: %w", err)
		return
	}
	ctx, cancel := context.WithTimeout(t.lab.ctx, t.lab.cfg.Patience)
	defer cancel()
	for {
		err := t.lab.wire.listens(ctx, t.lab.cfg.Template.URL)
		if err == nil {
			return
		}
		if sleep(ctx, 20*time.Millisecond) != nil {
			t.skip("the server does not listen after its restart: %w", err)
			return
		}
	}
}
