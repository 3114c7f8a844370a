package idempotency

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/stepcall"
	"example.com/idempotency/store"
)

// Steps: the recorded parts of a run, their stored form, and their errors. The keys of calls
// inside a step are at the end.

// maxStepValue is the size of the largest encoded value of a step. A step records what the
// next attempt needs, and that is a reference rather than a document.
const maxStepValue = 64 << 10

// maxStepName is short enough for names to be part of a backend's field names.
const maxStepName = 255

// A NotRecordedError says that the effect of a step has happened but could not be recorded,
// because the store was away or the run had lost its claim. The next attempt runs the step
// again, unless it is marked with [AtMostOnce]. A service downstream recognizes the repetition
// by the derived key; see [DeriveKey].
type NotRecordedError struct {
	// Step is the name of the step.
	Step string
	// Err says why the step could not be recorded.
	Err error
}

// Error describes the step and the reason.
func (e *NotRecordedError) Error() string {
	return fmt.Sprintf("idempotency: step %q has happened but could not be recorded: %v", e.Step, e.Err)
}

// Unwrap returns Err.
func (e *NotRecordedError) Unwrap() error { return e.Err }

// A permanentError is recorded as the result of its step or function.
type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// Permanent marks an error as the definite result of a step or of the function of [Do]: a
// declined card will be declined again. Such an error is recorded. Later attempts do not run
// the function, and get an error with the same text. Other errors are not recorded.
// Permanent(nil) returns nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

// IsPermanent reports whether err was marked with [Permanent], in this run or in an earlier one
// that recorded it.
func IsPermanent(err error) bool {
	var p *permanentError
	return errors.As(err, &p)
}

// A notDoneError is the error of a step whose effect did not happen.
type notDoneError struct{ err error }

func (e *notDoneError) Error() string { return e.err.Error() }
func (e *notDoneError) Unwrap() error { return e.err }

// NotDone marks an error of a step's function as proof that its effect did not happen: the
// connection was refused, for example, or the downstream service rejected the whole request.
// The step counts as not begun, so a later attempt may begin it, also under [AtMostOnce].
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

// A Codec encodes and decodes the values of steps and of [Do]. It must be safe for concurrent
// use.
type Codec interface {
	// Marshal encodes a value that a function has returned. The guard does not change what it
	// returns, but reads it after Marshal has returned, and for longer while the store is away. So a
	// codec must not use that memory again.
	Marshal(v any) ([]byte, error)
	// Unmarshal decodes into v, a pointer to a zero value of the type that the function
	// returns. It must not change data, which may lie in the store's own memory. The value may
	// share that memory only if nobody changes it; otherwise Unmarshal copies.
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

// AtMostOnce makes a step run at most once, even if nobody knows whether its effect has
// happened. Step records a mark before the function runs, which costs a second call of the
// store. The mark survives a crash, and an error of the function that is not [Permanent]. A
// later attempt that finds the mark and no result gets [ErrUncertain], even if its program no
// longer uses the option. Only a [Resolution] with the outcome [NotExecuted] removes the mark.
func AtMostOnce() StepOption {
	return stepOptionFunc(func(s *stepSettings) { s.atMostOnce = true })
}

// The stored form of a step is one of these bytes, followed by the encoded value or the text of
// the error.
const (
	stepValue   = 'v'
	stepError   = 'e'
	stepStarted = 's' // begun under AtMostOnce, without a result so far
	stepUndone  = 'u' // begun, but found not to have happened
)

var stepKinds = []byte{stepValue, stepError, stepStarted, stepUndone}

// Step runs a part of a run once. It records the value of fn before it returns. In a later
// attempt it returns the recorded value and does not run fn. A run that had two effects and died
// before the third makes only the third when it is retried.
//
// The name identifies the step. It has 1 to 255 bytes, must be the same in all attempts, and
// must be unique within the run. Steps may run in parallel but not inside each other. The value
// is recorded as JSON, unless [WithCodec] sets another codec, and has at most 64 KiB.
//
// A process can die between the effect of a step and its record. The next attempt then runs fn
// again. Make the repetition harmless: give the service downstream the key that [DeriveKey]
// returns. If it does not accept keys, use [AtMostOnce].
//
// Step returns the errors of fn and does not record them, except those marked with [Permanent].
// It returns [ErrLeaseLost] without running fn if the run may have lost its claim, and
// [NotRecordedError] together with the value of fn. Its other errors are [ErrUncertain],
// [ErrTransactionOpen], [ErrStepMisuse] and [ErrCorrupt]. The value that it returns has been encoded and decoded, even
// the first time, so a value that does not survive its codec shows at once.
//
// Outside of an operation, see [FromContext], Step only runs fn and ignores the name and the
// options. If the store is not a [store.StepStore], Step returns an error.
func Step[T any](ctx context.Context, name string, fn func(ctx context.Context) (T, error), opts ...StepOption) (T, error) {
	op, ok := FromContext(ctx)
	if !ok {
		return fn(unrecordedStep(ctx, name))
	}
	s := stepSettings{codec: jsonCodec{}}
	for _, o := range opts {
		if o != nil {
			o.applyStep(&s)
		}
	}
	report := stepReport{op: op, name: name, start: time.Now(), result: event.StepNotBegun}
	defer report.send()
	value, err := recordedStep(ctx, op, fn, s, &report)
	report.err = err
	return value, err
}

// recordedStep is Step inside of an operation. It notes in the report how far it came.
func recordedStep[T any](ctx context.Context, op *Operation, fn func(ctx context.Context) (T, error), s stepSettings, report *stepReport) (T, error) {
	value, found, err := findStep[T](ctx, op, s, report)
	if found || err != nil {
		return value, err
	}
	return runStep(ctx, op, fn, s, report)
}

// findStep begins a step and looks whether an earlier attempt has recorded it.
func findStep[T any](ctx context.Context, op *Operation, s stepSettings, report *stepReport) (value T, found bool, err error) {
	var none T
	name := report.name
	recorded, err := op.beginStep(ctx, name)
	if err != nil {
		return none, false, err
	}
	if recorded != nil && recorded[0] != stepUndone {
		report.result = event.StepFound
	}
	switch {
	case recorded == nil || recorded[0] == stepUndone:
	case recorded[0] == stepValue:
		op.effects.Add(1)
		value, err = decodeStep[T](s.codec, name, recorded[1:])
		return value, true, err
	case recorded[0] == stepError:
		op.effects.Add(1)
		return none, true, Permanent(errors.New(string(recorded[1:])))
	case recorded[0] == stepStarted:
		report.result = event.StepUncertain
		op.uncertain.Store(true)
		return none, false, fmt.Errorf("step %q: %w", name, ErrUncertain)
	}
	return none, false, nil
}

// runStep runs the function of a step and records what it returns.
func runStep[T any](ctx context.Context, op *Operation, fn func(ctx context.Context) (T, error), s stepSettings, report *stepReport) (T, error) {
	var none T
	name := report.name
	if err := op.mayBegin(name, s.atMostOnce); err != nil {
		return none, err
	}
	resumed := op.resumes() && !s.atMostOnce // under AtMostOnce, a step that was begun has a mark
	op.effects.Add(1)                        // one that may happen
	report.result = event.StepFailed
	value, err := fn(&stepContext{Context: ctx, op: op, intent: op.intent(), name: name, resumed: resumed})
	switch {
	case isNotDone(err):
		op.effects.Add(-1)
		report.result = event.StepNotDone
		return none, errors.Join(err, op.unmark(name, s.atMostOnce))
	case err != nil && !IsPermanent(err):
		return none, err // the mark of AtMostOnce stays: the effect may have happened all the same
	}
	report.result = event.StepNotRecorded
	stored, saveErr := encodeStep(s.codec, value, err)
	if saveErr == nil {
		saveErr = op.lease.recordStep(name, stored)
	}
	if saveErr != nil {
		return value, &NotRecordedError{name, errors.Join(saveErr, err)}
	}
	report.result = event.StepRecorded
	if err != nil {
		return none, err
	}
	return decodeStep[T](s.codec, name, stored[1:])
}

// resumes reports whether an earlier attempt may have begun the steps of this one. Under Hold,
// another attempt follows only one that has done nothing.
func (o *Operation) resumes() bool { return o.Attempt() > 1 && !o.lease.claim.Hold }

// A stepReport is what an [event.Step] says.
type stepReport struct {
	op     *Operation
	name   string
	start  time.Time
	result event.StepResult
	err    error
}

func (r *stepReport) send() {
	if l := r.op.lease; l.set.heard() {
		l.observe(event.Event{Kind: event.Step, Step: r.name, Result: r.result, Duration: time.Since(r.start), Err: r.err})
	}
}

// unrecordedStep returns the context of a step of a run that has no claim: its calls still
// have derived keys. Outside of a run it is ctx itself.
func unrecordedStep(ctx context.Context, name string) context.Context {
	i, ok := intentOf(ctx)
	if !ok {
		return ctx
	}
	return &stepContext{Context: ctx, intent: i, name: name, resumed: true} // nobody knows of earlier attempts
}

// unmark takes away the mark of a step that has not happened.
func (o *Operation) unmark(name string, atMostOnce bool) error {
	if !atMostOnce {
		return nil
	}
	return o.lease.recordStep(name, []byte{stepUndone})
}

// encodeStep returns the stored form of a permanent error, or of the value if there is none.
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
		return nil, fmt.Errorf("%w: result of %d bytes, want at most %d", ErrStepMisuse, n, maxStepValue)
	}
	return stored, nil
}

func decodeStep[T any](codec Codec, name string, data []byte) (T, error) {
	var v T
	if err := codec.Unmarshal(data, &v); err != nil {
		var none T
		return none, fmt.Errorf("%w: cannot decode the recorded value of step %q: %w", ErrStepMisuse, name, err)
	}
	return v, nil
}

// A stepContext is the context of a step's function. It holds the step: Step needs it to notice
// nesting, and package client to make the keys of its calls.
type stepContext struct {
	context.Context
	op      *Operation // nil if the step is not recorded
	intent  intent
	name    string
	resumed bool // an earlier attempt may have begun the step
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

// beginStep checks a step and returns the value that an earlier attempt recorded, or nil.
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
	if _, ok := o.lease.core.store.(store.StepStore); !ok {
		return nil, misuse("the store cannot record steps")
	}
	if why := o.steps.take(name); why != "" {
		return nil, misuse(why)
	}
	stored, ok := o.lease.steps[name]
	if !ok {
		return nil, nil
	}
	value, err := o.lease.set.unsealStep(stored, o.lease.key, o.lease.claim.Fingerprint, name)
	if err != nil {
		o.lease.observe(event.Event{Kind: event.Corrupt, Op: "step", Err: err})
	}
	return value, err
}

// mayBegin returns nil if the step may begin: its result can be recorded, and the run surely holds
// its claim, even after the mark of AtMostOnce has been recorded.
func (o *Operation) mayBegin(name string, atMostOnce bool) error {
	if err := o.maySaveStep(name); err != nil {
		return err
	}
	if !atMostOnce {
		o.lease.keepClaim()
	}
	valid := o.Valid()
	if valid && atMostOnce {
		if err := o.lease.recordStep(name, []byte{stepStarted}); err != nil {
			return fmt.Errorf("idempotency: step %q was not begun: %w", name, err)
		}
		o.lease.kept.Store(true) // the mark comes after the claim, and is durable
		if valid = o.Valid(); !valid {
			// If the mark stayed, the next attempt would take the step for begun and hold the key.
			_ = o.lease.recordStep(name, []byte{stepUndone})
		}
	}
	if !valid {
		o.lease.lose(nil)
		return fmt.Errorf("step %q: %w", name, ErrLeaseLost)
	}
	return nil
}

// take notes that the run uses a name, or returns why it must not.
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

// hasEnded reports whether the run has ended.
func (o *Operation) hasEnded() bool {
	o.steps.mu.Lock()
	defer o.steps.mu.Unlock()
	return o.steps.ended
}

// endSteps refuses further steps, because the run is being settled.
func (o *Operation) endSteps() {
	o.steps.mu.Lock()
	defer o.steps.mu.Unlock()
	o.steps.ended = true
}

// recordStep records a step for the owner. It tries for as long as a run tries to record its
// answer, because the next attempt repeats the effect of a step that is not recorded.
func (l *lease) recordStep(name string, value []byte) error {
	stored, err := l.set.sealStep(value, l.key, l.claim.Fingerprint, name)
	if err != nil {
		return err
	}
	return l.insist(len(stored), func(timeout time.Duration) error { return l.saveStep(l.claim.Owner, name, stored, timeout) })
}

// stepCalls counts the calls of a step that package client makes a key for.
type stepCalls struct {
	mu    sync.Mutex
	n     int
	going bool
}

var _ stepcall.Step = (*stepContext)(nil)

// BeginCall returns the key of the step's next call. It is the key that [DeriveKey] returns for
// the name of the step, a number sign and the number of the call, so a resolver can make it too.
func (c *stepContext) BeginCall() (key string, resumed bool, err error) {
	c.calls.mu.Lock()
	defer c.calls.mu.Unlock()
	if c.calls.going {
		return "", false, fmt.Errorf("%w: step %q: the next attempt cannot tell two calls at once apart; give each a key of its own",
			ErrStepMisuse, c.name)
	}
	c.calls.going = true
	c.calls.n++
	return c.intent.deriveKey(c.name + "#" + strconv.Itoa(c.calls.n)), c.resumed, nil
}

// EndCall lets the next call begin.
func (c *stepContext) EndCall() {
	c.calls.mu.Lock()
	defer c.calls.mu.Unlock()
	c.calls.going = false
}
