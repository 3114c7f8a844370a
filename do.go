package idempotency

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/answer"
	"example.com/idempotency/internal/digest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
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

// A Judged value says itself how its run has ended. An adapter for a framework needs it whose
// functions answer with a value that may also be a refusal. [Do] asks the value that fn returns
// without an error, in place of taking it for [Final], and records it if it is Final.
type Judged interface {
	// Outcome returns how the run has ended, unless the program has said so itself with
	// [Operation.SetOutcome]. [NotExecuted] becomes [Unknown] as for an answer of a handler: see
	// [DefaultOutcome]. So does a value that is not an Outcome.
	Outcome() Outcome
	// Refused reports whether the value tells its caller that nothing was done. A run whose context
	// has ended may say so because it was told to stop: its outcome is Unknown.
	Refused() bool
}

// A DoOption changes how [Do] identifies and records a run.
type DoOption interface{ applyDo(*doSettings) }

type doOptionFunc func(*doSettings)

func (f doOptionFunc) applyDo(s *doSettings) { f(s) }

type doSettings struct {
	payload []byte
	codec   Codec
}

// WithPayload binds the key to a message: a call with another message under the same key gets
// [ErrKeyReused], and so does a call without one. By default, and with an empty message, a key
// is bound to none.
func WithPayload(message []byte) DoOption {
	return doOptionFunc(func(s *doSettings) { s.payload = message })
}

// A CodecOption is an option of both [Step] and [Do]; see [WithCodec].
type CodecOption struct{ codec Codec }

// WithCodec sets how values are encoded. The default, also for nil, is JSON. Do not change
// the codec while records live that were made with it.
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
// scheduled jobs, or webhooks that net/http does not serve. Later calls with the key, by any
// process, get the recorded value. The guard's TTL, lease, wait, recovery policy, observers
// and sealer apply. With [WithFailOpen] fn runs unprotected while the store is away.
//
// If fn returns a nil error, or one marked with [Permanent], the outcome is [Final], unless the
// value is [Judged]. After any other error, a panic or runtime.Goexit it is [Unknown], and the recovery policy
// decides whether the next call runs again. fn can override that with
// [Operation.SetOutcome], and can use [Step] and [DeriveKey]. Its context is ctx, cancelled
// with [ErrLeaseLost] as cause when the lease is lost.
//
// If fn ran, Do returns its error, or the value as its codec decodes it. If the value could
// not be recorded at once, recording goes on in the background. A value that is larger than
// [WithMaxResponseBody] allows, or than the store takes, is returned too, but not kept: later
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
func Do[T any](ctx context.Context, g *Guard, k Key, fn func(ctx context.Context) (T, error), opts ...DoOption) (T, Result, error) {
	s := doSettings{codec: jsonCodec{}}
	for _, o := range opts {
		if o != nil {
			o.applyDo(&s)
		}
	}
	var value T
	if g.shadow != nil {
		var err error
		g.besideShadow(ctx, k, s.payload, func(ctx context.Context) *job {
			value, err = fn(ctx)
			return &job{value: value, err: err}
		})
		return value, Result{Attempt: 1}, err
	}
	j := &job{codec: s.codec, fn: func(ctx context.Context) (any, error) { return fn(ctx) }}
	result, err := j.do(ctx, g, k, s.payload, &value)
	result.Code = j.code
	if err != nil {
		var none T // not what was decoded before the mistake
		return none, result, err
	}
	return value, result, nil
}

// A job is the run of a function of Do.
type job struct {
	run
	claimed lease
	fn      func(context.Context) (any, error)
	codec   Codec
	waited  time.Duration // for another run
	code    problem.Code  // of the refusal

	// Set by execute.
	value any
	err   error
	// Set by result.
	encoded   *answer.Answer
	encodeErr error
}

// do decodes the value into the pointer into, so that everything that does not depend on
// the type of the value is compiled once.
func (j *job) do(ctx context.Context, g *Guard, k Key, payload []byte, into any) (Result, error) {
	if err := k.check(); err != nil {
		return Result{}, err
	}
	if ctx.Err() != nil { // what fn would make of it must not hold the key
		return Result{}, context.Cause(ctx)
	}
	now := time.Now()
	j.claimed.init(now, access{core: g.core, set: &g.set, id: k, key: k.storeKey(), client: ctx, route: g.set.route},
		identity{digest.Parts(digest.VersionJob, payload), digest.ChecksumBody(payload)})
	j.init(ctx, g, &j.claimed, true)
	if !g.core.work.admit() {
		return Result{}, j.refuse(problem.ShuttingDown, store.Record{}, ErrShutdown)
	}
	defer g.core.work.leave()
	if op, _ := FromContext(ctx); g.core.holds(op, j.lease.key) {
		return Result{}, j.refuse(problem.InFlight, store.Record{}, ErrNested)
	}
	if err := j.lease.keepKey(); err != nil {
		return Result{}, j.refuse(problem.StoreUnavailable, store.Record{}, err)
	}
	c := claiming{guard: g, lease: j.lease, client: ctx, begun: now}
	var rec store.Record
	err := c.claim(&rec)
	j.waited = c.waited
	switch {
	case err != nil && g.set.failOpen && !c.met && !errors.Is(err, ErrCorrupt):
		j.lease.observe(event.Event{Kind: event.FailOpen, Err: err})
		return Result{Attempt: 1}, j.runUnprotected(ctx, into)
	case err != nil:
		code := problem.StoreUnavailable
		if errors.Is(err, ErrCorrupt) {
			code = problem.AnswerUnreadable
		}
		return Result{}, j.refuse(code, store.Record{}, fmt.Errorf("idempotency: claiming the key: %w", err))
	case rec.Mine && c.isUnwanted():
		j.lease.giveBack()
		return Result{}, context.Cause(ctx)
	case rec.Mine:
		return j.runProtected(into)
	default:
		result, err := j.answerFrom(rec, into)
		if errors.Is(err, ErrInFlight) && ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
		return result, err
	}
}

func (j *job) runProtected(into any) (Result, error) {
	v, e := j.perform(j)
	result := Result{Attempt: j.lease.attempt, Outcome: v.outcome, Held: v.outcome == Unknown && v.hold}
	switch {
	case e.fate == overtaken:
		return j.answerFrom(e.record(), into)
	case v.instead == problem.NoAnswer || v.instead == problem.OutcomeUnknown:
		return result, j.refuse(v.instead, store.Record{}, fmt.Errorf("%w: %w", ErrCommitUnknown, v.cause))
	case v.instead != "":
		return result, j.refuse(v.instead, store.Record{}, v.cause)
	case j.err != nil:
		return result, j.err
	}
	a, err := j.result()
	if err != nil {
		return result, err
	}
	return result, j.decode(a.Body, into)
}

// runUnprotected runs fn without a claim. The value is encoded and decoded as a recorded
// one is.
func (j *job) runUnprotected(ctx context.Context, into any) error {
	if j.value, j.err = j.fn(unprotectedContext{ctx, j.guard.set.intent(j.lease.id, j.lease.claim.Fingerprint)}); j.err != nil {
		return j.err
	}
	a, err := j.result()
	if err != nil {
		return err
	}
	return j.decode(a.Body, into)
}

func (j *job) execute(ctx *runContext) { j.value, j.err = j.fn(ctx) }

func (j *job) close(bool) {}

// answer returns the result, or what stands for it if it is too large to be kept.
func (j *job) answer() (*answer.Answer, error) {
	a, err := j.result()
	if limit := j.guard.set.maxResponseLen; err == nil && int64(len(a.Body)) > limit {
		brief := a.Brief(limit)
		a = &brief
	}
	return a, err
}

// result encodes the value, or the error if there is one, once.
func (j *job) result() (*answer.Answer, error) {
	if j.encoded == nil && j.encodeErr == nil {
		j.encoded, j.encodeErr = j.encode()
	}
	return j.encoded, j.encodeErr
}

func (j *job) encode() (*answer.Answer, error) {
	a := &answer.Answer{Kind: answer.KindValue, Status: http.StatusOK}
	var err error
	if j.err != nil {
		a.Kind, a.Status, a.Body = answer.KindError, http.StatusInternalServerError, []byte(j.err.Error())
	} else {
		a.Body, err = j.codec.Marshal(j.value)
	}
	if err != nil {
		return nil, fmt.Errorf("idempotency: the result of a run cannot be recorded: %w", err)
	}
	return a, nil
}

func (j *job) overLimit() bool { return false } // the value is in memory anyway

func (j *job) report(e event.Event) event.Event {
	e.Waited = j.waited
	if j.encoded != nil {
		e.Size = int64(len(j.encoded.Body))
	}
	return e
}

// refuse reports that fn was not run, or that another run's result counts and there is none to
// return. It returns err.
func (j *job) refuse(code problem.Code, rec store.Record, err error) error {
	j.code = code
	if j.guard.set.heard() {
		var differs event.RequestParts
		if code == problem.KeyReused {
			differs = j.lease.differs(&rec)
		}
		j.lease.observe(event.Event{
			Kind: event.Refused, Code: code, Attempt: rec.Attempt, Age: rec.Age, Waited: j.waited,
			Held: code == problem.OutcomeUnknown, Err: err, Trace: lastNote(rec.Notes).trace, Differs: differs,
		})
	}
	return err
}

// answerFrom returns what an earlier run recorded, or why there is nothing.
func (j *job) answerFrom(rec store.Record, into any) (Result, error) {
	result := Result{Attempt: rec.Attempt}
	j.guard.core.reportHoldEnding(j.lease.key, &rec, j.lease.observe)
	switch {
	case rec.State == 0: // the store could not tell
		return Result{Attempt: j.lease.attempt}, j.refuse(problem.InFlight, rec, ErrInFlight)
	case rec.Fingerprint[0] > digest.VersionJob && rec.Fingerprint[0] < firstOwnVersion:
		err := unknownVersion(rec.Fingerprint) // of a newer version of this package
		return result, j.refuse(problem.StoreUnavailable, rec, err)
	case rec.Fingerprint != j.lease.claim.Fingerprint:
		return result, j.refuse(problem.KeyReused, rec, ErrKeyReused)
	case rec.State == store.Held:
		result.Outcome, result.Held = Unknown, true
		j.lease.reportHeld(&rec)
		return result, j.refuse(problem.OutcomeUnknown, rec, ErrHeld)
	case rec.State != store.Completed:
		return result, j.refuse(problem.InFlight, rec, ErrInFlight)
	}
	result.Outcome = Final
	a, err := j.guard.set.unseal(rec.Answer, j.lease.key, rec.Fingerprint, nil)
	if err == nil && a.Kind != answer.KindValue && a.Kind != answer.KindError && a.Kind != answer.KindNotKept {
		err = fmt.Errorf("%w: it is not a value", ErrCorrupt)
	}
	if err != nil {
		j.lease.observe(event.Event{Kind: event.Corrupt, Err: err})
		return result, j.refuse(problem.AnswerUnreadable, rec, err)
	}
	if a.Kind == answer.KindNotKept {
		return result, j.refuse(problem.ResponseNotKept, rec, ErrResultNotKept)
	}
	result.Replayed = true
	j.lease.observe(event.Event{
		Kind: event.Replay, Attempt: rec.Attempt, Size: int64(len(a.Body)), Age: rec.Age, Waited: j.waited,
		Trace: lastNote(rec.Notes).trace,
	})
	if a.Kind == answer.KindError {
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
