package idempotency

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"example.com/idempotency/internal/stepcall"
)

// maxStepValue is the largest value of a step, encoded. A step remembers what the next
// attempt needs, which is a reference rather than a document.
const maxStepValue = 64 << 10

// maxStepName keeps names usable as parts of backends' field names.
const maxStepName = 255

// A NotRecordedError says that the effect of a step has happened and could not be
// recorded: the store was away, or the run has lost its claim. The next attempt will
// run the step again, unless it is marked with [AtMostOnce]; what is downstream tells
// the repetition by the derived key, see [DeriveKey].
type NotRecordedError struct {
	// Step is the name of the step.
	Step string
	// Err says why it could not be recorded.
	Err error
}

// Error describes the step and the reason.
func (e *NotRecordedError) Error() string {
	return fmt.Sprintf("idempotency: step %q has happened but could not be recorded: %v", e.Step, e.Err)
}

// Unwrap returns Err.
func (e *NotRecordedError) Unwrap() error { return e.Err }

// permanentError is an error that is recorded as the result of its step or function.
type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// Permanent marks an error as the definite result of a step, or of the function of
// [Do]: a declined card will be declined again. It is recorded, and found by the next
// attempt, which gets an error with the same text. Other errors are not recorded.
// Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

// IsPermanent reports whether err was marked with [Permanent], in this run or, as found
// in the record, in an earlier one.
func IsPermanent(err error) bool {
	var p *permanentError
	return errors.As(err, &p)
}

// A Codec turns values of steps and of [Do] into bytes and back. It must be safe for
// concurrent use.
type Codec interface {
	// Marshal encodes a value that a function has returned.
	Marshal(v any) ([]byte, error)
	// Unmarshal decodes into v, a pointer to a zero value of the type of the function.
	Unmarshal(data []byte, v any) error
}

type jsonCodec struct{}

func (jsonCodec) Marshal(v any) ([]byte, error)      { return json.Marshal(v) }
func (jsonCodec) Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }

// A StepOption changes how a [Step] is recorded: [AtMostOnce] and [WithCodec]. A nil
// StepOption changes nothing.
type StepOption interface{ applyStep(*stepSettings) }

type stepOptionFunc func(*stepSettings)

func (f stepOptionFunc) applyStep(s *stepSettings) { f(s) }

type stepSettings struct {
	atMostOnce bool
	codec      Codec
}

// AtMostOnce marks a step that must not be run twice even if it is not known whether it
// happened: a mark is recorded before it begins. A later attempt that finds the mark and
// no result gets [ErrUncertain], also if its program has dropped the option since, and
// so the mark outlasts a crash as well as an error of the function that is not
// [Permanent]. What takes the mark away is a [Resolution] that is [NotExecuted]. It costs
// a second call of the store.
func AtMostOnce() StepOption {
	return stepOptionFunc(func(s *stepSettings) { s.atMostOnce = true })
}

// The stored form of a step: one of these bytes, followed by the encoded value or the
// text of the error.
const (
	stepValue   = 'v'
	stepError   = 'e'
	stepStarted = 's' // under AtMostOnce, no result yet
	stepUndone  = 'u' // was begun, and has been found not to have happened
)

var stepKinds = []byte{stepValue, stepError, stepStarted, stepUndone}

// Step runs a part of a run once: its value is recorded before Step returns, and in a
// later attempt Step returns the recorded value without running fn. So a run that made
// two effects and died before the third makes only the third when it is retried.
//
// A step is found by its name, of 1 to 255 bytes, which must be the same in all attempts
// and unique within the run; steps may run in parallel but not inside each other. Its value
// is recorded as JSON, unless [WithCodec] says otherwise, and may have 64 KiB. Between an effect and
// its record there is a moment in which a process can die. What covers it is either the
// idempotency of whatever is downstream, to which fn hands the key that [DeriveKey]
// makes, or [AtMostOnce].
//
// Errors of fn are returned and not recorded, except those marked with [Permanent].
// Further errors: [ErrUncertain]; [ErrStepMisuse]; [ErrCorrupt]; [ErrLeaseLost], before
// fn is run, if the run does not surely hold its claim any more; and [NotRecordedError],
// which comes with fn's own value. Otherwise the value is the decoded one, also the first
// time, so that what does not survive its codec is noticed at once.
//
// Outside of an operation, see [FromContext], Step just runs fn, and neither its name nor
// its options count. With a store that is no [StepStore] it returns an error.
func Step[T any](ctx context.Context, name string, fn func(ctx context.Context) (T, error), opts ...StepOption) (T, error) {
	var none T
	op, ok := FromContext(ctx)
	if !ok {
		return fn(ctx)
	}
	s := stepSettings{codec: jsonCodec{}}
	for _, o := range opts {
		if o != nil {
			o.applyStep(&s)
		}
	}
	recorded, err := op.beginStep(ctx, name)
	if err != nil {
		return none, err
	}
	switch {
	case recorded == nil || recorded[0] == stepUndone:
	case recorded[0] == stepValue:
		return decodeStep[T](s.codec, name, recorded[1:])
	case recorded[0] == stepError:
		return none, Permanent(errors.New(string(recorded[1:])))
	case recorded[0] == stepStarted:
		op.uncertain.Store(true)
		return none, fmt.Errorf("step %q: %w", name, ErrUncertain)
	}
	if err := op.mayBegin(name, s.atMostOnce); err != nil {
		return none, err
	}
	// Under Hold there is a further attempt only after one that has done nothing, and what
	// AtMostOnce has begun has a mark.
	resumed := op.Attempt() > 1 && !op.lease.claim.Hold && !s.atMostOnce
	value, err := fn(&stepContext{Context: ctx, op: op, name: name, resumed: resumed})
	if err != nil && !IsPermanent(err) {
		return none, err // the mark of AtMostOnce stays: it may have happened all the same
	}
	stored, saveErr := encodeStep(s.codec, value, err)
	if saveErr == nil {
		saveErr = op.lease.recordStep(name, stored)
	}
	switch {
	case saveErr != nil:
		return value, &NotRecordedError{name, errors.Join(saveErr, err)}
	case err != nil:
		return none, err
	default:
		return decodeStep[T](s.codec, name, stored[1:])
	}
}

// encodeStep returns the stored form of a value, or of a permanent error if there is one.
func encodeStep(codec Codec, value any, permanent error) ([]byte, error) {
	stored := []byte{stepValue}
	if permanent != nil {
		stored[0] = stepError
		stored = append(stored, permanent.Error()...)
	} else {
		data, err := codec.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrStepMisuse, err)
		}
		stored = append(stored, data...)
	}
	if n := len(stored) - 1; n > maxStepValue {
		return nil, fmt.Errorf("%w: result of %d bytes, at most %d are kept", ErrStepMisuse, n, maxStepValue)
	}
	return stored, nil
}

func decodeStep[T any](codec Codec, name string, data []byte) (T, error) {
	var v T
	if err := codec.Unmarshal(data, &v); err != nil {
		var none T
		return none, fmt.Errorf("%w: recorded value of step %q cannot be decoded: %w", ErrStepMisuse, name, err)
	}
	return v, nil
}

// A stepContext is the context of a step's function. It tells the step, so that nesting
// is noticed, and that package client makes the keys of its calls from the step.
type stepContext struct {
	context.Context
	op      *Operation
	name    string
	resumed bool // an earlier attempt may have begun it
	calls   stepCalls
}

func (c *stepContext) Value(key any) any {
	if key == (stepcall.ContextKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// stepsTaken are the names that a run has used.
type stepsTaken struct {
	mu    sync.Mutex
	names map[string]bool
	ended bool
}

// beginStep checks a step and returns what an earlier attempt recorded of it, or nil.
func (o *Operation) beginStep(ctx context.Context, name string) ([]byte, error) {
	misuse := func(what string) error {
		return fmt.Errorf("%w: step %q: %s", ErrStepMisuse, name, what)
	}
	if name == "" || len(name) > maxStepName {
		return nil, misuse("a name has 1 to 255 bytes")
	}
	// A step may contain another operation, which has steps of its own.
	if outer, ok := ctx.Value(stepcall.ContextKey{}).(*stepContext); ok && outer.op == o {
		return nil, misuse(fmt.Sprintf("inside step %q", outer.name))
	}
	if _, ok := o.lease.core.store.(StepStore); !ok {
		return nil, misuse("the store cannot record steps")
	}
	if why := o.steps.take(name); why != "" {
		return nil, misuse(why)
	}
	stored, ok := o.lease.record.Steps[name]
	if !ok {
		return nil, nil
	}
	value, err := o.lease.set.unsealStep(stored, o.lease.key, o.lease.claim.Fingerprint, name)
	if err != nil {
		o.lease.observe(Event{Kind: EventCorrupt, Op: "step", Err: err})
	}
	return value, err
}

// mayBegin reports whether a step may be begun: only by a run that surely holds its claim,
// also after the mark has been recorded.
func (o *Operation) mayBegin(name string, atMostOnce bool) error {
	valid := o.Valid()
	if valid && atMostOnce {
		if err := o.lease.recordStep(name, []byte{stepStarted}); err != nil {
			return fmt.Errorf("idempotency: step %q was not begun: %w", name, err)
		}
		if valid = o.Valid(); !valid {
			// With a mark that stays, the next attempt takes the step for begun and holds the key.
			_ = o.lease.recordStep(name, []byte{stepUndone})
		}
	}
	if !valid {
		o.lease.lose(nil)
		return fmt.Errorf("step %q: %w", name, ErrLeaseLost)
	}
	return nil
}

// take notes that a name is used, or says why it must not be.
func (s *stepsTaken) take(name string) (why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended:
		return "the run has ended"
	case s.names[name]:
		return "its name is used twice in this run"
	}
	if s.names == nil {
		s.names = make(map[string]bool)
	}
	s.names[name] = true
	return ""
}

// endSteps refuses further steps: the run is being settled.
func (o *Operation) endSteps() {
	o.steps.mu.Lock()
	defer o.steps.mu.Unlock()
	o.steps.ended = true
}

// recordStep records a step for the owner. It tries as long as for the end of a run: a step
// that cannot be recorded is an effect that the next attempt repeats.
func (l *lease) recordStep(name string, value []byte) error {
	stored, err := l.set.sealStep(value, l.key, l.claim.Fingerprint, name)
	if err != nil {
		return err
	}
	start := time.Now()
	for n := 1; ; n++ {
		err := l.saveStep(l.claim.Owner, name, stored, min(l.haste(n), patience-time.Since(start)))
		if errors.Is(err, ErrNotOwner) {
			l.lose(err) // now, and not when the next renewal finds out
		}
		if err == nil || errors.Is(err, ErrNotOwner) {
			return err
		}
		pause := backoff(n)
		if time.Since(start)+pause >= patience || !l.core.work.pause(pause) {
			return err
		}
	}
}
