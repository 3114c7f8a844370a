package idempotency

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"example.com/idempotency/problem"
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
// [EventCommittedAlone].
//
// The store must be a [TxStore], or [New] and [Guard.With] return or panic with [ErrCannotJoin].
// The transaction itself is begun by functions of the store's package, with [Operation.Join].
func WithTransaction(on bool) Option {
	return optionFunc(func(s *settings) { s.transaction = on })
}

// A TxStore is a [Store] whose records are in the same database as the data of a program, so that
// one transaction can commit both. Beyond the contract of Store, what an owner does in a joined
// transaction is settled with its claim:
//
//   - [Transaction.Complete] commits only while the owner holds the claim.
//   - When Release or Hold of the owner has succeeded, its transaction is not committed and never
//     will be. The call waits for a commit that is under way, and one that comes later fails.
//   - The same holds when another owner has been granted the claim.
type TxStore interface {
	Store
	// JoinsTransactions only marks the store as one.
	JoinsTransactions()
}

// A TxState is what a handler has said about its transaction.
type TxState uint8

const (
	// TxOpen says that the handler has said nothing yet.
	TxOpen TxState = iota
	// TxReady says that it is to be committed with the answer of the run.
	TxReady
	// TxGivenUp says that it was rolled back, by the handler or by an error. Nothing of it will be
	// committed, and it holds nothing any more.
	TxGivenUp
	// TxCommitted says that the handler has ended it past the functions of the store, and may have
	// committed it without the record. The run has been executed then, however it ends.
	TxCommitted
)

// String returns the name of the state: open, ready, given-up or committed, and the number of any
// other value.
func (s TxState) String() string {
	names := [...]string{"open", "ready", "given-up", "committed"}
	if int(s) >= len(names) {
		return "txstate(" + strconv.Itoa(int(s)) + ")"
	}
	return names[s]
}

// A Transaction is a transaction that a run has joined, as its guard sees it; see
// [Operation.Join]. When the run's code has returned, the guard calls State, and then either
// Complete or Rollback, once; neither if it was given up. Goroutines of the handler may still use the
// transaction then: what they do must fail, or come before.
type Transaction interface {
	// State returns what the handler has said. The guard asks when the run's code has returned,
	// and before another transaction begins. From the first of these on, it must not change.
	// However the handler has left, a transaction that it has committed itself is TxCommitted and
	// never TxGivenUp. One that it has ended after it was ready is TxReady, unless the store knows
	// what has become of it: Complete and Rollback tell.
	State() TxState
	// MaySaveStep returns nil, or why no step of the run can be recorded now. The guard asks before
	// a step has its effect, and returns the reason with [ErrTransactionOpen].
	MaySaveStep() error
	// Complete records the completion under the owner that the transaction was begun for, and
	// commits a transaction that is ready.
	//
	// Errors: [ErrNotOwner] when the owner does not hold the claim any more, and
	// [*RolledBackError] when the commit has failed for another reason. After both, the
	// transaction is surely rolled back. [ErrCommittedAlone] says that the handler has ended the
	// transaction after it had said that it is to be committed: nobody will ever know whether with
	// its rows, and the outcome is Unknown. Any other error means that nobody knows; the guard then
	// calls Release of the store to find out.
	Complete(ctx context.Context, c Completion) error
	// Rollback ends the transaction without a commit, and frees what it holds. If that fails, it
	// closes the connection. It returns nil, or [ErrCommittedAlone] if the handler has ended the
	// transaction and may have committed it.
	Rollback(ctx context.Context) error
}

// A RolledBackError says that a transaction was surely not committed.
type RolledBackError struct {
	// Retry says that another attempt may succeed, as after a conflict with another transaction.
	Retry bool
	// Err is the reason.
	Err error
}

// Error gives the reason.
func (e *RolledBackError) Error() string {
	return fmt.Sprintf("idempotency: transaction rolled back: %v", e.Err)
}

// Unwrap returns Err.
func (e *RolledBackError) Unwrap() error { return e.Err }

var (
	errLeftOpen    = errors.New("the handler answered success and neither committed nor rolled back")
	errOverLimit   = errors.New("the answer is larger than WithMaxResponseBody allows")
	errNotDefinite = errors.New("the outcome of the run is not definite")
	errOvertaken   = errors.New("the run has lost its claim")
)

// Join makes a transaction part of the run, so that the answer of the run is recorded in it. It
// is for packages that implement a [TxStore]; programs call their functions. s is that store.
// begin is called once, unless Join is refused, and begins the transaction for a record and its
// owner.
//
// Errors: [ErrNoTransaction], [ErrOtherStore], [ErrJoined], [ErrAnswerSent] and [ErrRunEnded];
// and those of begin, after which another Join may be tried. A transaction that was given up may
// be followed by another.
func (o *Operation) Join(ctx context.Context, s Store, begin func(key string, o Owner) (Transaction, error)) error {
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
	tx    Transaction
	going bool    // it is being begun
	state TxState // set when the run is closed; without a transaction, TxGivenUp
}

// mayJoin reserves the place of the transaction.
func (o *Operation) mayJoin() error {
	o.steps.mu.Lock()
	defer o.steps.mu.Unlock()
	switch {
	case o.steps.ended:
		return ErrRunEnded
	case o.joint.going, o.joint.tx != nil && o.joint.tx.State() != TxGivenUp:
		return ErrJoined
	case o.writer != nil && !o.writer.HoldBack():
		return ErrAnswerSent
	}
	o.joint = joint{going: true}
	return nil
}

// joins takes the place that was reserved, and reports whether the run has it still.
func (o *Operation) joins(tx Transaction) bool {
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
		o.joint.state = TxGivenUp
		return
	}
	o.joint.state = o.joint.tx.State()
}

// undoes reports whether all that the run has done outside of steps is gone unless its answer is
// recorded.
func (u *run) undoes() bool {
	return u.guard.set.transaction && !u.op.uncertain.Load() && Outcome(u.op.outcome.Load()) != Unknown &&
		u.op.joint.state != TxCommitted
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

func (u *run) commitOrRollBack(t task, tx Transaction, v verdict) (verdict, bool) {
	switch state := u.op.joint.state; {
	case state == TxCommitted:
		_ = u.lease.rollBack(context.WithoutCancel(u.lease.client), tx) // it holds a connection
		u.lease.observe(Event{Kind: EventCommittedAlone, Outcome: v.outcome})
		if t.overLimit() {
			v.instead = problem.ResponseNotKept
		}
		return v, false
	case state == TxReady && v.outcome == Final && !t.overLimit():
		return u.commit(t, tx, v)
	case state != TxGivenUp:
		if state == TxOpen {
			u.lease.observe(Event{Kind: EventLeftOpen, Outcome: v.outcome})
		}
		err := u.lease.rollBack(context.WithoutCancel(u.lease.client), tx)
		if errors.Is(err, ErrCommittedAlone) {
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
		return u.rolledBack(t, problem.CannotCommit, &RolledBackError{Err: errOverLimit})
	case state == TxOpen && claimsSuccess:
		return u.rolledBack(t, problem.CannotCommit, &RolledBackError{Err: errLeftOpen})
	case state == TxReady && claimsSuccess:
		cause := cmp.Or(v.cause, errNotDefinite)
		return u.rolledBack(t, problem.RolledBack, &RolledBackError{Retry: true, Err: cause})
	default:
		return v
	}
}

// commit commits the transaction with the answer. If that has failed, nothing of the run is left,
// and if nobody knows, it is for the settlement to find out.
func (u *run) commit(t task, tx Transaction, v verdict) (verdict, bool) {
	l := u.lease
	c := Completion{Answer: v.answer, Status: v.status, TTL: u.guard.set.ttl}
	l.outliveRun()
	_, err := bounded(context.WithoutCancel(l.client), l.core, l.sendTimeout(len(v.answer)), func(ctx context.Context) (struct{}, error) {
		return struct{}{}, tx.Complete(ctx, c)
	})
	var refused *RolledBackError
	switch {
	case err == nil:
		l.end()
		return v, true
	case errors.Is(err, ErrNotOwner):
		return u.rolledBack(t, problem.RolledBack, &RolledBackError{Retry: true, Err: errOvertaken}), false
	case errors.Is(err, ErrCommittedAlone):
		return u.endedAlone(t, err), false
	case errors.As(err, &refused) && refused.Retry:
		return u.rolledBack(t, problem.RolledBack, err), false
	case errors.As(err, &refused):
		return u.rolledBack(t, problem.CannotCommit, err), false
	}
	l.observe(Event{Kind: EventStoreError, Op: "commit", Err: err})
	undone := u.rolledBack(t, problem.RolledBack, &RolledBackError{Retry: true, Err: err})
	undone.doubt = &v
	return undone, false
}

// endedAlone is the verdict for a run whose handler has ended the transaction after it had said that
// it is to be committed. The answer tells of rows that may be gone.
func (u *run) endedAlone(t task, cause error) verdict {
	u.op.joint.state, u.happened = TxCommitted, false
	u.lease.observe(Event{Kind: EventCommittedAlone, Outcome: Unknown, Err: cause})
	return u.rolledBack(t, problem.NoAnswer, cause)
}

// rollBack rolls a transaction back. Whatever the store does, it returns in time.
func (l *lease) rollBack(ctx context.Context, tx Transaction) error {
	_, err := bounded(ctx, l.core, l.timeout(), func(ctx context.Context) (struct{}, error) {
		return struct{}{}, tx.Rollback(ctx)
	})
	if err != nil && !errors.Is(err, ErrCommittedAlone) {
		l.observe(Event{Kind: EventStoreError, Op: "rollback", Err: err})
	}
	return err
}

// isCommitted reports whether a record holds the answer of the transaction in doubt.
func (v *verdict) isCommitted(rec Record) bool {
	return v.doubt != nil && rec.State == StateCompleted && bytes.Equal(rec.Answer, v.doubt.answer)
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
