package engine

import (
	"example.com/idempotency/event"
	"example.com/idempotency/internal/rules"
)

// judge returns the verdict on a task that has returned. The functions of the route that it
// calls are part of the run: if one panics, the task has.
func (u *Run) judge(t Task) Verdict {
	u.RefusesStopped = u.refusesStopped(t)
	f := u.facts() | rules.Returned
	j := rules.Judge.Of(f | rules.Unasked)
	if j.Outcome == 0 {
		j = rules.Judge.Of(f | judgedAs(t.Judge()))
	}
	return u.verdict(t, j)
}

// refusesStopped reports whether the run was told to stop, and says nothing but that it has refused.
func (u *Run) refusesStopped(t Task) bool {
	return u.op.outcome.Load() == 0 && t.Refused() && (u.Lease.isLost() || u.ctx.toldToStop())
}

// A Doubt is what is known of the outcome of a run that begins to answer, whatever its answer is judged as.
type Doubt int

// The doubts.
const (
	NoDoubt Doubt = iota
	Open          // it will be Unknown: the task has said so, or it refuses because it was told to stop
	Late          // it has no claim any more, and another run may have another answer
)

// Doubt returns what is known of the outcome now.
func (u *Run) Doubt(t Task) Doubt {
	switch {
	case !u.Lease.valid():
		return Late
	case event.Outcome(u.op.outcome.Load()) == event.Unknown, u.refusesStopped(t):
		return Open
	}
	return NoDoubt
}

// verdict is the verdict for a run that was judged so.
func (u *Run) verdict(t Task, j rules.Judgement) Verdict {
	u.ByStep = j.ByStep
	switch j.Outcome {
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
	v := Verdict{Left: rules.Definite, refusal: t.Refused()}
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

// unknown is the verdict for a run of unknown outcome.
func (u *Run) unknown(t Task) Verdict {
	left := rules.Unknown.Of(u.facts())
	if left == rules.Undone {
		return u.notExecuted(t)
	}
	return Verdict{Left: left}
}

// notExecuted is the verdict for a run that is known to have had no effect.
func (u *Run) notExecuted(t Task) Verdict {
	v := Verdict{Left: rules.Undone}
	other := u.Lease.rules.Rebinding || t.Redirected()
	if r := rules.Released.Of(u.facts() | rules.If(other, rules.OtherPayload, rules.SamePayload)); r != rules.Remember {
		v.Release = u.Lease.undone()
		v.Release.Unbind = r == rules.ForgetAll
	}
	return v
}
