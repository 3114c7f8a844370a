package idempotency

import "errors"

// Errors of stores. Every [Store] returns these, wrapped or not; match them with
// errors.Is. Any other error of a store means that the outcome of the call is not
// known.
var (
	// ErrNotOwner says that the caller does not hold the claim now: it never did, it
	// gave it back, another owner took it over, or the record is gone.
	ErrNotOwner = errors.New("idempotency: not the owner of the claim")

	// ErrStoreFull says that a store has no room for a new key. Keys that it holds
	// already are not affected.
	ErrStoreFull = errors.New("idempotency: store is full")

	// ErrNotFound says that there is no record for a key.
	ErrNotFound = errors.New("idempotency: no such record")

	// ErrChanged says that a record is no longer, or not yet, in the state or at the
	// attempt that the caller decided about. Look at it again.
	ErrChanged = errors.New("idempotency: record has changed")

	// ErrCorrupt says that what is stored for a key cannot be read: it was cut or
	// altered, belongs to another key, or was written by something else. It is never
	// served, and the handler is never run over it.
	ErrCorrupt = errors.New("idempotency: stored record is corrupt")
)

// ErrLeaseLost is the cause ([context.Cause]) of the cancellation of a run's context
// when the run no longer holds its claim: the store could not be reached for as long
// as the lease lasts, or said that another run has taken over. A handler that sees it
// should stop before its next side effect.
var ErrLeaseLost = errors.New("idempotency: lease lost")

// ErrShutdown is returned for work that a [Guard] refuses because
// [Guard.Shutdown] was called.
var ErrShutdown = errors.New("idempotency: shut down")
