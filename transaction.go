package idempotency

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"

	"example.com/idempotency/event"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// This file is about runs whose effects and record are committed together: what a store needs for
// that, how a run joins a transaction, and how the transaction ends with the run.

// WithTransaction says whether all that a run does is in the transaction that it joins, or in
// steps. Such a run has done nothing unless its answer is recorded, because one commit makes both
// durable or neither. By default it is false.
//
// It changes what the end of a run means. An [Unknown] outcome becomes [NotExecuted]: a server
// error, a panic, a process that died. The next request runs again, also under [Hold], which
// applies only after [ErrUncertain] and [Operation.SetOutcome] with Unknown. What begun steps have
// done stays, and so do their records. A handler of such a route that does anything elsewhere, in
// another database for example, must do it in a [Step].
//
// The guard sends no byte before the commit: an answer that is larger than
// [WithMaxResponseBody] allows rolls the transaction back, and Flush is refused. If the commit
// fails, the client gets 503 rolled-back where another attempt may succeed, and else 500
// cannot-commit. In both cases nothing has happened. A handler that rolls back and then answers
// success is believed, and its answer is recorded: it may have found the work done already.
//
// A handler that commits the transaction itself, past the functions of the store's package, has been
// executed. The outcome of its run is [Final] or Unknown then, and the guard reports
// [event.CommittedAlone].
//
// The store must be a [store.TxStore], or [New] and [Guard.With] return or panic with [ErrCannotJoin].
// The transaction itself is begun by functions of the store's package, with [Operation.Join].
func WithTransaction(on bool) Option {
	return optionFunc(func(s *settings) { s.transaction = on })
}

var (
	errLeftOpen    = errors.New("the handler answered success and neither committed nor rolled back")
	errOverLimit   = errors.New("the answer is larger than WithMaxResponseBody allows")
	errNotDefinite = errors.New("the outcome of the run is not definite")
	errOvertaken   = errors.New("the run has lost its claim")
)

// Join makes a transaction part of the run, so that the answer of the run is recorded in it. It
// is for packages that implement a [store.TxStore]; programs call their functions. s is that store.
// begin is called once, unless Join is refused, and begins the transaction for a record and its
// owner.
//
// Errors: [ErrNoTransaction], [ErrOtherStore], [ErrJoined], [ErrAnswerSent] and [ErrRunEnded];
// and those of begin, after which another Join may be tried. A transaction that was given up may
// be followed by another.
func (o *Operation) Join(ctx context.Context, s Store, begin func(key string, o store.Owner) (store.Transaction, error)) error {
	switch l := o.lease; {
	case !l.set.transaction:
		return ErrNoTransaction
	case !sameStore(l.core.store, s):
		return ErrOtherStore
	}
	if err := o.mayJoin(); err != nil {
		return err
	}
	joined := false
	defer func() {
		if !joined { // begin has failed, or panicked
			o.joins(nil)
		}
	}()
	tx, err := begin(o.lease.key, o.lease.claim.Owner)
	if err != nil {
		return err
	}
	if joined = o.joins(tx); !joined {
		_ = o.lease.rollBack(context.WithoutCancel(ctx), tx)
		return ErrRunEnded
	}
	return nil
}

// A joint is the transaction of a run. The mutex of the run's steps guards it.
type joint struct {
	tx    store.Transaction
	going bool          // it is being begun
	state store.TxState // set when the run is closed; without a transaction, TxGivenUp
}

// mayJoin reserves the place of the transaction.
func (o *Operation) mayJoin() error {
	o.steps.mu.Lock()
	defer o.steps.mu.Unlock()
	switch {
	case o.steps.ended:
		return ErrRunEnded
	case o.joint.going, o.joint.tx != nil && o.joint.tx.State() != store.TxGivenUp:
		return ErrJoined
	case o.writer != nil && !o.writer.HoldBack():
		return ErrAnswerSent
	}
	o.joint = joint{going: true}
	return nil
}

// joins takes the place that was reserved, and reports whether the run has it still.
func (o *Operation) joins(tx store.Transaction) bool {
	o.steps.mu.Lock()
	defer o.steps.mu.Unlock()
	if o.steps.ended {
		return false
	}
	o.joint = joint{tx: tx}
	return true
}

// maySaveStep returns nil, or why the transaction of the run keeps its steps from being recorded.
func (o *Operation) maySaveStep(name string) error {
	o.steps.mu.Lock()
	tx := o.joint.tx
	o.steps.mu.Unlock()
	if tx == nil {
		return nil
	}
	if err := tx.MaySaveStep(); err != nil {
		return fmt.Errorf("step %q was not begun: %w: %w", name, ErrTransactionOpen, err)
	}
	return nil
}

// closeJoint learns, once, what became of the transaction of a run whose steps have ended. From
// then on nothing changes the joint.
func (o *Operation) closeJoint() {
	if o.joint.tx == nil {
		o.joint.state = store.TxGivenUp
		return
	}
	o.joint.state = o.joint.tx.State()
}

// undoes reports whether all that the run has done outside of steps is gone unless its answer is
// recorded.
func (u *run) undoes() bool {
	return u.guard.set.transaction && !u.op.uncertain.Load() && Outcome(u.op.outcome.Load()) != Unknown &&
		u.op.joint.state != store.TxCommitted
}

// rolledBack is the verdict for a run whose transaction could not be committed. Its client must
// not see the answer, and is told what is true of the steps too.
func (u *run) rolledBack(t task, code problem.Code, cause error) verdict {
	v := u.unknown(t)
	v.instead, v.cause = code, cause
	switch {
	case v.lasting():
		v.instead = problem.OutcomeUnknown
	case v.outcome == Unknown: // of a step
		v.instead = problem.NoAnswer
	}
	return v
}

// endTransaction ends the transaction of a run that was judged. It returns the verdict that is
// left to settle, and reports whether it is settled: then the answer was recorded with the commit.
// If the transaction panics, the claim is left to lapse, and the record tells what has happened.
func (u *run) endTransaction(t task, v verdict) (left verdict, done bool) {
	returned := false
	defer func() {
		if !returned {
			u.lease.end()
		}
	}()
	left, done = u.commitOrRollBack(t, u.op.joint.tx, v)
	returned = true
	return left, done
}

func (u *run) commitOrRollBack(t task, tx store.Transaction, v verdict) (verdict, bool) {
	switch state := u.op.joint.state; {
	case state == store.TxCommitted:
		_ = u.lease.rollBack(context.WithoutCancel(u.lease.client), tx) // it holds a connection
		u.lease.observe(event.Event{Kind: event.CommittedAlone, Outcome: v.outcome})
		if t.overLimit() {
			v.instead = problem.ResponseNotKept
		}
		return v, false
	case state == store.TxReady && v.outcome == Final && !t.overLimit():
		return u.commit(t, tx, v)
	case state != store.TxGivenUp:
		if state == store.TxOpen {
			u.lease.observe(event.Event{Kind: event.LeftOpen, Outcome: v.outcome})
		}
		err := u.lease.rollBack(context.WithoutCancel(u.lease.client), tx)
		if errors.Is(err, store.ErrCommittedAlone) {
			return u.endedAlone(t, err), false
		}
	}
	return u.undo(t, v), false
}

// undo returns the verdict for a run whose transaction was rolled back. Its client must not be
// shown a success.
func (u *run) undo(t task, v verdict) verdict {
	switch state, claimsSuccess := u.op.joint.state, !t.refused(); {
	case t.overLimit():
		return u.rolledBack(t, problem.CannotCommit, &store.RolledBackError{Err: errOverLimit})
	case state == store.TxOpen && claimsSuccess:
		return u.rolledBack(t, problem.CannotCommit, &store.RolledBackError{Err: errLeftOpen})
	case state == store.TxReady && claimsSuccess:
		cause := cmp.Or(v.cause, errNotDefinite)
		return u.rolledBack(t, problem.RolledBack, &store.RolledBackError{Retry: true, Err: cause})
	default:
		return v
	}
}

// commit commits the transaction with the answer. If that has failed, nothing of the run is left,
// and if nobody knows, it is for the settlement to find out.
func (u *run) commit(t task, tx store.Transaction, v verdict) (verdict, bool) {
	l := u.lease
	c := store.Completion{Answer: v.answer, Status: v.status, TTL: u.guard.set.ttl}
	l.outliveRun()
	_, err := bounded(context.WithoutCancel(l.client), l.core, l.sendTimeout(len(v.answer)), func(ctx context.Context) (struct{}, error) {
		return struct{}{}, tx.Complete(ctx, c)
	})
	var refused *store.RolledBackError
	switch {
	case err == nil:
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
	l.observe(event.Event{Kind: event.StoreError, Op: "commit", Err: err})
	undone := u.rolledBack(t, problem.RolledBack, &store.RolledBackError{Retry: true, Err: err})
	undone.doubt = &v
	return undone, false
}

// endedAlone is the verdict for a run whose handler has ended the transaction after it had said that
// it is to be committed. The answer tells of rows that may be gone.
func (u *run) endedAlone(t task, cause error) verdict {
	u.op.joint.state, u.happened = store.TxCommitted, false
	u.lease.observe(event.Event{Kind: event.CommittedAlone, Outcome: Unknown, Err: cause})
	return u.rolledBack(t, problem.NoAnswer, cause)
}

// rollBack rolls a transaction back. Whatever the store does, it returns in time.
func (l *lease) rollBack(ctx context.Context, tx store.Transaction) error {
	_, err := bounded(ctx, l.core, l.timeout(), func(ctx context.Context) (struct{}, error) {
		return struct{}{}, tx.Rollback(ctx)
	})
	if err != nil && !errors.Is(err, store.ErrCommittedAlone) {
		l.observe(event.Event{Kind: event.StoreError, Op: "rollback", Err: err})
	}
	return err
}

// isCommitted reports whether a record holds the answer of the transaction in doubt.
func (v *verdict) isCommitted(rec store.Record) bool {
	return v.doubt != nil && rec.State == store.Completed && bytes.Equal(rec.Answer, v.doubt.answer)
}

// resolve returns the verdict on a run whose transaction was in doubt, once it was settled. As
// long as the store has not answered, the transaction may have been committed.
func (v verdict) resolve(e ending) verdict {
	switch {
	case v.doubt == nil, e.fate == settled, e.fate == overtaken && e.record().State != 0:
		v.doubt = nil
	case v.lasting():
		v.instead = problem.OutcomeUnknown
	default:
		v.outcome, v.instead = Unknown, problem.NoAnswer
	}
	return v
}
