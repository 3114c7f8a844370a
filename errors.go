package idempotency

import (
	"errors"

	"example.com/idempotency/internal/engine"
	"example.com/idempotency/store"
)

// This file has all sentinel errors. Match them with errors.Is.

// The errors of this package.
var (
	// Errors of the store, as a program meets them in the results of [Do], [Step], [Guard.Lookup],
	// [Guard.Resolve] and [Guard.Forget]. They are the variables of package store.

	// ErrStoreFull says that a store has no room for what another run would bring, under a new key
	// or under one without an answer. Answers that it has are replayed, and runs in flight end as
	// they would.
	ErrStoreFull = store.ErrFull

	// ErrNotFound says that there is no record for a key.
	ErrNotFound = store.ErrNotFound

	// ErrChanged says that the record is not in the state, or not at the attempt, that
	// the caller has decided about. Look at it again.
	ErrChanged = store.ErrChanged

	// ErrCorrupt says that the record of a key cannot be read: it was cut or altered,
	// belongs to another key, or was written by something else. Such a record is never
	// served, and the handler never runs over it.
	ErrCorrupt = store.ErrCorrupt

	// ErrUnreadableHere says that this process cannot read a record, and that another one may: the
	// record was made with a fingerprint function, a version or a sealing key that is configured
	// elsewhere, as during a deployment. A guard answers 503, and nothing runs. [Sealer.Open] returns
	// it for a key that it does not know.
	ErrUnreadableHere = store.ErrUnreadableHere

	// ErrTransactionOpen says that the transaction of the calling run is open, and keeps its store
	// from recording anything else. [Step] returns it before the function runs, and [Do] before it
	// claims a key. Take steps, and call Do, before the transaction.
	ErrTransactionOpen = store.ErrTransactionOpen

	// ErrLeaseLost is the cause ([context.Cause]) of the cancellation of a run's context
	// when the run no longer surely holds its claim: the lease could not be renewed until a tenth
	// before its end, or the store said that another run has taken over. A handler that sees it
	// should stop before its next side effect.
	ErrLeaseLost = engine.ErrLeaseLost

	// ErrShutdown is returned for work that a [Guard] refuses because [Guard.Shutdown] was called:
	// by [Do], also inside a run that is still in flight.
	ErrShutdown = engine.ErrShutdown

	// Errors that the functions of a route return to say why they cannot do their work. Return
	// them wrapped, with the cause.

	// ErrUnauthenticated says that the caller of a request is not authenticated. A
	// [ScopeFunc] returns it; the request is refused with 401 unauthenticated.
	ErrUnauthenticated = errors.New("idempotency: caller is not authenticated")

	// ErrTryLater says that the question cannot be answered now, because the service that
	// knows is unavailable for example. A [ScopeFunc], a [KeyFunc], a [FingerprintFunc] and the
	// function of [WithAuthorizeReplay] return it; the request is refused with 503 try-later,
	// which invites a retry.
	ErrTryLater = errors.New("idempotency: cannot be told now")

	// Errors of [Do] for keys that may not run now.

	// ErrKeyReused says that the key was used before with another payload, or that only one of
	// the two calls has a payload.
	ErrKeyReused = engine.ErrKeyReused

	// ErrInFlight says that another run holds the key. Try again later.
	ErrInFlight = engine.ErrInFlight

	// ErrNested says that the run that calls Do holds the key itself: it would wait for its
	// own end.
	ErrNested = engine.ErrNested

	// ErrResultNotKept says that the function has run to its end, and that its result was too
	// large to be kept: for [Limits].ResponseBody or for the store.
	ErrResultNotKept = engine.ErrResultNotKept

	// ErrHeld says that the key is held: the outcome of its last run is unknown, and
	// nobody may run until it is resolved.
	ErrHeld = engine.ErrHeld

	// Errors of [Step].

	// ErrPermanent says that an error was marked with [Permanent], in this run or in an earlier one that recorded it.
	// Ask with [errors.Is]. An error that wraps it is marked as well.
	ErrPermanent = engine.ErrPermanent

	// ErrUncertain says that an earlier attempt began the step under [AtMostOnce] and
	// recorded no result: the effect may or may not have happened. The step is not run
	// again. The run's outcome becomes [Unknown] and its key is held, whatever the route's
	// recovery policy, unless the handler finds out what happened and says so with
	// [Operation.SetOutcome]. A handler that ignores the error and answers all the same has its
	// answer sent to its client; the answer is not recorded and the key is held. The mark stays: after [NotExecuted] the next attempt finds it
	// again. Only the [Resolution] of a held key takes it away: one that says NotExecuted, or one that
	// says [Resume] and names the step in NotDone. [Guard.Resolve] returns ErrUncertain for a Resume
	// that does not.
	ErrUncertain = engine.ErrUncertain

	// ErrStepsRecorded says that a decision contradicts the record: [NotExecuted] says that nothing has
	// happened, or Resolution.NotDone that a step has not, and the record has its result. [Resume]
	// goes on after the recorded steps.
	ErrStepsRecorded = engine.ErrStepsRecorded

	// ErrOtherKeys says that a run of a held key had another [WithDerivation] than its route has now. So it had
	// other derived keys, under which the route would neither find its effect nor be recognised if it repeated it:
	// [Guard.Resolve] refuses a [Resume], and no function of [WithResolver] is asked. It is the error of an
	// [event.Unresolved] then.
	ErrOtherKeys = engine.ErrOtherKeys

	// ErrNotRecorded says that the effect of a step has happened but could not be recorded,
	// because the store was unavailable or the run had lost its claim: [Step] wraps the reason too, and
	// returns the value. The next attempt runs the step again, unless it is marked with
	// [AtMostOnce]. A service downstream recognizes the repetition by the derived key; see
	// [DeriveKey].
	ErrNotRecorded = engine.ErrNotRecorded

	// ErrStepMisuse says that the program uses steps wrongly: a name that is empty, too
	// long or used twice in a run, a step inside a step, a step after its run has
	// ended, a transaction of the run that begins while a step, or a run inside of it, is in hand (see [WithTransaction]),
	// more steps than a record has room for, a value that cannot be encoded, is
	// larger than 64 KiB, or was recorded in a form that cannot be decoded. Only an error about the value comes after the
	// function has run.
	ErrStepMisuse = engine.ErrStepMisuse

	// ErrNoInspector says that the guard's store is not a [store.Inspector]. [Guard.Lookup],
	// [Guard.Resolve] and [Guard.Forget] need one.
	ErrNoInspector = engine.ErrNoInspector

	// ErrNoLister says that a store is not a [store.Lister].
	ErrNoLister = engine.ErrNoLister

	// ErrNoFinder says that a store is not a [store.Finder], or keeps no tags.
	ErrNoFinder = engine.ErrNoFinder

	// Errors of transactions; see [WithTransaction].

	// ErrCannotJoin says that the guard's store is not a [store.TxStore].
	ErrCannotJoin = errors.New("idempotency: the store cannot join transactions")

	// ErrNoTransaction says that the run is not one of a guard with [WithTransaction]. Its
	// record could be committed, and an effect elsewhere still be unknown.
	ErrNoTransaction = engine.ErrNoTransaction

	// ErrOtherStore says that the run's guard has another store than the transaction.
	ErrOtherStore = engine.ErrOtherStore

	// ErrJoined says that the run has a transaction already. Only one can commit its record.
	ErrJoined = engine.ErrJoined

	// ErrAnswerSent says that the client has seen a part of the answer, by Flush or because it is
	// large, which a rollback could not take back.
	ErrAnswerSent = engine.ErrAnswerSent

	// ErrRunEnded says that the run has ended, although its context may live on.
	ErrRunEnded = engine.ErrRunEnded

	// ErrCommitUnknown says that nobody knows yet whether a transaction was committed: that of a
	// run of [Do], or of a step. Call Do again with the same key. It returns the result if it was
	// committed, and runs the function if it was not; and so does the next attempt of a run with
	// the step.
	ErrCommitUnknown = engine.ErrCommitUnknown

	// ErrShadowDiffers is the Err of an [event.Shadow] whose replay would have been another answer
	// than the one that this request got. Its effect may have happened twice.
	ErrShadowDiffers = errors.New("idempotency: the first answer was another one")
)
