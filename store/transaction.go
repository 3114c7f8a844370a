package store

import (
	"context"
	"fmt"
	"strconv"
)

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

// String returns the name of the state: open, ready, given-up, committed or refused, and the number of any
// other value.
func (s TxState) String() string {
	names := [...]string{"open", "ready", "given-up", "committed", "refused"}
	if int(s) >= len(names) {
		return "txstate(" + strconv.Itoa(int(s)) + ")"
	}
	return names[s]
}

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
	// TxRefused says that the handler wanted it to be committed, and that it cannot be: a statement in it
	// has failed, for example. It was rolled back, as one that was given up. The guard does not believe a
	// success that the handler answers then.
	TxRefused
)

// A Transaction is a transaction that a run has joined, as its guard sees it; see
// adapter.Join. When the run's code has returned, the guard calls State, and then either
// Complete or Rollback, once; neither if it was given up or refused. Goroutines of the handler may still use the
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

// A ClaimTransaction is a [Transaction] that may be the claim of its run, as under Claim.MayBeLost. Its Rollback frees the key,
// as is right for a run that has done nothing else.
type ClaimTransaction interface {
	Transaction
	// KeepClaim makes such a claim a record. The guard calls it before Rollback if the run may have had another effect, so that
	// nobody runs before the run is settled. If it fails, the guard goes on.
	KeepClaim(ctx context.Context)
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

// A StepRecord says which step a transaction records; see adapter.StepIn.
type StepRecord struct {
	// Key is the name of the run's record, and Owner the owner of its claim. A zero StepRecord
	// stands for a step outside of a run: its transaction records nothing.
	Key   string
	Owner Owner
	// Name is the name of the step.
	Name string
}
