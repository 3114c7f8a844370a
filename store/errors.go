package store

import "errors"

// Errors of stores. Every [Store] returns these, wrapped or not; match them with
// errors.Is. Any other error of a store means that the outcome of the call is unknown.
var (
	// ErrNotOwner says that the caller does not hold the claim now: it never did, it
	// gave the claim back, another owner took over, or the record is gone.
	ErrNotOwner = errors.New("idempotency: not the owner of the claim")

	// ErrFull says that a store has no room for what another run would bring, under a new key
	// or under one without an answer. Answers that it has are replayed, and runs in flight end as
	// they would.
	ErrFull = errors.New("idempotency: store is full")

	// ErrTooLarge says that a store can never take a value of that size, and that nothing was
	// changed. An idempotency.Guard then records that the run has happened, without its answer.
	ErrTooLarge = errors.New("idempotency: value is too large for the store")

	// ErrNotFound says that there is no record for a key.
	ErrNotFound = errors.New("idempotency: no such record")

	// ErrChanged says that the record is not in the state, or not at the attempt, that
	// the caller has decided about. Look at it again.
	ErrChanged = errors.New("idempotency: record has changed")

	// ErrCorrupt says that the record of a key cannot be read: it was cut or altered,
	// belongs to another key, or was written by something else. Such a record is never
	// served, and the handler never runs over it.
	ErrCorrupt = errors.New("idempotency: stored record is corrupt")

	// ErrUnreadableHere says that this process cannot read a record, and that another one may: the
	// record was made with a fingerprint function, a version or a sealing key that is configured
	// elsewhere, as during a deployment. A guard answers 503, and nothing runs. idempotency.Sealer.Open returns
	// it for a key that it does not know.
	ErrUnreadableHere = errors.New("idempotency: this process cannot read the record")

	// ErrBadCursor says that the cursor of a [Query] is not one that the store can go on from: it is
	// from another store or another query, or the servers have changed since. Begin again with an
	// empty one.
	ErrBadCursor = errors.New("idempotency: bad cursor")

	// ErrTransactionOpen says that the transaction of the calling run is open, and keeps its store
	// from recording anything else. idempotency.Step returns it before the function runs, and idempotency.Do before it
	// claims a key. Take steps, and call Do, before the transaction.
	ErrTransactionOpen = errors.New("idempotency: the transaction of the run is open")

	// ErrCommittedAlone says that a handler, or the function of a step, has ended its transaction
	// past the functions of the store's package, and may have committed it without the record.
	ErrCommittedAlone = errors.New("idempotency: the transaction was ended past its store, and may be committed without the record")
)
