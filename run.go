package idempotency

import (
	"context"
	"time"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/answer"
	"example.com/idempotency/store"
)

// A task is what a run executes: a handler, or a function of Do. Its methods are called in
// the order in which they stand here.
type task interface {
	// execute calls the program's code, which may panic or call runtime.Goexit.
	execute(ctx *runContext)
	// close ends the task. What its code does from now on has no effect.
	close(returned bool)
	// refused reports whether the task has answered that it did nothing for good.
	refused() bool
	// redirected reports whether the task has told its client to make the same request
	// elsewhere.
	redirected() bool
	// judge returns the outcome by the task's own rules, and 0 for a nonsensical one.
	judge() Outcome
	// answer returns what is recorded for a Final outcome.
	answer() (*answer.Answer, error)
	// overLimit reports whether the answer was kept back until it had outgrown its limit. Then
	// it is gone.
	overLimit() bool
	// report returns the event that the run has ended, with what the task adds to it.
	report(e event.Event) event.Event
}

// A run executes a task under a claim and settles it, however the task ends. None of its
// parts is reused: a handler may keep its request, writer or operation for longer than the
// run lasts. The lease stands apart because it may have to outlive all that: a run that
// waits to be recorded keeps its answer, and not its request.
type run struct {
	guard *Guard
	lease *lease
	op    Operation
	ctx   runContext

	start time.Time // if somebody hears of it
	// happened says that the outcome is Final although its answer is not sealed yet.
	happened bool
	// refusesStopped says that the run was told to stop before it answered with a refusal. That says
	// nothing about the request, which may well succeed the next time.
	refusesStopped bool
	// closed says that the task has been closed.
	closed bool
}

// init prepares a run under a lease that was granted.
//
// parent is the context of the caller. follow says whether its cancellation is that of the
// run.
func (u *run) init(parent context.Context, g *Guard, l *lease, follow bool) {
	u.guard, u.lease = g, l
	u.op.lease = l
	u.op.outer, _ = FromContext(parent)
	u.ctx.init(parent, &u.op, follow)
}

// perform executes the task, settles the run and returns how that ended. A panic and
// runtime.Goexit, of the task or of a function of the route, are not recovered: net/http,
// and the log, see the panic where it happened. They pass through after the run is settled.
func (u *run) perform(t task) (verdict, ending) {
	if u.guard.set.heard() {
		u.start = time.Now()
	}
	running := &u.lease.core.running
	running.Add(1)
	defer running.Add(-1)
	defer u.ctx.end()
	u.lease.keep(&u.ctx)
	judged := false
	defer func() {
		if !judged {
			u.close(t, false)
			u.settle(t, u.unknown(t))
		}
	}()
	t.execute(&u.ctx)
	u.close(t, true)
	v := u.judge(t)
	judged = true
	return u.settle(t, v)
}

func (u *run) close(t task, returned bool) {
	if u.closed {
		return
	}
	u.closed = true
	u.op.endSteps()
	u.op.closeJoint()
	t.close(returned)
}

// judge returns the verdict on a task that has returned. The functions of the route that it
// calls are part of the run: if one panics, the task has.
func (u *run) judge(t task) verdict {
	switch outcome := u.outcome(t); outcome {
	case Final:
		u.happened = true // should encoding panic, nobody may run again
		return u.final(t)
	case NotExecuted:
		return u.notExecuted(t)
	default:
		return u.unknown(t)
	}
}

// final is the verdict for a definite answer. An answer that cannot be sealed cannot be
// recorded: then nobody may run again.
func (u *run) final(t task) verdict {
	v := verdict{outcome: Final, refusal: t.refused()}
	a, err := t.answer()
	if err == nil {
		v.status = toldStatus(a, u.lease.claim.Fingerprint)
		err = u.store(a, &v)
	}
	if err != nil {
		u.lease.observe(event.Event{Kind: event.RecordingLost, Err: err})
		v := u.unknown(t)
		v.cause = err
		return v
	}
	return v
}

// store puts the answer into the verdict, in its stored form. Its memory is used again if the store
// is our own and in this process: it has copied the answer when it returns, and no call is ever
// left behind.
func (u *run) store(a *answer.Answer, v *verdict) (err error) {
	key, fp := u.lease.key, u.lease.claim.Fingerprint
	if u.guard.set.sealer == nil && u.lease.core.local {
		v.buffer = answer.NewBuffer()
		v.answer = a.EncodeTo(v.buffer, key, fp)
		return nil
	}
	v.answer, err = u.guard.set.seal(a, key, fp)
	return err
}

// unknown is the verdict for a run of unknown outcome. Under [WithTransaction], only steps can
// have done anything. The last attempt that [WithMaxAttempts] allows holds the key in any event.
func (u *run) unknown(t task) verdict {
	last := u.guard.set.lastAttempt(u.lease.attempt)
	switch undoes := u.undoes(); {
	case undoes && u.op.effects.Load() == 0 && !last:
		return u.notExecuted(t)
	case undoes:
		return verdict{outcome: Unknown, hold: last}
	}
	return verdict{outcome: Unknown, hold: last || u.guard.set.recovery == Hold || u.happened || u.op.uncertain.Load()}
}

// settle brings the verdict to the store, and reports the run. It returns the verdict as it is
// then: a transaction may not have been committed.
func (u *run) settle(t task, v verdict) (verdict, ending) {
	var duration time.Duration
	if u.guard.set.heard() {
		duration = time.Since(u.start)
	}
	var e ending
	done := false
	owner := u.lease.claim.Owner
	if u.guard.set.transaction {
		v, done = u.endTransaction(t, v)
	}
	if !done {
		s := settlement{lease: u.lease, verdict: v, owner: owner}
		e = s.settle()
		owner = s.owner
		if v.buffer != nil && e.fate == settled && !s.failed && !s.displaced { // one call had it, and has returned
			v.buffer.Free()
			v.buffer, v.answer = nil, nil
		}
		if e.fate == supplanted {
			v.hold, s.verdict.hold = false, false // there is nothing to hold
		}
		if v.doubt != nil {
			v = s.verdict.resolve(e)
		}
	}
	held := v.outcome == Unknown && v.hold && e.fate != overtaken
	if held {
		u.lease.reportHeld(&store.Record{Attempt: u.lease.attempt, Owner: owner, Notes: store.AppendNote(nil, u.lease.claim.Note)})
	}
	if u.guard.set.heard() {
		ev := event.Event{Kind: event.Run, Outcome: v.outcome, Held: held, Duration: duration}
		u.lease.observe(t.report(ev))
	}
	return v, e
}
