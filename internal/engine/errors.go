package engine

import "errors"

// The errors of this package. The root says what each means.
var (
	ErrLeaseLost     = errors.New("idempotency: lease lost")
	ErrShutdown      = errors.New("idempotency: shut down")
	ErrKeyReused     = errors.New("idempotency: key was used with another payload")
	ErrInFlight      = errors.New("idempotency: a run with this key is in flight")
	ErrNested        = errors.New("idempotency: the calling run holds this key itself")
	ErrResultNotKept = errors.New("idempotency: the run has happened, but its result was not kept")
	ErrHeld          = errors.New("idempotency: outcome of the last run is unknown")
	ErrUncertain     = errors.New("idempotency: an earlier attempt began this step and its outcome is unknown")
	ErrStepsRecorded = errors.New("idempotency: steps of the run are recorded")
	ErrOtherKeys     = errors.New("idempotency: the run had another WithDerivation than its route has now, and so other derived keys")
	ErrStepMisuse    = errors.New("idempotency: step misused")
	ErrNotRecorded   = errors.New("idempotency: the step has happened but could not be recorded")
	ErrNoInspector   = errors.New("idempotency: the store cannot be inspected")
	ErrNoLister      = errors.New("idempotency: the store cannot be listed")
	ErrNoFinder      = errors.New("idempotency: the store finds records by their keys only")
	ErrNoTransaction = errors.New("idempotency: the guard of this run has no WithTransaction")
	ErrOtherStore    = errors.New("idempotency: the guard of this run has another store")
	ErrJoined        = errors.New("idempotency: the run has joined a transaction already")
	ErrAnswerSent    = errors.New("idempotency: a part of the answer was sent before the transaction began")
	ErrRunEnded      = errors.New("idempotency: the run has ended")
	ErrCommitUnknown = errors.New("idempotency: it is not known whether the transaction was committed")
)

// A permanentError is recorded as the result of its step or function.
type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }

func (e *permanentError) Unwrap() error { return e.err }

func (e *permanentError) Is(target error) bool { return target == ErrPermanent }

// Permanent marks an error as the definite result of a step or of a job: a
// declined card will be declined again. Such an error is recorded. Later attempts do not run
// the function, and get an error with the same text. Other errors are not recorded.
// Permanent(nil) returns nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

// ErrPermanent says that an error was marked with [Permanent], in this run or in an earlier one
// that recorded it.
var ErrPermanent = errors.New("idempotency: the error is permanent")

// A notDoneError is the error of a step whose effect did not happen.
type notDoneError struct{ err error }

func (e *notDoneError) Error() string { return e.err.Error() }

func (e *notDoneError) Unwrap() error { return e.err }

// NotDone marks an error of a step's function as proof that its effect did not happen: the
// connection was refused, for example, or the downstream service rejected the whole request.
// The step counts as not begun, so a later attempt may begin it, also under AtMostOnce.
// NotDone(nil) returns nil.
func NotDone(err error) error {
	if err == nil {
		return nil
	}
	return &notDoneError{err}
}

func isNotDone(err error) bool {
	var e *notDoneError
	return errors.As(err, &e)
}
