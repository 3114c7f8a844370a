package engine

import (
	"cmp"
	"context"
	"errors"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/rules"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

var (
	errOvertaken = errors.New("the run has lost its claim")
	errNotJoined = errors.New("idempotency: the run has answered success and has joined no transaction: what it has written was committed without its record, and happens again after a crash. Write in InTx or InSQLTx of the store, with the context of the request, and not in a transaction that your library begins (g.Transaction of GORM, db.BeginTx); or take WithTransaction off this route")
)

var causes = [...]error{
	rules.LeftOpen:    errors.New("the handler answered success and neither committed nor rolled back"),
	rules.TooLarge:    errors.New("the answer is larger than Limits.ResponseBody allows"),
	rules.Refused:     errors.New("the transaction could not be committed, and the handler has ignored the error that tells so"),
	rules.NotDefinite: errors.New("the outcome of the run is not definite"),
}

// rolledBack is the verdict for a run whose transaction could not be committed. Its client must
// not see the answer, and is told what is true of the steps too.
func (u *Run) rolledBack(t Task, code problem.Code, cause error) Verdict {
	u.Happened = false // its answer is not lost, but taken back
	v := u.unknown(t)
	v.Instead, v.Cause = rules.Told(v.Left, code), cause
	return v
}

// endTransaction ends the transaction of a run that was judged. It returns the verdict that is
// left to settle, and reports whether it is settled: then the answer was recorded with the commit.
// If the transaction panics, the claim is left to lapse, and the record tells what has happened.
func (u *Run) endTransaction(t Task, v Verdict) (left Verdict, done bool) {
	returned := false
	defer func() {
		if !returned {
			u.Lease.end()
		}
	}()
	left, done = u.commitOrRollBack(t, u.op.progress.tx, v)
	returned = true
	return left, done
}

func (u *Run) commitOrRollBack(t Task, tx store.Transaction, v Verdict) (Verdict, bool) {
	end := rules.Transaction.Of(u.facts() | judgedAs(v.Outcome()) |
		rules.If(t.OverLimit(), rules.OverLimit, rules.Fits) | rules.If(t.Refused(), rules.ClaimsFailure, rules.ClaimsSuccess))
	switch end.Ending {
	case rules.Commit:
		return u.commit(t, tx, v)
	case rules.LetGo:
		_ = u.Lease.rollBack(context.WithoutCancel(u.Lease.Client), tx, v.Left) // it holds a connection
		u.Lease.Observe(event.Event{Kind: event.CommittedAlone, Outcome: v.Outcome()})
		v.Instead = end.Code
		return v, false
	case rules.Missed:
		t.ReportOnce(event.NotJoined, errNotJoined)
	case rules.RollBack:
		if u.op.progress.state == store.TxOpen {
			u.Lease.Observe(event.Event{Kind: event.LeftOpen, Outcome: v.Outcome()})
		}
	}
	left := v
	if end.Code != "" {
		cause := &store.RolledBackError{Retry: end.Code == problem.RolledBack, Err: causes[end.Cause]}
		if end.Cause == rules.NotDefinite {
			cause.Err = cmp.Or(v.Cause, cause.Err)
		}
		left = u.rolledBack(t, end.Code, cause)
	}
	if end.Ending == rules.RollBack {
		err := u.Lease.rollBack(context.WithoutCancel(u.Lease.Client), tx, left.Left)
		if errors.Is(err, store.ErrCommittedAlone) {
			return u.endedAlone(t, err), false
		}
	}
	return left, false
}

// commit commits the transaction with the answer. If that has failed, nothing of the run is left,
// and if nobody knows, it is for the settlement to find out.
func (u *Run) commit(t Task, tx store.Transaction, v Verdict) (Verdict, bool) {
	l := u.Lease
	c := store.Completion{Answer: v.answer, Status: v.status, TTL: u.Lease.rules.TTL}
	l.outliveRun()
	_, err := bounded(context.WithoutCancel(l.Client), l.core, "complete", l.sendTimeout(len(v.answer)), func(ctx context.Context) (struct{}, error) {
		return struct{}{}, tx.Complete(ctx, c)
	})
	var refused *store.RolledBackError
	switch {
	case err == nil:
		l.bearWitness(l.claim.Owner)
		l.end()
		return v, true
	case errors.Is(err, store.ErrNotOwner):
		return u.rolledBack(t, problem.RolledBack, &store.RolledBackError{Retry: true, Err: errOvertaken}), false
	case errors.Is(err, store.ErrCommittedAlone):
		return u.endedAlone(t, err), false
	case errors.As(err, &refused) && refused.Retry:
		return u.rolledBack(t, problem.RolledBack, err), false
	case errors.As(err, &refused):
		return u.rolledBack(t, problem.CannotCommit, err), false
	}
	l.Observe(event.Event{Kind: event.StoreError, Op: "commit", Err: err})
	undone := u.rolledBack(t, problem.RolledBack, &store.RolledBackError{Retry: true, Err: err})
	undone.doubt = &v
	return undone, false
}

// endedAlone is the verdict for a run whose handler has ended the transaction after it had said that
// it is to be committed. The answer tells of rows that may be gone.
func (u *Run) endedAlone(t Task, cause error) Verdict {
	u.op.progress.state = store.TxCommitted
	u.Lease.Observe(event.Event{Kind: event.CommittedAlone, Outcome: event.Unknown, Err: cause})
	return u.rolledBack(t, problem.NoAnswer, cause)
}
