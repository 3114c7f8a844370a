package event

import "slices"

// A Kind names what an [Event] reports. The values are stable, and meant to be
// used as metric labels.
type Kind string

// String returns the kind's name, and none for the zero Kind.
func (k Kind) String() string {
	if k == "" {
		return "none"
	}
	return string(k)
}

// Incident reports whether somebody should look at each event of this kind: a promise may be
// broken, or is kept only because the guard stepped in. Count incidents and alert on them.
func (k Kind) Incident() bool { return slices.Contains(incidents, k) }

// Incidents returns the kinds of events that are incidents. A counter that starts
// at zero for each of them shows the first one as an increase.
func Incidents() []Kind { return slices.Clone(incidents) }

// The kinds of events.
const (
	// Run: a run ended and its outcome was settled, or is being settled in the
	// background. Outcome, Held, Status, Size, Attempt, Waited and Duration describe it. A
	// run of idempotency.Do has Status 0.
	Run Kind = "run"
	// Replay: a recorded answer was served. Status and Size are the answer's, Attempt is
	// the run that it is from, Age is how old it is, and Waited how long the request waited
	// for it.
	Replay Kind = "replay"
	// Refused: a request got a problem document, or idempotency.Do an error that stands for one.
	// Code and Status say which; Status is 0 for Do. Err is the error of the route's function
	// that caused it, if one did: of an idempotency.ScopeFunc, for example. Attempt, Age and Held
	// describe the record that stood in the way, if one did.
	Refused Kind = "refused"
	// Bypassed: a request with a protected method had no key, and its handler ran
	// unprotected because the route does not require one. Err says why the client may have sent a key
	// all the same, if somebody between may have dropped it.
	Bypassed Kind = "bypassed"
	// Step: an idempotency.Step ended. Step, Result, Duration and Err describe it.
	Step Kind = "step"
	// Held: the outcome of a run is unknown, and nobody may run with its key until it is
	// resolved or forgotten. A process reports each such run once: when it ended that way
	// there, when a request met it, or when idempotency.Guard.Reconcile found it. Steps are told in the
	// last case.
	Held Kind = "held"
	// HoldEnding: a request, an idempotency.Guard.Lookup or idempotency.Guard.Reconcile met a held key that
	// becomes free soon, because idempotency.WithRetention ends the hold: a tenth of its retention or an hour is left,
	// whichever is longer. So with a retention of up to an hour, the first look reports it. When
	// the hold has ended the next request runs, whatever the last run did. Duration is the time
	// that is left. A process reports each such run once.
	HoldEnding Kind = "hold-ending"
	// Resolved: a held key was settled, by idempotency.Guard.Resolve or by the function of
	// idempotency.WithResolver. Outcome, Attempt, Actor and Reason describe the decision. Steps and
	// InDoubt say how far the run came: after [Final], nothing that it has left out is made up for.
	Resolved Kind = "resolved"
	// Unresolved: the function of idempotency.WithResolver was to say how a held key ends, and the key stays held. Err is
	// that of the function and says so, or why its decision was not carried out, or idempotency.ErrOtherKeys if it was not
	// asked, or the store's.
	Unresolved Kind = "unresolved"
	// Forgotten: idempotency.Guard.Forget removed a record. Attempt, Held, Actor and Reason describe
	// what was seen and the decision. OperationID, Route, Age and Trace are those of the record,
	// if it could be read.
	Forgotten Kind = "forgotten"
	// AnswerRead: somebody has read a recorded answer, through package console. Actor says who. OperationID, Route,
	// Attempt, Status, Size and Age are those of the record.
	AnswerRead Kind = "answer-read"
	// FailOpen: the store was unavailable and the handler ran unprotected,
	// because of idempotency.WithFailOpen. Err is the store's error.
	FailOpen Kind = "fail-open"
	// StoreError: a call of the store failed or timed out; Op and Err say which
	// and how.
	StoreError Kind = "store-error"
	// LeaseLost: a run could not keep its claim, and its context was cancelled; or
	// it had lost the claim, as it turned out, when it was to be settled.
	LeaseLost Kind = "lease-lost"
	// Takeover: a run took the key over from one whose lease had ended, because its
	// process had died, was paused or had lost the store. Attempt is the new run, Trace is
	// that of the old one, and Runs are all of them. The effect of the old run may have
	// happened.
	Takeover Kind = "takeover"
	// Overtaken: another run took the key while this one went on, so that both may
	// have had their effect; or an operator or a resolver has settled the key in between.
	// Outcome describes this run; Status and Digest describe its answer if that was definite.
	// The client is shown what is recorded and never an answer that contradicts it. If the record is
	// that of another payload, it is shown the answer of this run, which nothing can record.
	Overtaken Kind = "overtaken"
	// CommittedAlone: the handler has committed the transaction that its run had joined by
	// itself, and so without the record, or has ended it in a way that its store cannot tell from that. If the process had died then, its effect would have
	// happened again.
	CommittedAlone Kind = "committed-alone"
	// NotJoined: a run of a route with idempotency.WithTransaction has answered success, and has joined no
	// transaction of the store. What it has written is committed without the record, and happens again
	// if the process dies in between, also under idempotency.Hold; Err says what is usually wrong. It is
	// reported once for each route, as Silent is. Where such a run writes nothing, or writes only in steps,
	// it is right to ignore it, or to take idempotency.WithTransaction off the route.
	NotJoined Kind = "not-joined"
	// LeftOpen: the handler has neither committed nor rolled back the transaction that its run
	// had joined. The guard has rolled it back; without a guard, it would have kept its connection.
	// Outcome is that of the run.
	LeftOpen Kind = "left-open"
	// Nested: a request met a second guard on the same store inside its own run, and
	// passed through. Its settings did not apply.
	Nested Kind = "nested"
	// RecordingDelayed: a run could not be settled while its client waited, and settling
	// goes on in the background. If the store stayed away the client has the run's answer,
	// unless the lease is over; if another run is in flight it was told to ask again.
	RecordingDelayed Kind = "recording-delayed"
	// RecordingLost: a run could not be recorded; Err says why. Its effect may have
	// happened, and its client may have the answer. If the store was unavailable until the guard was
	// shut down, or if too many runs waited for it already, the lease and the recovery policy
	// decide about the key. If it was unavailable until the retention ended, the key is free. If the
	// sealer failed, or the result of an idempotency.Do could not be encoded, the key is held.
	RecordingLost Kind = "recording-lost"
	// ClaimLeft: the store has failed to answer a claim, and then to take it back; Err says
	// why the guard has given that up. Nothing has run under the claim. If it was granted, the
	// lease and the recovery policy decide about the key: under idempotency.Hold it becomes held.
	ClaimLeft Kind = "claim-left"
	// RunLeft: a shutdown was given up before this run had ended and was settled. It goes on and keeps its claim; if its
	// process ends first, nobody knows what it has done. Duration is how long it has lasted.
	RunLeft Kind = "run-left"
	// RecordGone: the store does not know a record any more that this process has completed, long before it
	// expires. It was emptied, it evicts, or a copy that is behind has taken its place: other keys
	// may be lost too, and run again. Err says how many of the last records are gone. Record, Route and Age are those of the
	// last one. idempotency.Guard.Reconcile looks for it. If somebody has forgotten
	// the record through another process, nothing is wrong.
	RecordGone Kind = "record-gone"
	// StoreReset: the store is not the one that this process has seen before: the mark of its birth is another one. It was
	// emptied, or a new or another one has taken its place, and keys that only the store of before knew run again. Err says when it
	// was empty, and Age is the time since then. idempotency.Guard.Reconcile and idempotency.Guard.Check look for it. A store
	// that goes back to a copy of itself keeps the mark: that may be a RecordGone.
	StoreReset Kind = "store-reset"
	// NotKept: a run is recorded without its answer, because the store does not take an
	// answer of that size, or because too many answers wait for it; Err says which. Status and
	// Size are those of the answer. Duplicates are told that the run has happened. There is no
	// such event for an answer that is larger than idempotency.Limits.ResponseBody allows.
	NotKept Kind = "not-kept"
	// Silent: a handler returned without a status and without a byte, or wrote after
	// that; Err says which, and the usual cause. It is reported once for each Method and
	// Route; see idempotency.WithSilence. Where neither a router nor idempotency.WithRoute names the
	// route, it is reported once for each shape of path, and up to 64 of them: Err says which.
	Silent Kind = "silent"
	// HiddenFailure: a run has answered 200, and the body tells of a failure, as JSON-RPC and GraphQL
	// do. It is recorded as a success; Err says how to say otherwise. It is reported once for each route,
	// as Silent is, and not of an answer above 64 KiB, nor of a route with idempotency.WithOutcome.
	HiddenFailure Kind = "hidden-failure"
	// Shadow: under idempotency.WithShadow, a request was left alone. Would says what a live guard would
	// have done: run, replay, refused (with its Code), bypassed, nested or fail-open. It is empty if
	// that is not known. Err says why not, why the request would have been refused, or with
	// idempotency.ErrShadowDiffers that the replay would have been another answer than the one that the client
	// got. Status is that of the answer that the client got.
	Shadow Kind = "shadow"
	// Corrupt: a stored record failed its own check and was not served, or this process
	// cannot read it; Err wraps store.ErrCorrupt or store.ErrUnreadableHere.
	Corrupt Kind = "corrupt"
)

var incidents = []Kind{
	Held,
	HoldEnding,
	Unresolved,
	FailOpen,
	LeaseLost,
	Takeover,
	Overtaken,
	CommittedAlone,
	NotJoined,
	LeftOpen,
	RecordingDelayed,
	RecordingLost,
	ClaimLeft,
	RunLeft,
	RecordGone,
	StoreReset,
	NotKept,
	Silent,
	HiddenFailure,
	Corrupt,
}
