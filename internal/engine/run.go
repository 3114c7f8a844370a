package engine

import (
	"context"
	"time"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/answer"
	"example.com/idempotency/internal/engine/inflight"
	"example.com/idempotency/internal/rules"
	"example.com/idempotency/store"
)

// A Task is what a run executes: a handler, or a function of Do. Its methods are called in
// the order in which they stand here.
type Task interface {
	// Execute calls the program's code, which may panic or call runtime.Goexit.
	Execute(ctx context.Context)
	// Close ends the task. What its code does from now on has no effect.
	Close(returned bool)
	// Refused reports whether the task has answered that it did nothing for good.
	Refused() bool
	// Redirected reports whether the task has told its client to make the same request
	// elsewhere.
	Redirected() bool
	// Judge returns the outcome by the task's own rules, and 0 for a nonsensical one.
	Judge() event.Outcome
	// Answer returns what is recorded for a Final outcome.
	Answer() (*answer.Answer, error)
	// OverLimit reports whether the answer was kept back until it had outgrown its limit. Then
	// it is gone.
	OverLimit() bool
	// Report returns the event that the run has ended, with what the task adds to it.
	Report(e event.Event) event.Event
	// ReportOnce reports a mistake of the program, once for each route.
	ReportOnce(kind event.Kind, err error)
}

// A Run executes a task under a claim and settles it, however the task ends. None of its
// parts is reused: a handler may keep its request, writer or operation for longer than the
// run lasts. The lease stands apart because it may have to outlive all that: a run that
// waits to be recorded keeps its answer, and not its request.
type Run struct {
	Lease *Lease
	op    Operation
	ctx   runContext

	inFlight inflight.Run
	start    time.Time // if somebody hears of it
	// Happened says that the outcome is Final although its answer is not sealed yet.
	Happened bool
	// RefusesStopped says that the run was told to stop before it answered with a refusal, and that the
	// program has said nothing else of it. The same request may well succeed the next time.
	RefusesStopped bool
	// ByStep says that only a step speaks against an answer which says that nothing was done.
	ByStep bool
	// panicked says that the task, or a function of its route, has not returned.
	panicked bool
	// closed says that the task has been closed.
	closed bool
}

// Init prepares a run under a lease that was granted.
//
// parent is the context of the caller. follow says whether its cancellation is that of the
// run.
func (u *Run) Init(parent context.Context, l *Lease, follow bool) {
	u.Lease = l
	u.op.lease = l
	u.op.outer, _ = FromContext(parent)
	u.ctx.init(parent, &u.op, follow)
}

// SetWriter says what the answer of the run is written to. A transaction keeps it back.
func (u *Run) SetWriter(w Writer) { u.op.writer = w }

// Context returns the context of the run.
func (u *Run) Context() context.Context { return &u.ctx }

// ToldToStop reports whether the context of the run has ended and the task has looked at it.
func (u *Run) ToldToStop() bool { return u.ctx.toldToStop() }

// HasEffects reports whether the run has begun or found a step that may have happened.
func (u *Run) HasEffects() bool { return u.op.effects.Load() > 0 }

// Perform executes the task, settles the run and returns how that ended. A panic and
// runtime.Goexit, of the task or of a function of the route, are not recovered: net/http,
// and the log, see the panic where it happened. They pass through after the run is settled.
func (u *Run) Perform(t Task) (Verdict, Ending) {
	if u.Lease.rules.Reporter.Heard() {
		u.start = time.Now()
	}
	l := u.Lease
	l.core.runs.Enter(&u.inFlight, l, l.sure.Add(-l.margin()), l.claim.Owner[0])
	defer u.inFlight.Leave()
	if u.op.outer != nil {
		u.op.outer.progress.contain(1)
		defer u.op.outer.progress.contain(-1)
	}
	defer u.ctx.end()
	l.keep(&u.ctx)
	judged := false
	defer func() {
		if !judged {
			u.panicked = true
			u.close(t, false)
			u.settle(t, u.verdict(t, rules.Judge.Of(u.facts()|rules.Panicked|rules.Unasked)))
		}
	}()
	t.Execute(&u.ctx)
	u.close(t, true)
	v := u.judge(t)
	judged = true
	return u.settle(t, v)
}

func (u *Run) close(t Task, returned bool) {
	if u.closed {
		return
	}
	u.closed = true
	u.op.progress.end()
	t.Close(returned)
}

// store puts the answer into the verdict, in its stored form. Its memory is used again if the store
// is our own and in this process: it has copied the answer when it returns, and no call is ever
// left behind.
func (u *Run) store(a *answer.Answer, v *Verdict) (err error) {
	key, fp := u.Lease.Name, u.Lease.claim.Fingerprint
	if u.Lease.rules.Seals.Sealer == nil && u.Lease.core.local {
		v.buffer = answer.NewBuffer()
		v.answer = a.EncodeTo(v.buffer, key, fp)
		return nil
	}
	v.answer, err = u.Lease.rules.Seals.Answer(a, key, fp)
	return err
}

// settle brings the verdict to the store, and reports the run. It returns the verdict as it is
// then: a transaction may not have been committed.
func (u *Run) settle(t Task, v Verdict) (Verdict, Ending) {
	var duration time.Duration
	if u.Lease.rules.Reporter.Heard() {
		duration = time.Since(u.start)
	}
	var e Ending
	done := false
	owner := u.Lease.claim.Owner
	if u.Lease.rules.Transaction {
		v, done = u.endTransaction(t, v)
	}
	if v.Left == rules.Held {
		v.hold = u.hold(t)
	}
	v.once = u.op.progress.once() // of whatever the end of the transaction has left to settle
	if !done {
		s := settlement{lease: u.Lease, verdict: v, owner: owner}
		e = s.settle()
		owner = s.owner
		if v.buffer != nil && e.Fate == rules.Settled && !s.failed && !s.displaced { // one call had it, and has returned
			v.buffer.Free()
			v.buffer, v.answer = nil, nil
		}
		if v.doubt != nil {
			if v = s.verdict; v.doubt != nil { // nobody has believed it
				v = v.resolve(e)
			}
		}
		v.Left = v.After(e.Fate)
	}
	held := v.Left == rules.Held && e.Fate != rules.Overtaken
	if held {
		u.Lease.ReportHeld(&store.Record{Attempt: u.Lease.Attempt, Owner: owner, Notes: store.AppendNote(nil, u.Lease.claim.Note)}, u.holdCause(v.doubt != nil))
	}
	if u.Lease.rules.Reporter.Heard() {
		ev := event.Event{Kind: event.Run, Outcome: v.Outcome(), Held: held, Duration: duration}
		u.Lease.Observe(t.Report(ev))
	}
	return v, e
}
