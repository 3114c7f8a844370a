package engine

import (
	"example.com/idempotency/event"
	"example.com/idempotency/store"
)

// judge returns the verdict on a task that has returned. The functions of the route that it
// calls are part of the run: if one panics, the task has.
func (u *Run) judge(t Task) Verdict {
	switch outcome := u.outcome(t); outcome {
	case event.Final:
		u.Happened = true // should encoding panic, nobody may run again
		return u.final(t)
	case event.NotExecuted:
		return u.notExecuted(t)
	default:
		return u.unknown(t)
	}
}

// final is the verdict for a definite answer. An answer that cannot be sealed cannot be
// recorded: then nobody may run again.
func (u *Run) final(t Task) Verdict {
	v := Verdict{Outcome: event.Final, Refusal: t.Refused()}
	a, err := t.Answer()
	if err == nil {
		v.status = toldStatus(a, u.Lease.claim.Fingerprint)
		err = u.store(a, &v)
	}
	if err != nil {
		u.Lease.Observe(event.Event{Kind: event.RecordingLost, Err: err})
		v := u.unknown(t)
		v.Cause = err
		return v
	}
	return v
}

// unknown is the verdict for a run of unknown outcome. With transactions, only steps can
// have done anything. The last attempt that the rules allow holds the key in any event.
func (u *Run) unknown(t Task) Verdict {
	last := u.Lease.rules.lastAttempt(u.Lease.Attempt)
	switch undoes := u.undoes(); {
	case undoes && u.op.effects.Load() == 0 && !last:
		return u.notExecuted(t)
	case undoes:
		return Verdict{Outcome: event.Unknown, Hold: last}
	}
	return Verdict{Outcome: event.Unknown, Hold: last || u.Lease.rules.Hold || u.Happened || u.op.uncertain.Load()}
}

// notExecuted is the verdict for a run that is known to have had no effect. If it has begun a
// step, it is remembered all the same: only the outcome says that nothing was done.
func (u *Run) notExecuted(t Task) Verdict {
	v := Verdict{Outcome: event.NotExecuted}
	if u.op.effects.Load() == 0 {
		v.Release = u.Lease.undone()
		v.Release.Unbind = u.Lease.rules.Rebinding || t.Redirected()
	}
	return v
}

// outcome judges a run whose task has returned. The program's own word comes first, then a
// step that may or may not have happened. A refusal by a run that was told to stop in the middle says
// nothing, whoever told it: its lease, its deadline or its client.
func (u *Run) outcome(t Task) event.Outcome {
	if set := event.Outcome(u.op.outcome.Load()); set != 0 {
		return u.happenedAlone(set)
	}
	u.RefusesStopped = t.Refused() && (u.Lease.isLost() || u.ctx.toldToStop())
	if u.op.uncertain.Load() || u.RefusesStopped {
		return event.Unknown
	}
	outcome := t.Judge()
	if outcome == event.NotExecuted && u.op.effects.Load() > 0 && !u.Lease.rules.OutcomeChosen {
		return event.Unknown // a step says otherwise than the status
	}
	return u.happenedAlone(outcome)
}

// happenedAlone corrects the outcome of a run that has committed its transaction by itself. What is
// committed has been executed, whatever the handler says of it.
func (u *Run) happenedAlone(outcome event.Outcome) event.Outcome {
	if outcome == event.NotExecuted && u.op.progress.state == store.TxCommitted {
		return event.Unknown
	}
	return outcome
}

// undoes reports whether all that the run has done outside of steps is gone unless its answer is
// recorded.
func (u *Run) undoes() bool {
	return u.Lease.rules.Transaction && !u.op.uncertain.Load() && event.Outcome(u.op.outcome.Load()) != event.Unknown &&
		u.op.progress.state != store.TxCommitted
}
