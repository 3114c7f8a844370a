package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/answer"
	"example.com/idempotency/internal/digest"
	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/internal/engine/note"
	"example.com/idempotency/internal/rules"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// A Result says what [Engine.Do] did. The root's Result says more of each field.
type Result struct {
	Replayed bool
	Attempt  int
	Outcome  event.Outcome
	Held     bool
	Code     problem.Code
}

// A judged value says itself how its run has ended.
type judged interface {
	Outcome() event.Outcome
	Refused() bool
}

// A limited value says itself whether it may be kept where a body may have limit bytes.
type limited interface{ Fits(limit int64) bool }

// A Job is a function to be run once for a key.
type Job struct {
	Key     intent.Key
	Payload []byte // that the key is bound to
	// Reference is what the record is found by besides its key, or empty.
	Reference string
	Codec     Codec // nil for JSON
	Fn        func(context.Context) (any, error)
}

// A job is the run of the function of a Job.
type job struct {
	Run
	engine  *Engine
	claimed Lease
	fn      func(context.Context) (any, error)
	codec   Codec
	waited  time.Duration // for another run
	code    problem.Code  // of the refusal

	// Set by Execute.
	value any
	err   error
	// Set by result.
	encoded   *answer.Answer
	encodeErr error
}

// Do runs a job, or returns what an earlier run has recorded. It decodes the value into the pointer
// into, so that everything that does not depend on the type of the value is compiled once.
func (e *Engine) Do(ctx context.Context, what Job, into any) (Result, error) {
	j := &job{engine: e, fn: what.Fn, codec: orJSON(what.Codec)}
	result, err := j.do(ctx, what, into)
	result.Code = j.code
	return result, err
}

func (j *job) do(ctx context.Context, what Job, into any) (Result, error) {
	k, payload := what.Key, what.Payload
	if err := k.CheckRun(); err != nil {
		return Result{}, err
	}
	if what.Reference != "" {
		if _, err := j.engine.finder(); err != nil {
			return Result{}, err
		}
	}
	if ctx.Err() != nil { // what fn would make of it must not hold the key
		return Result{}, context.Cause(ctx)
	}
	now, e := time.Now(), j.engine
	j.claimed.init(now, e, Access{ID: k, Name: k.Name(), Client: ctx, Route: e.rules.Route},
		Identity{digest.Parts(digest.VersionJob, payload), digest.ChecksumBody(payload)})
	j.claimed.Refer(what.Reference)
	j.Init(ctx, &j.claimed, true)
	if !e.core.work.Admit() {
		return Result{}, j.refuse(problem.ShuttingDown, store.Record{}, ErrShutdown)
	}
	defer e.core.work.Leave()
	if op, _ := FromContext(ctx); op.Holder(e.core.store, j.Lease.Name) != nil {
		return Result{}, j.refuse(problem.InFlight, store.Record{}, ErrNested)
	}
	if err := j.Lease.KeepKey(); err != nil {
		return Result{}, j.refuse(problem.StoreUnavailable, store.Record{}, err)
	}
	c := Claiming{Lease: j.Lease, Client: ctx, FollowsClient: true, Size: len(payload)}
	var rec store.Record
	err := c.claimOnce(&rec, now)
	j.waited = c.Waited
	switch {
	case errors.Is(err, ErrShutdown):
		return Result{}, j.refuse(problem.ShuttingDown, store.Record{}, ErrShutdown)
	case err != nil && c.FailsOpen(err):
		j.Lease.Observe(event.Event{Kind: event.FailOpen, Err: err})
		return Result{Attempt: 1}, j.runUnprotected(ctx, into)
	case err != nil:
		code := problem.StoreUnavailable
		if errors.Is(err, store.ErrCorrupt) {
			code = problem.AnswerUnreadable
		}
		return Result{}, j.refuse(code, store.Record{}, fmt.Errorf("idempotency: claiming the key: %w", err))
	case rec.Mine && c.Unwanted() != nil:
		j.Lease.GiveBack()
		return Result{}, c.Unwanted()
	case rec.Mine:
		return j.runProtected(into)
	default:
		result, err := j.answerFrom(rec, false, into)
		if errors.Is(err, ErrInFlight) && ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
		return result, err
	}
}

func (j *job) runProtected(into any) (Result, error) {
	v, e := j.Perform(j)
	result := Result{Attempt: j.Lease.Attempt, Outcome: v.Outcome(), Held: v.Left == rules.Held}
	said := rules.NothingSent | rules.RanOn | rules.Answered | rules.TellsNone | rules.KeepsPayload
	switch show := rules.Client.Of(j.Reply(&v, e) | said); {
	case show.Action == rules.Recall:
		return j.answerFrom(e.Record(), true, into)
	case show.Action == rules.Replace && v.Instead.Undone():
		return result, j.refuse(v.Instead, store.Record{}, v.Cause)
	case show.Action == rules.Replace:
		return result, j.refuse(v.Instead, store.Record{}, fmt.Errorf("%w: %w", ErrCommitUnknown, v.Cause))
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
	if j.value, j.err = j.fn(j.engine.Unprotected(ctx, j.Lease.ID, j.Lease.claim.Fingerprint)); j.err != nil {
		return j.err
	}
	a, err := j.result()
	if err != nil {
		return err
	}
	return j.decode(a.Body, into)
}

// Execute implements [Task].
func (j *job) Execute(ctx context.Context) { j.value, j.err = j.fn(ctx) }

// Close implements [Task].
func (j *job) Close(bool) {}

// Answer returns the result, or what stands for it if it is too large to be kept.
func (j *job) Answer() (*answer.Answer, error) {
	a, err := j.result()
	if limit := j.Lease.rules.MaxAnswer; err == nil && !j.fits(a, limit) {
		brief := a.Brief(limit)
		a = &brief
	}
	return a, err
}

// fits reports whether the result may be kept.
func (j *job) fits(a *answer.Answer, limit int64) bool {
	if v, ok := j.value.(limited); ok && j.err == nil {
		return v.Fits(limit)
	}
	return a.Fits(limit)
}

// result encodes the value, or the error if there is one, once.
func (j *job) result() (*answer.Answer, error) {
	if j.encoded == nil && j.encodeErr == nil {
		j.encoded, j.encodeErr = j.encode()
	}
	return j.encoded, j.encodeErr
}

// The statuses that stand for the results of functions in their stored form.
const (
	statusOK    = 200
	statusError = 500
)

func (j *job) encode() (*answer.Answer, error) {
	a := &answer.Answer{Kind: answer.KindValue, Status: statusOK}
	var err error
	if j.err != nil {
		a.Kind, a.Status, a.Body = answer.KindError, statusError, []byte(j.err.Error())
	} else {
		a.Body, err = j.codec.Marshal(j.value)
	}
	if err != nil {
		return nil, fmt.Errorf("idempotency: the result of a run cannot be recorded: %w", err)
	}
	return a, nil
}

// OverLimit implements [Task].
func (j *job) OverLimit() bool { return false } // the value is in memory anyway

// Report implements [Task].
func (j *job) Report(e event.Event) event.Event {
	e.Waited = j.waited
	if j.encoded != nil {
		e.Size = int64(len(j.encoded.Body))
	}
	return e
}

// ReportOnce implements [Task].
func (j *job) ReportOnce(kind event.Kind, err error) { j.Lease.ReportOnce(kind, err, "", "") }

// refuse reports that fn was not run, or that another run's result counts and there is none to
// return. It returns err.
func (j *job) refuse(code problem.Code, rec store.Record, err error) error {
	j.code = code
	if j.Lease.rules.Reporter.Heard() {
		var differs event.RequestParts
		if code == problem.KeyReused {
			differs = j.Lease.Differs(&rec)
		}
		j.Lease.Observe(event.Event{
			Kind: event.Refused, Code: code, Attempt: rec.Attempt, Age: rec.Age, Waited: j.waited,
			Held: code == problem.OutcomeUnknown, Err: err, Trace: note.Last(rec.Notes).Trace, Differs: differs,
		})
	}
	return err
}

// answerFrom returns what another run recorded, or why there is nothing. overtaken says that fn has run.
func (j *job) answerFrom(rec store.Record, overtaken bool, into any) (Result, error) {
	result := Result{Attempt: rec.Attempt}
	if rec.State == 0 { // the store could not tell
		result.Attempt = j.Lease.Attempt
	}
	j.Lease.ReportHoldEnding(&rec)
	code := rules.Recorded.Of(Met(&rec, j.Lease.claim.Fingerprint, !digest.IsNewer(rec.Fingerprint[0])))
	if overtaken {
		code = rules.Overtook(code)
	}
	switch code {
	case problem.StoreUnavailable:
		return result, j.refuse(code, rec, UnknownVersion(rec.Fingerprint))
	case problem.KeyReused:
		return result, j.refuse(code, rec, ErrKeyReused)
	case problem.OutcomeUnknown:
		result.Outcome, result.Held = event.Unknown, true
		j.Lease.ReportFound(&rec)
		return result, j.refuse(code, rec, ErrHeld)
	case problem.InFlight:
		return result, j.refuse(code, rec, ErrInFlight)
	}
	result.Outcome = event.Final
	a, err := j.Lease.rules.Seals.OpenAnswer(rec.Answer, j.Lease.Name, rec.Fingerprint, nil)
	if err == nil && a.Kind != answer.KindValue && a.Kind != answer.KindError && a.Kind != answer.KindNotKept {
		err = fmt.Errorf("%w: it is not a value", store.ErrCorrupt)
	}
	if err != nil {
		j.Lease.Observe(event.Event{Kind: event.Corrupt, Err: err})
		return result, j.refuse(problem.AnswerUnreadable, rec, err)
	}
	if a.Kind == answer.KindNotKept {
		return result, j.refuse(problem.ResponseNotKept, rec, ErrResultNotKept)
	}
	result.Replayed = true
	j.Lease.Observe(event.Event{
		Kind: event.Replay, Attempt: rec.Attempt, Size: int64(len(a.Body)), Age: rec.Age, Waited: j.waited,
		Trace: note.Last(rec.Notes).Trace,
	})
	if a.Kind == answer.KindError {
		return result, Permanent(errors.New(string(a.Body)))
	}
	if err = j.decode(a.Body, into); err != nil { // the codec or the type has changed since
		j.Lease.Observe(event.Event{Kind: event.Corrupt, Attempt: rec.Attempt, Err: err})
	}
	return result, err
}

func (j *job) decode(data []byte, into any) error {
	if err := j.codec.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%w: recorded value cannot be decoded: %w", store.ErrCorrupt, err)
	}
	return nil
}

// Refused reports whether the function has returned an error, or a value that stands for one.
func (j *job) Refused() bool {
	v, ok := j.value.(judged)
	return j.err != nil || ok && v.Refused()
}

// Judge implements [Task].
func (j *job) Judge() event.Outcome { return JudgeValue(j.value, j.err) }

// JudgeValue takes a value that does not judge itself, and an error marked with Permanent, for definite.
func JudgeValue(value any, err error) event.Outcome {
	if v, ok := value.(judged); ok && err == nil {
		return v.Outcome()
	}
	if err == nil || errors.Is(err, ErrPermanent) {
		return event.Final
	}
	return event.Unknown
}

// Redirected implements [Task].
func (j *job) Redirected() bool { return false }
