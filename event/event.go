// Package event says what a guard reports of its work: to the functions of
// idempotency.WithObserver, for metrics and traces, and to the log. [Kind] lists what can happen, and
// [Event] what is said of it.
package event

import (
	"time"

	"example.com/idempotency/problem"
)

// An Event is one thing that a guard did or met. Fields that do not apply are zero. No event
// holds a client's key or payload.
type Event struct {
	// Kind says what happened.
	Kind Kind
	// Would is what a live guard would have done: only of a [Shadow].
	Would Kind
	// Record is the name of the record in the store, under which a store.Inspector finds it. It
	// does not reveal a key that is random. It confirms the guess of a key that can be
	// guessed, such as an order number.
	Record string
	// Scope is whose key it is, if that is known: a decision about a record by its name does not
	// tell. It can be a name, and there can be as many as there are
	// callers: keep it out of the attributes of metrics.
	Scope string
	// OperationID is the idempotency.Operation.ID that the request's run has or would have. It is empty
	// for a request that was refused or passed before its key was claimed, and for a decision
	// about a record whose key is not known.
	OperationID string
	// Method is that of the request, and empty for idempotency.Do.
	Method string
	// Route is the label that idempotency.WithRoute gave, or else http.Request.Pattern, if the router
	// outside of the guard sets it there, as http.ServeMux does.
	Route string
	// Attempt is the number of the run.
	Attempt int
	// Trace is the span of the run that the event is about, if adapter.WithTraceContext is set: on a
	// replay it is that of the run that made the answer.
	Trace TraceContext
	// Runs are the runs of the record, oldest first and at most 16: only of a [Takeover].
	Runs []RunInfo
	// Differs says which parts of the request are not those of the request that the key is
	// bound to: only of a refusal with the code key-reused. It is a hint: it is empty if none of
	// these parts tells the requests apart, and once in 65,536 times it misses a part. The
	// body counts byte for byte, whatever the idempotency.FingerprintFunc counts. Of a body above 8 KiB, only
	// its length and 4 KiB at each end are compared. A difference between them is named if the
	// requests differ in nothing else, by idempotency.RawFingerprint or idempotency.JSONFingerprint.
	Differs RequestParts
	// Outcome is how the run was judged, or what a decision by hand said.
	Outcome Outcome
	// Held says that nobody may run with the key until it is resolved or forgotten.
	Held bool
	// Cause says why the key is held: only of a [Held].
	Cause Cause
	// Status is that of the answer, and Code that of the problem, if the answer is one.
	Status int
	Code   problem.Code
	// Size is the number of bytes in the body of the answer.
	Size int64
	// Age is the time since the record was last claimed, renewed or settled.
	Age time.Duration
	// Waited is how long the request waited for another run.
	Waited time.Duration
	// Digest is the SHA-256 of the body of an answer, in hexadecimal: only of an
	// [Overtaken].
	Digest string
	// Step is the name of a step, and Result how it ended.
	Step   string
	Result StepResult
	// Steps are the steps of a record that have a result, and InDoubt those that may have happened
	// and have none, or cannot be read by its process: only of a [Held] that idempotency.Guard.Reconcile
	// reports, and of a [Resolved], where they are what was there when it was decided. If the decision
	// said [Final], no attempt makes those in doubt, nor the steps that were to follow.
	Steps, InDoubt []string
	// Decision is the ID of a decision, by hand or by the function of idempotency.WithResolver: 32 hexadecimal
	// digits, by which the record, the log, idem and the console name it too.
	Decision string
	// Actor and Reason are those of a decision, in full.
	Actor, Reason string
	// Op is what failed: a call of the store (claim, renew, step, complete, release,
	// hold, watch, get, list), resolve, which includes the function of idempotency.WithResolver, or birth, which is
	// to read or make the mark of the store's birth.
	Op string
	// Duration of the run, of the step, or of the store call. Of a [HoldEnding], it is
	// the time that is left.
	Duration time.Duration
	// Err says what went wrong.
	Err error
}
