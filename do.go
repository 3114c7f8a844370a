package idempotency

import (
	"context"
	"fmt"

	"example.com/idempotency/internal/engine"
	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/problem"
)

// A Result says what [Do] did.
type Result struct {
	// Replayed is true when the value, or the permanent error, comes from an earlier run.
	Replayed bool
	// Attempt is the number of the run that the value comes from.
	Attempt int
	// Outcome says how that run has ended. It is 0 where none has, and under [WithShadow].
	Outcome Outcome
	// Held is true when the key is held: nobody may run until it is resolved.
	Held bool
	// Code says why fn was not run, or why its value does not count. It is that of the
	// [event.Refused], and empty where Do returns what fn has returned.
	Code problem.Code
}

// Do runs fn once for a key, as a handler behind g runs once: for queue consumers,
// scheduled jobs, or webhooks that net/http does not serve. Later calls with the key, by any
// process, get the recorded value. The guard's TTL, lease, wait, recovery policy, observers
// and sealer apply. With [WithFailOpen] fn runs unprotected while the store is unavailable.
//
// If fn returns a nil error, or one marked with [Permanent], the outcome is [Final], unless the
// value judges itself, as those of some adapters do. After any other error, a panic or runtime.Goexit it is [Unknown], and the recovery policy
// decides whether the next call runs again. fn can override that with
// [Operation.SetOutcome], and can use [Step] and [DeriveKey]. Its context is ctx, cancelled
// with [ErrLeaseLost] as cause when the lease is lost.
//
// If fn ran, Do returns its error, or the value as its codec decodes it. If the value could
// not be recorded at once, recording goes on in the background. A value that is larger than
// [Limits].ResponseBody allows, or than the store takes, is returned too, but not kept: later
// calls get [ErrResultNotKept]. Of the text of a permanent error that is too large, the beginning
// is kept. A value that cannot be encoded is an error; its key is held, because fn has happened.
// The same holds if encoding panics.
//
// If an earlier run's permanent error is recorded, Do returns an error with its text.
// Otherwise the error wraps one of [ErrResultNotKept]; [ErrKeyReused]; [ErrInFlight]; [ErrHeld]; [ErrCorrupt];
// [ErrUnreadableHere]; [ErrNested]; [ErrShutdown]; or an error of the store. fn was not run then.
// Nor is it run if k has no scope or value, or if ctx is done before the key is claimed: then the
// error is the cause.
// With [WithWait], ErrInFlight comes after waiting, or at once if too many wait already;
// if ctx ended meanwhile, it wraps the cause too.
func Do[T any](ctx context.Context, g *Guard, k Key, fn func(ctx context.Context) (T, error), opts ...TaskOption) (T, Result, error) {
	var none T
	t := engine.TaskSettingsOf(opts)
	if t.AtMostOnce {
		return none, Result{}, fmt.Errorf("%w: AtMostOnce is an option of Step; Do has WithRecovery(Hold)", ErrStepMisuse)
	}
	if g.shadow != nil {
		var value T
		var err error
		besideShadow(ctx, g.route, g.shadow, intent.Key(k), t.Payload, func(ctx context.Context) (any, error) {
			value, err = fn(ctx)
			return value, err
		})
		return value, Result{Attempt: 1}, err
	}
	var value T
	result, err := g.route.engine.Do(ctx, engine.Job{
		Key: intent.Key(k), Payload: t.Payload, Reference: t.Reference, Codec: t.Codec, Fn: func(ctx context.Context) (any, error) { return fn(ctx) },
	}, &value)
	if err != nil {
		return none, Result(result), err // not what was decoded before the mistake
	}
	return value, Result(result), nil
}

// A TaskOption changes how [Do] or [Step] identifies and records a task: [WithCodec] for both,
// [WithPayload] and [ForReference] for Do, and [AtMostOnce] for Step. An option that is not for the function is an error that
// wraps [ErrStepMisuse], and nothing runs. A nil TaskOption changes nothing.
type TaskOption interface {
	// ApplyTask is called by Do, Step and package adapter.
	ApplyTask(*engine.TaskSettings)
}

type taskOptionFunc func(*engine.TaskSettings)

func (f taskOptionFunc) ApplyTask(t *engine.TaskSettings) { f(t) }

// WithPayload binds the key of a [Do] to a message: a call with another message under the same key gets
// [ErrKeyReused], and so does a call without one. By default, and with an empty message, a key
// is bound to none.
func WithPayload(message []byte) TaskOption {
	return taskOptionFunc(func(t *engine.TaskSettings) { t.Payload = message })
}

// ForReference sets what the record of a [Do] can be found by besides its key, as [WithReference] does for a request. By
// default, and for an empty reference, that is nothing. If the store keeps no tags, Do returns [ErrNoFinder], and runs
// nothing.
func ForReference(reference string) TaskOption {
	return taskOptionFunc(func(t *engine.TaskSettings) { t.Reference = reference })
}

// WithCodec sets how values are encoded. The default, also for nil, is JSON. Do not change
// the codec while records live that were made with it.
func WithCodec(c Codec) TaskOption {
	return taskOptionFunc(func(t *engine.TaskSettings) { t.Codec = c })
}

// AtMostOnce makes a step run at most once, even if nobody knows whether its effect has
// happened. Step records a mark before the function runs, which costs a second call of the
// store. The mark survives a crash, and an error of the function that is not [Permanent]. A
// later attempt that finds the mark and no result gets [ErrUncertain], even if its program no
// longer uses the option. Only a [Resolution] removes the mark: one that says [NotExecuted], or [Resume] and
// names the step in its NotDone.
func AtMostOnce() TaskOption {
	return taskOptionFunc(func(t *engine.TaskSettings) { t.AtMostOnce = true })
}

// A Codec encodes and decodes the values of steps and of [Do]. It must be safe for concurrent
// use.
type Codec interface {
	// Marshal encodes a value that a function has returned. The guard does not change what it
	// returns, but reads it after Marshal has returned, and for longer while the store is unavailable. So a
	// codec must not use that memory again.
	Marshal(v any) ([]byte, error)
	// Unmarshal decodes into v, a pointer to a zero value of the type that the function
	// returns. It must not change data, which may lie in the store's own memory. The value may
	// share that memory only if nobody changes it; otherwise Unmarshal copies.
	Unmarshal(data []byte, v any) error
}
