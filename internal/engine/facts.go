package engine

import (
	"example.com/idempotency/event"
	"example.com/idempotency/internal/engine/note"
	"example.com/idempotency/internal/rules"
	"example.com/idempotency/store"
)

var (
	said = [...]rules.Run{
		0: rules.SaidNothing, event.Final: rules.SaidFinal, event.NotExecuted: rules.SaidNotExecuted, event.Unknown: rules.SaidUnknown,
	}
	states = [...]rules.Run{
		store.TxOpen: rules.TxOpen, store.TxReady: rules.TxReady, store.TxCommitted: rules.TxByItself, store.TxGivenUp: rules.TxGivenUp,
		store.TxRefused: rules.TxRefused, // and any that the engine does not know
	}
)

// facts are the facts about a run, as far as its task need not be asked: a task may have panicked.
func (u *Run) facts() rules.Run {
	r := u.Lease.rules
	f := rules.If(r.Hold, rules.Holds, rules.Reruns) |
		rules.If(r.lastAttempt(u.Lease.Attempt), rules.LastAttempt, rules.MayRunAgain) |
		rules.If(r.OutcomeChosen, rules.OwnJudge, rules.StandardJudge) |
		rules.If(u.Happened, rules.AnswerLost, rules.NothingLost) |
		rules.If(u.RefusesStopped, rules.RefusedStopped, rules.NotStopped)
	f |= said[u.op.outcome.Load()]
	switch {
	case u.op.uncertain.Load():
		f |= rules.StepInDoubt
	case u.HasEffects():
		f |= rules.StepsBegun
	default:
		f |= rules.NoStep
	}
	switch {
	case !r.Transaction:
		return f | rules.NoTransaction
	case u.op.progress.tx == nil:
		return f | rules.TxNeverBegun
	default:
		return f | states[min(u.op.progress.state, store.TxRefused)]
	}
}

// hold returns what a run notes that leaves its key held, whether or not a commit is in doubt.
func (u *Run) hold(t Task) note.Hold {
	h := note.Hold{Cause: u.holdCause(false)}
	if !u.panicked {
		h.Status = t.Report(event.Event{}).Status
	}
	return h
}

// holdCause returns why a run leaves its key held.
func (u *Run) holdCause(doubt bool) event.Cause {
	f := u.facts()
	switch {
	case doubt, f&rules.TxByItself != 0:
		return event.CauseCommit
	case u.Happened:
		return event.CauseNotRecorded
	case f&rules.StepInDoubt != 0:
		return event.CauseStep
	case u.panicked:
		return event.CausePanic
	case f&rules.SaidUnknown != 0:
		return event.CauseSaid
	case f&rules.LastAttempt != 0:
		return event.CauseAttempts
	default:
		return event.CauseUnknown
	}
}

// judgedAs is the fact that an answer was judged so.
func judgedAs(o event.Outcome) rules.Run {
	switch o {
	case event.Final:
		return rules.JudgedFinal
	case event.NotExecuted:
		return rules.JudgedNotExecuted
	default:
		return rules.JudgedUnknown
	}
}

// Reply are the facts about a run that was settled, as far as they are the same for all tasks.
func (u *Run) Reply(v *Verdict, e Ending) rules.Reply {
	return e.Fate.Reply() | v.Reply() |
		rules.If(v.Instead == "", rules.OwnAnswer, rules.HasCode) |
		rules.If(u.Lease.rules.Transaction, rules.InTransaction, rules.OutsideTransaction) |
		rules.If(u.HasEffects(), rules.WithSteps, rules.WithoutSteps)
}

// Unjudged are the facts about a run that has begun to answer, if it ends with an outcome that nobody knows.
func (u *Run) Unjudged() rules.Reply {
	r := u.Lease.rules
	return rules.IsSettled | rules.NothingSent | rules.OwnAnswer | rules.OutsideTransaction |
		rules.RanOn | rules.Answered | rules.KeepsPayload |
		rules.If(r.Hold || r.lastAttempt(u.Lease.Attempt), rules.IsHeld, rules.IsOpen) |
		rules.If(u.HasEffects(), rules.WithSteps, rules.WithoutSteps)
}

// Met are the facts about the record that a request with this fingerprint meets. comparable says that
// somebody here knows the function that has made the record's.
func Met(rec *store.Record, fp store.Fingerprint, comparable bool) rules.Met {
	var f rules.Met
	switch rec.State {
	case 0:
		f = rules.NotKnown
	case store.Held:
		f = rules.HeldKey
	case store.Completed:
		f = rules.Completed
	default:
		f = rules.Unsettled
	}
	switch {
	case rec.Fingerprint == fp:
		return f | rules.Same
	case comparable:
		return f | rules.Differs
	default:
		return f | rules.NotComparable
	}
}
