package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/engine/seal"
	"example.com/idempotency/internal/stepcall"
	"example.com/idempotency/store"
)

// Step runs a part of a run once, and records its value before it returns. Outside of an operation it
// only runs fn.
func Step[T any](ctx context.Context, name string, fn func(ctx context.Context) (T, error), t TaskSettings) (T, error) {
	if err := t.checkStep(false); err != nil {
		var none T
		return none, err
	}
	op, ok := FromContext(ctx)
	if !ok {
		return fn(unrecordedStep(ctx, name))
	}
	t.Codec = orJSON(t.Codec)
	r := stepReport{lease: op.lease, name: name, start: time.Now(), result: event.StepNotBegun}
	defer r.send()
	value, found, err := findStep[T](ctx, op, t.Codec, &r)
	switch {
	case found && t.AtMostOnce:
		op.progress.may(name, op.lease.steps[name])
	case !found && err == nil:
		value, err = runStep(ctx, op, fn, t, &r)
	}
	r.err = err
	return value, err
}

// findStep begins a step and looks whether an earlier attempt has recorded it. A step that is not found has a
// turn, and ends it by leave.
func findStep[T any](ctx context.Context, op *Operation, codec Codec, r *stepReport) (value T, found bool, err error) {
	var none T
	name := r.name
	recorded, err := op.beginStep(ctx, name)
	if err != nil {
		return none, false, err
	}
	if recorded != nil && recorded[0] != seal.StepUndone {
		r.result = event.StepFound
	}
	switch {
	case recorded == nil || recorded[0] == seal.StepUndone:
	case recorded[0] != seal.StepStarted && !op.progress.begin(&op.effects):
		return none, false, endedBefore(name)
	case recorded[0] == seal.StepValue:
		value, err = decodeStep[T](codec, name, recorded[1:])
		return value, true, err
	case recorded[0] == seal.StepError:
		return none, true, Permanent(errors.New(string(recorded[1:])))
	case recorded[0] == seal.StepStarted:
		r.result = event.StepUncertain
		op.uncertain.Store(true)
		op.progress.may(name, op.lease.steps[name])
		return none, false, fmt.Errorf("step %q: %w", name, ErrUncertain)
	}
	return none, false, op.progress.admit(ctx, name, recorded != nil)
}

// runStep runs the function of a step and records what it returns.
func runStep[T any](ctx context.Context, op *Operation, fn func(ctx context.Context) (T, error), t TaskSettings, r *stepReport) (T, error) {
	defer op.progress.leave()
	var none T
	name := r.name
	if err := op.mayBegin(name, t.AtMostOnce); err != nil {
		return none, err
	}
	resumed := op.resumes() && !t.AtMostOnce // under AtMostOnce, a step that was begun has a mark
	r.result = event.StepFailed
	value, err := fn(&stepContext{Context: ctx, op: op, intent: op.intent(), name: name, resumed: resumed})
	switch {
	case isNotDone(err):
		op.effects.Add(-1)
		r.result = event.StepNotDone
		return none, errors.Join(err, op.unmark(name, t.AtMostOnce))
	case err != nil && !errors.Is(err, ErrPermanent):
		return none, err // the mark of AtMostOnce stays: the effect may have happened all the same
	}
	r.result = event.StepNotRecorded
	stored, saveErr := encodeStep(t.Codec, value, err)
	if saveErr == nil {
		saveErr = op.recordStep(name, stored, t.AtMostOnce)
	}
	if saveErr != nil {
		return value, fmt.Errorf("step %q: %w: %w", name, ErrNotRecorded, errors.Join(saveErr, err))
	}
	r.result = event.StepRecorded
	if err != nil {
		return none, err
	}
	return decodeStep[T](t.Codec, name, stored[1:])
}

// recordStep counts and records what is known of a step, and remembers it if it is one that must not be repeated: what
// has become of the step also if the store may not have taken it, unless that is too large.
func (o *Operation) recordStep(name string, value []byte, atMostOnce bool) error {
	o.progress.charge(name, value)
	stored, err := o.lease.recordStep(name, value)
	known := err == nil || stored != nil && value[0] != seal.StepStarted && !errors.Is(err, store.ErrTooLarge)
	if known && atMostOnce {
		o.progress.may(name, stored)
	}
	return err
}

// unmark takes away the mark of a step that has not happened.
func (o *Operation) unmark(name string, atMostOnce bool) error {
	if !atMostOnce {
		return nil
	}
	o.progress.not(name)
	return o.recordStep(name, []byte{seal.StepUndone}, false)
}

func stepMisuse(name, what string) error {
	return fmt.Errorf("%w: step %q: %s", ErrStepMisuse, name, what)
}

// endedBefore is the error of a step whose run has ended before it.
func endedBefore(name string) error { return stepMisuse(name, "the run has ended") }

// beginStep checks a step and returns the value that an earlier attempt recorded, or nil.
func (o *Operation) beginStep(ctx context.Context, name string) ([]byte, error) {
	misuse := func(what string) error { return stepMisuse(name, what) }
	if name == "" || len(name) > maxStepName {
		return nil, misuse("a name has 1 to 255 bytes")
	}
	// A step may contain another operation, which has steps of its own.
	if outer, ok := ctx.Value(stepcall.ContextKey{}).(*stepContext); ok && outer.op == o {
		return nil, misuse(fmt.Sprintf("inside step %q", outer.name))
	}
	if _, ok := o.lease.core.store.(store.StepStore); !ok {
		return nil, misuse("the store cannot record steps")
	}
	if why := o.progress.take(name, o.lease.steps); why != "" {
		return nil, misuse(why)
	}
	stored, ok := o.lease.steps[name]
	if !ok {
		return nil, nil
	}
	value, err := o.lease.rules.Seals.OpenStep(stored, o.lease.Name, o.lease.claim.Fingerprint, name)
	if err != nil {
		o.lease.Observe(event.Event{Kind: event.Corrupt, Op: "step", Err: err})
	}
	return value, err
}

// mayBegin returns nil if the step may begin: its result can be recorded, the run surely holds
// its claim, and it has not ended. The effect is counted then.
func (o *Operation) mayBegin(name string, atMostOnce bool) error {
	if err := o.maySaveStep(name); err != nil {
		return err
	}
	if !atMostOnce {
		o.lease.keepClaim()
	}
	switch {
	case !o.progress.begin(&o.effects):
		return endedBefore(name)
	case !o.Valid():
		o.effects.Add(-1)
		return o.lostBefore(name)
	case atMostOnce:
		return o.mark(name)
	}
	return nil
}

// mark records that a step of AtMostOnce begins, and returns nil if it still may then. Its effect has been counted: an
// attempt that finds the mark cannot know whether there was one.
func (o *Operation) mark(name string) (err error) {
	if err = o.recordStep(name, []byte{seal.StepStarted}, true); err != nil {
		o.effects.Add(-1)
		return fmt.Errorf("idempotency: step %q was not begun: %w", name, err)
	}
	o.lease.kept.Store(true) // the mark comes after the claim, and is durable
	switch {
	case o.progress.hasEnded():
		err = endedBefore(name)
	case !o.Valid():
		err = o.lostBefore(name)
	default:
		return nil
	}
	// If the mark stayed, the next attempt would take the step for begun and hold the key.
	_ = o.unmark(name, true)
	o.effects.Add(-1)
	return err
}

// lostBefore is the error of a step whose run has lost its claim before it.
func (o *Operation) lostBefore(name string) error {
	o.lease.lose(nil)
	return fmt.Errorf("step %q: %w", name, ErrLeaseLost)
}
