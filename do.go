package idempotency

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"example.com/idempotency/internal/digest"
	"example.com/idempotency/internal/response"
)

// Errors of [Do] for keys that may not run now.
var (
	// ErrKeyReused says that the key was used before with another payload.
	ErrKeyReused = errors.New("idempotency: key was used with another payload")

	// ErrInFlight says that another run holds the key. Try again later.
	ErrInFlight = errors.New("idempotency: a run with this key is in flight")

	// ErrHeld says that the key is held: the outcome of its last run is unknown, and
	// nobody may run until it is resolved.
	ErrHeld = errors.New("idempotency: outcome of the last run is unknown")
)

// A Result tells what [Do] did.
type Result struct {
	// Replayed is true when the value, or the permanent error, is that of an earlier
	// run.
	Replayed bool
	// Attempt is the number of the run that the value is from.
	Attempt int
}

// A DoOption changes how [Do] identifies and records a run.
type DoOption interface{ applyDo(*doSettings) }

type doOptionFunc func(*doSettings)

func (f doOptionFunc) applyDo(s *doSettings) { f(s) }

type doSettings struct {
	payload []byte
	codec   Codec
}

// WithPayload binds the key to a message: another message under the same key gets
// [ErrKeyReused]. By default, and with nil, a key is bound to nothing but itself.
func WithPayload(message []byte) DoOption {
	return doOptionFunc(func(s *doSettings) { s.payload = message })
}

// A CodecOption is an option of both [Step] and [Do]; see [WithCodec].
type CodecOption struct{ codec Codec }

// WithCodec sets how values are encoded. The default, also for nil, is JSON. It must not
// change while records live that were made with it.
func WithCodec(c Codec) CodecOption { return CodecOption{c} }

func (o CodecOption) applyStep(s *stepSettings) {
	if o.codec != nil {
		s.codec = o.codec
	}
}

func (o CodecOption) applyDo(s *doSettings) {
	if o.codec != nil {
		s.codec = o.codec
	}
}

// Do runs fn once for a key, as a handler behind g runs once: for queue consumers,
// scheduled jobs, or webhooks that are not served by net/http. Later calls with the key,
// by any process, get the recorded value. The guard's TTL, lease, wait, recovery policy,
// observer and sealer apply, and with [WithFailOpen] fn runs unprotected while the store is
// away.
//
// A nil error of fn is [Final], and so is one marked with [Permanent]. Any other error,
// a panic and runtime.Goexit are [Unknown], and the recovery policy decides whether the
// next call runs again. fn can override that with [Operation.SetOutcome], and can use
// [Step] and [DeriveKey]. Its context is ctx, cancelled with [ErrLeaseLost] as cause
// when the lease is lost.
//
// The error is fn's own, or one with the text of a recorded permanent error, or wraps
// one of: [ErrKeyReused]; [ErrInFlight], which with [WithWait] comes only after waiting,
// or when too many wait already, and wraps the cause of ctx too if that is done by then; [ErrHeld]; [ErrCorrupt]; [ErrShutdown]; or an
// error of the store, in which case fn was not run. Nor is it run if k has no scope or no
// value, or if ctx is done by the time the key is claimed: then the error is its cause.
// If fn ran and its value could not be recorded at once, recording goes on in the
// background and the value is returned. A value that cannot be encoded, or is larger than
// [WithMaxResponseBody] allows, is an error too; its key is held, because it has happened,
// and also if encoding it panics. The value is always the decoded one.
func Do[T any](ctx context.Context, g *Guard, k Key, fn func(ctx context.Context) (T, error), opts ...DoOption) (T, Result, error) {
	s := doSettings{codec: jsonCodec{}}
	for _, o := range opts {
		if o != nil {
			o.applyDo(&s)
		}
	}
	var value T
	j := &job{guard: g, codec: s.codec}
	result, err := j.do(ctx, k, s.payload, &value, func(ctx context.Context) (any, error) { return fn(ctx) })
	if err != nil {
		var none T // nothing, rather than what was decoded before the mistake
		return none, result, err
	}
	return value, result, nil
}

// A job is a run of Do.
type job struct {
	guard *Guard
	codec Codec
	op    Operation
	lease lease
	ctx   runContext
}

// do decodes the value into the pointer into, so that all that is not the type of the
// value is compiled once.
func (j *job) do(ctx context.Context, k Key, payload []byte, into any, fn func(context.Context) (any, error)) (Result, error) {
	if err := k.check(); err != nil {
		return Result{}, err
	}
	if ctx.Err() != nil { // what fn would make of it must not hold the key
		return Result{}, context.Cause(ctx)
	}
	core := j.guard.core
	if !core.work.admit() {
		return Result{}, ErrShutdown
	}
	defer core.work.leave()

	j.op.lease = &j.lease
	j.lease.init(ctx, j.guard, k, Fingerprint(digest.Parts(digest.VersionJob, payload)))
	rec, err := j.guard.admit(ctx, &j.lease, nil)
	switch {
	case err != nil && j.guard.set.failOpen && !j.lease.met && !errors.Is(err, ErrCorrupt):
		j.lease.observe(Event{Kind: EventFailOpen, Err: err})
		return Result{Attempt: 1}, j.unprotected(ctx, into, fn)
	case err != nil:
		return Result{}, fmt.Errorf("idempotency: claiming the key: %w", err)
	case rec.Mine:
		return j.run(ctx, into, fn)
	default:
		result, err := j.replay(rec, into)
		if errors.Is(err, ErrInFlight) && ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
		return result, err
	}
}

func (k Key) check() error {
	switch {
	case k.Scope == "":
		return errors.New("idempotency: Key without a Scope: say whose key it is, or Shared")
	case k.Value == "" || len(k.Value) > maxKeyLen:
		return fmt.Errorf("idempotency: the Value of a Key has 1 to %d bytes, this one %d", maxKeyLen, len(k.Value))
	}
	return nil
}

// run executes fn under the claim and settles the outcome. A panic and Goexit pass
// through after that.
func (j *job) run(parent context.Context, into any, fn func(context.Context) (any, error)) (result Result, err error) {
	start := time.Now()
	j.ctx.init(parent, &j.op, true)
	defer j.ctx.end()
	j.lease.keep(&j.ctx)

	returned := false
	defer func() {
		if !returned {
			_, _ = j.settle(start, verdict{outcome: Unknown}) // there is no answer to replace
		}
	}()
	if parent.Err() != nil { // while the key was being claimed
		returned = true
		_, _ = j.settle(start, verdict{outcome: NotExecuted})
		return Result{}, context.Cause(parent)
	}
	value, fnErr := fn(&j.ctx)
	j.op.endSteps()

	result = Result{Attempt: j.lease.record.Attempt}
	v := verdict{outcome: j.outcome(fnErr)}
	if v.outcome == Final {
		// It has happened. If it cannot be recorded, because its codec or its sealer fails
		// or panics, nobody may run again.
		j.op.uncertain.Store(true)
	}
	a, err := j.answer(value, fnErr)
	if v.outcome == Final && err == nil {
		v.answer, err = j.guard.set.seal(a, j.lease.key, j.lease.claim.Fingerprint)
	}
	if v.outcome == Final && err != nil {
		j.lease.observe(Event{Kind: EventRecordingLost, Err: err})
		v.outcome = Unknown
	}
	returned = true
	rec, settleErr := j.settle(start, v)
	switch {
	case errors.Is(settleErr, errSuperseded):
		return j.replay(rec, into)
	case fnErr != nil:
		return result, fnErr
	case err != nil:
		return result, err
	default:
		return result, j.decode(a.Body, into)
	}
}

func (j *job) settle(start time.Time, v verdict) (Record, error) {
	j.op.endSteps()
	v.hold = j.guard.set.recovery == Hold || j.op.uncertain.Load()
	rec, err := j.lease.settle(v)
	j.lease.observe(Event{Kind: EventRun, Outcome: v.outcome, Duration: time.Since(start)})
	return rec, err
}

func (j *job) outcome(err error) Outcome {
	set := Outcome(j.op.outcome.Load())
	switch {
	case set != 0:
		return set
	case j.op.uncertain.Load():
		return Unknown
	case err == nil || IsPermanent(err):
		return Final
	default:
		return Unknown
	}
}

// answer is how a value is recorded, or, if there is one, an error that is final.
func (j *job) answer(value any, final error) (*response.Answer, error) {
	a := &response.Answer{Kind: response.KindValue, Status: http.StatusOK}
	var err error
	if final != nil {
		a.Kind, a.Status, a.Body = response.KindError, http.StatusInternalServerError, []byte(final.Error())
	} else {
		a.Body, err = j.codec.Marshal(value)
	}
	if limit := j.guard.set.maxResponseLen; err == nil && int64(len(a.Body)) > limit {
		err = fmt.Errorf("it has %d bytes, at most %d are kept", len(a.Body), limit)
	}
	if err != nil {
		return nil, fmt.Errorf("idempotency: the result of a run cannot be recorded: %w", err)
	}
	return a, nil
}

// replay returns what an earlier run recorded, or why there is nothing.
func (j *job) replay(rec Record, into any) (Result, error) {
	result := Result{Attempt: rec.Attempt}
	switch {
	case rec.Fingerprint != j.lease.claim.Fingerprint:
		return result, ErrKeyReused
	case rec.State == StateHeld:
		return result, ErrHeld
	case rec.State != StateCompleted:
		return result, ErrInFlight
	}
	a, err := j.guard.set.unseal(rec.Answer, j.lease.key, rec.Fingerprint, nil)
	if err == nil && a.Kind != response.KindValue && a.Kind != response.KindError {
		err = fmt.Errorf("%w: it is no value", ErrCorrupt)
	}
	if err != nil {
		j.lease.observe(Event{Kind: EventCorrupt, Err: err})
		return result, err
	}
	result.Replayed = true
	j.lease.observe(Event{Kind: EventReplay, Attempt: rec.Attempt, Status: a.Status})
	if a.Kind == response.KindError {
		return result, Permanent(errors.New(string(a.Body)))
	}
	return result, j.decode(a.Body, into)
}

func (j *job) decode(data []byte, into any) error {
	if err := j.codec.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%w: recorded value cannot be decoded: %w", ErrCorrupt, err)
	}
	return nil
}

// unprotected runs fn without a claim, and takes its value the way a recorded one goes.
func (j *job) unprotected(ctx context.Context, into any, fn func(context.Context) (any, error)) error {
	value, err := fn(unprotectedContext{ctx})
	if err != nil {
		return err
	}
	a, err := j.answer(value, nil)
	if err != nil {
		return err
	}
	return j.decode(a.Body, into)
}
