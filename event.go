package idempotency

import (
	"log/slog"
	"time"

	"example.com/idempotency/problem"
)

// This file holds what a guard reports: the kinds of events, which of them need somebody, and
// what an event says.

// An EventKind names what an [Event] reports. The values are stable, and meant to be
// used as metric labels.
type EventKind string

// String returns the kind's name, and none for the zero EventKind.
func (k EventKind) String() string {
	if k == "" {
		return "none"
	}
	return string(k)
}

// Incident reports whether somebody should look at each event of this kind: a promise may be
// broken, or is kept only because the guard stepped in. Count incidents and alert on them.
func (k EventKind) Incident() bool { return kinds[k].incident }

// logged reports whether events of this kind are in the log.
func (k EventKind) logged() bool { return kinds[k].message != "" }

// Incidents returns the kinds of events that are incidents, in no order. A counter that starts
// at zero for each of them shows the first one as an increase.
func Incidents() []EventKind {
	var all []EventKind
	for k, about := range kinds {
		if about.incident {
			all = append(all, k)
		}
	}
	return all
}

// The kinds of events.
const (
	// EventRun: a run ended and its outcome was settled, or is being settled in the
	// background. Outcome, Held, Status, Size, Attempt, Waited and Duration describe it. A
	// run of [Do] has Status 0.
	EventRun EventKind = "run"
	// EventReplay: a recorded answer was served. Status and Size are the answer's, Attempt is
	// the run that it is from, Age is how old it is, and Waited how long the request waited
	// for it.
	EventReplay EventKind = "replay"
	// EventRefused: a request got a problem document, or [Do] an error that stands for one.
	// Code and Status say which; Status is 0 for Do. Err is the error of the route's function
	// that caused it, if one did: of a [ScopeFunc], for example. Attempt, Age and Held
	// describe the record that stood in the way, if one did.
	EventRefused EventKind = "refused"
	// EventBypassed: a request with a protected method had no key, and its handler ran
	// unprotected because the route does not require one.
	EventBypassed EventKind = "bypassed"
	// EventStep: a [Step] ended. Step, Result, Duration and Err describe it.
	EventStep EventKind = "step"
	// EventHeld: the outcome of a run is unknown, and nobody may run with its key until it is
	// resolved or forgotten. A process reports each such run once: when it ended that way
	// there, when a request met it, or when [Guard.Reconcile] found it. Steps are told in the
	// last case.
	EventHeld EventKind = "held"
	// EventHoldEnding: a request, a [Guard.Lookup] or [Guard.Reconcile] met a held key that
	// becomes free soon, because [WithRetention] ends the hold: a tenth of its retention or an hour is left,
	// whichever is longer. So with a retention of up to an hour, the first look reports it. When
	// the hold has ended the next request runs, whatever the last run did. Duration is the time
	// that is left. A process reports each such run once.
	EventHoldEnding EventKind = "hold-ending"
	// EventResolved: a held key was settled, by [Guard.Resolve] or by the function of
	// [WithResolver]. Outcome, Attempt, Actor and Reason describe the decision.
	EventResolved EventKind = "resolved"
	// EventForgotten: [Guard.Forget] removed a record. Attempt, Held, Actor and Reason describe
	// what was seen and the decision. OperationID, Route, Age and Trace are those of the record,
	// if it could be read.
	EventForgotten EventKind = "forgotten"
	// EventFailOpen: the store was unavailable and the handler ran unprotected,
	// because of [WithFailOpen]. Err is the store's error.
	EventFailOpen EventKind = "fail-open"
	// EventStoreError: a call of the store failed or timed out; Op and Err say which
	// and how.
	EventStoreError EventKind = "store-error"
	// EventLeaseLost: a run could not keep its claim, and its context was cancelled; or
	// it had lost the claim, as it turned out, when it was to be settled.
	EventLeaseLost EventKind = "lease-lost"
	// EventTakeover: a run took the key over from one whose lease had ended, because its
	// process had died, was paused or had lost the store. Attempt is the new run, Trace is
	// that of the old one, and Runs are all of them. The effect of the old run may have
	// happened.
	EventTakeover EventKind = "takeover"
	// EventOvertaken: another run took the key while this one went on, so that both may
	// have had their effect; or an operator or a resolver has settled the key in between.
	// Outcome describes this run; Status and Digest describe its answer if that was definite.
	// The client is shown what is recorded and never an answer that contradicts it. If the record is
	// that of another payload, it is shown the answer of this run, which nothing can record.
	EventOvertaken EventKind = "overtaken"
	// EventCommittedAlone: the handler has committed the transaction that its run had joined by
	// itself, and so without the record, or has ended it in a way that its store cannot tell from that. If the process had died then, its effect would have
	// happened again.
	EventCommittedAlone EventKind = "committed-alone"
	// EventLeftOpen: the handler has neither committed nor rolled back the transaction that its run
	// had joined. The guard has rolled it back; without a guard, it would have kept its connection.
	// Outcome is that of the run.
	EventLeftOpen EventKind = "left-open"
	// EventNested: a request met a second guard on the same store inside its own run, and
	// passed through. Its settings did not apply.
	EventNested EventKind = "nested"
	// EventRecordingDelayed: a run could not be settled while its client waited, and settling
	// goes on in the background. If the store stayed away the client has the run's answer,
	// unless the lease is over; if another run is in flight it was told to ask again.
	EventRecordingDelayed EventKind = "recording-delayed"
	// EventRecordingLost: a run could not be recorded; Err says why. Its effect may have
	// happened, and its client may have the answer. If the store was away until the guard was
	// shut down, or if too many runs waited for it already, the lease and the recovery policy
	// decide about the key. If it was away until the retention ended, the key is free. If the
	// sealer failed, or the result of a [Do] could not be encoded, the key is held.
	EventRecordingLost EventKind = "recording-lost"
	// EventClaimLeft: the store has failed to answer a claim, and then to take it back; Err says
	// why the guard has given that up. Nothing has run under the claim. If it was granted, the
	// lease and the recovery policy decide about the key: under [Hold] it becomes held.
	EventClaimLeft EventKind = "claim-left"
	// EventNotKept: a run is recorded without its answer, because the store does not take an
	// answer of that size, or because too many answers wait for it; Err says which. Status and
	// Size are those of the answer. Duplicates are told that the run has happened. There is no
	// such event for an answer that is larger than [WithMaxResponseBody] allows.
	EventNotKept EventKind = "not-kept"
	// EventSilent: a handler returned without a status and without a byte, or wrote after
	// that; Err says which, and the usual cause. It is reported once for each Method and
	// Route; see [WithSilence].
	EventSilent EventKind = "silent"
	// EventShadow: under [WithShadow], a request was left alone. Would says what a live guard would
	// have done: run, replay, refused (with its Code), bypassed, nested or fail-open. It is empty if
	// that is not known. Err says why not, why the request would have been refused, or with
	// [ErrShadowDiffers] that the replay would have been another answer than the one that the client
	// got. Status is that of the answer that the client got.
	EventShadow EventKind = "shadow"
	// EventCorrupt: a stored record failed its own check and was not served, or this process
	// cannot read it; Err wraps [ErrCorrupt] or [ErrUnreadableHere].
	EventCorrupt EventKind = "corrupt"
)

// A kindInfo is what the package knows of an EventKind. The zero kindInfo is not logged.
type kindInfo struct {
	incident bool
	level    slog.Level
	message  string // of the log; empty if the event is not logged
}

var kinds = map[EventKind]kindInfo{
	EventRun: {}, EventReplay: {}, EventBypassed: {}, EventStep: {},
	EventRefused:          {false, slog.LevelWarn, "idempotency: request refused"},
	EventHeld:             {true, slog.LevelError, "idempotency: outcome unknown, key held until it is resolved"},
	EventHoldEnding:       {true, slog.LevelError, "idempotency: held key becomes free unresolved"},
	EventResolved:         {false, slog.LevelInfo, "idempotency: held key resolved"},
	EventForgotten:        {false, slog.LevelInfo, "idempotency: record forgotten"},
	EventFailOpen:         {true, slog.LevelError, "idempotency: store unavailable, handler runs unprotected"},
	EventStoreError:       {false, slog.LevelWarn, "idempotency: store call failed"},
	EventLeaseLost:        {true, slog.LevelWarn, "idempotency: lease lost"},
	EventTakeover:         {true, slog.LevelWarn, "idempotency: key taken over from a run whose lease had ended"},
	EventOvertaken:        {true, slog.LevelError, "idempotency: another run came between"},
	EventCommittedAlone:   {true, slog.LevelError, "idempotency: handler committed its transaction without the record"},
	EventLeftOpen:         {true, slog.LevelWarn, "idempotency: handler left its transaction open, rolled back"},
	EventNested:           {false, slog.LevelWarn, "idempotency: a guard inside a guard, the inner one does nothing"},
	EventRecordingDelayed: {true, slog.LevelWarn, "idempotency: settling a run goes on in the background"},
	EventRecordingLost:    {true, slog.LevelError, "idempotency: run could not be settled"},
	EventClaimLeft:        {true, slog.LevelWarn, "idempotency: claim could not be given back"},
	EventNotKept:          {true, slog.LevelWarn, "idempotency: run is recorded without its answer"},
	EventSilent:           {true, slog.LevelWarn, "idempotency: handler said nothing"},
	EventShadow:           {false, slog.LevelInfo, "idempotency: a live guard would have stepped in"},
	EventCorrupt:          {true, slog.LevelError, "idempotency: stored record is unreadable"},
}

// A StepResult is how a [Step] ended.
type StepResult string

// The results of steps.
const (
	// StepRecorded: the function ran, and its value or permanent error was recorded.
	StepRecorded StepResult = "recorded"
	// StepFound: an earlier attempt had recorded the step, and the function did not run.
	StepFound StepResult = "found"
	// StepFailed: the function returned an error, which is not recorded.
	StepFailed StepResult = "failed"
	// StepNotDone: the function returned an error marked with [NotDone].
	StepNotDone StepResult = "not-done"
	// StepNotRecorded: the function ran, and its result could not be recorded.
	StepNotRecorded StepResult = "not-recorded"
	// StepNotBegun: the function did not run; see the errors of [Step].
	StepNotBegun StepResult = "not-begun"
	// StepUncertain: the mark of an earlier attempt was found, and the function did not run.
	StepUncertain StepResult = "uncertain"
)

// An Event is one thing that a guard did or met. Fields that do not apply are zero. No event
// holds a client's key or payload.
type Event struct {
	// Kind says what happened.
	Kind EventKind
	// Would is what a live guard would have done: only of an EventShadow.
	Would EventKind
	// Record is the name of the record in the store, under which an [Inspector] finds it. It
	// does not reveal a key that is random. It confirms the guess of a key that can be
	// guessed, such as an order number.
	Record string
	// Scope is whose key it is, if that is known: a decision about a record by its name does not
	// tell. It can be a name, and there can be as many as there are
	// callers: keep it out of the attributes of metrics.
	Scope string
	// OperationID is the [Operation.ID] that the request's run has or would have. It is empty
	// for a request that was refused or passed before its key was claimed, and for a decision
	// about a record whose key is not known.
	OperationID string
	// Method is that of the request, and empty for [Do].
	Method string
	// Route is the label that [WithRoute] gave, or else http.Request.Pattern, if the router
	// outside of the guard sets it there, as http.ServeMux does.
	Route string
	// Attempt is the number of the run.
	Attempt int
	// Trace is the span of the run that the event is about, if [WithTraceContext] is set: on a
	// replay it is that of the run that made the answer.
	Trace TraceContext
	// Runs are the runs of the record, oldest first and at most 16: only of an EventTakeover.
	Runs []RunInfo
	// Differs says which parts of the request are not those of the request that the key is
	// bound to: only of a refusal with the code key-reused. It is a hint: it is empty if none of
	// these parts tells the requests apart, and once in 65,536 times it misses a part. The
	// body counts byte for byte, whatever the [FingerprintFunc] counts. Of a body above 8 KiB, only
	// its length and 4 KiB at each end are compared. A difference between them is named if the
	// requests differ in nothing else, by [RawFingerprint] or [JSONFingerprint].
	Differs RequestParts
	// Outcome is how the run was judged, or what a decision by hand said.
	Outcome Outcome
	// Held says that nobody may run with the key until it is resolved or forgotten.
	Held bool
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
	// EventOvertaken.
	Digest string
	// Step is the name of a step, and Result how it ended.
	Step   string
	Result StepResult
	// Steps are those of a record, as [RecordInfo].Steps: only of an EventHeld that
	// [Guard.Reconcile] reports.
	Steps []string
	// Actor and Reason are those of a decision by hand.
	Actor, Reason string
	// Op is what failed: a call of the store (claim, renew, step, complete, release,
	// hold, watch, get, list), or resolve, which includes the function of [WithResolver].
	Op string
	// Duration of the run, of the step, or of the store call. Of an EventHoldEnding, it is
	// the time that is left.
	Duration time.Duration
	// Err says what went wrong.
	Err error
}
