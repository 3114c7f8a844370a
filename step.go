package idempotency

import (
	"context"

	"example.com/idempotency/internal/engine"
)

// Step runs a part of a run once. It records the value of fn before it returns. In a later
// attempt it returns the recorded value and does not run fn. A run that had two effects and died
// before the third makes only the third when it is retried.
//
// The name identifies the step. It has 1 to 255 bytes, must be the same in all attempts, and
// must be unique within the run. Steps may run in parallel but not inside each other: fn hands on the context that it
// gets, which tells Step of that. The value
// is recorded as JSON, unless [WithCodec] sets another codec, and has at most 64 KiB.
//
// A record has at most 1,000 steps, those that this run has begun among them. None begins once what is recorded of
// them, each time with the name and 128 bytes, has reached 500 KiB: Step returns [ErrStepMisuse] without running fn.
// [AtMostOnce] records each step twice. Eight steps of a run may be in hand at once. A further one waits for its turn,
// or until ctx is done.
//
// A process can die between the effect of a step and its record. The next attempt then runs fn
// again. Make the repetition harmless: give the service downstream the key that [DeriveKey]
// returns. If it does not accept keys, use [AtMostOnce].
//
// Step returns the errors of fn and does not record them, except those marked with [Permanent].
// It returns [ErrLeaseLost] without running fn if the run may have lost its claim, and
// [ErrNotRecorded] together with the value of fn. Its other errors are [ErrUncertain],
// [ErrTransactionOpen], [ErrStepMisuse] and [ErrCorrupt]. The value that it returns has been encoded and decoded, even
// the first time, so a value that does not survive its codec shows at once.
//
// Outside of an operation, see [FromContext], Step only runs fn and ignores the name and the
// options. If the store is not a [store.StepStore], Step returns an error.
func Step[T any](ctx context.Context, name string, fn func(ctx context.Context) (T, error), opts ...TaskOption) (T, error) {
	return engine.Step(ctx, name, fn, engine.TaskSettingsOf(opts))
}

// Permanent marks an error as the definite result of a step or of the function of [Do]: a
// declined card will be declined again. Such an error is recorded. Later attempts do not run
// the function, and get an error with the same text. Other errors are not recorded. Each error so marked is an
// [ErrPermanent]. Permanent(nil) returns nil.
func Permanent(err error) error { return engine.Permanent(err) }

// NotDone marks an error of a step's function as proof that its effect did not happen: the
// connection was refused, for example, or the downstream service rejected the whole request.
// The step counts as not begun, so a later attempt may begin it, also under [AtMostOnce]. It says nothing of other
// functions: one of [Do] says it with [Operation.SetOutcome] and [NotExecuted]. NotDone(nil) returns nil.
func NotDone(err error) error { return engine.NotDone(err) }
