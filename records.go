package idempotency

import (
	"net/http"
	"time"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/answer"
	"example.com/idempotency/internal/digest"
	"example.com/idempotency/internal/engine"
	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/internal/engine/note"
	"example.com/idempotency/internal/response"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// A RecordInfo is what a guard knows of a key's record; see [Guard.Lookup],
// [WithAuthorizeReplay] and [WithResolver]. It never contains the recorded answer itself.
type RecordInfo struct {
	// Key is the client's key. For a record that was looked up by its name, it is that name,
	// unless the route keeps keys; see [WithKeptKeys].
	Key Key
	// Record is the name of the record in the store.
	Record string
	// ID is that of [Operation.ID]. It is empty if the client's key is not known, and if the last run had another
	// [WithDerivation] than this guard.
	ID string
	// State of the record.
	State store.State
	// Attempt is the number of the last run.
	Attempt int
	// Lease is how much longer a run in flight is protected from takeover. It is not
	// positive if the lease has lapsed.
	Lease time.Duration
	// Age is the time since the record was last claimed, renewed, completed, released
	// or held. TTL is how much longer it is kept. It is [store.Forever] for a record that is kept
	// until somebody resolves or forgets it.
	Age, TTL time.Duration
	// Status of the recorded answer, or 0 if there is none or it is the result of [Do]. A
	// sealer does not protect it, except where [WithAuthorizeReplay] is asked about a replay.
	Status int
	// Size of the recorded answer in bytes, as it is stored.
	Size int64
	// Route is that of the last run: the label that [WithRoute] gave, or the first 64 bytes of
	// http.Request.Pattern. It is not known during a replay.
	Route string
	// Started is when the last run claimed the key, by the clock of its process, and Trace is the
	// span that it belongs to, if a module that traces has told it.
	Started time.Time
	Trace   event.TraceContext
	// Runs are the last runs of the record, oldest first and at most 16. They are not known
	// during a replay.
	Runs []event.RunInfo
	// Decisions are the last decisions about held runs of the record, oldest first and at most 8: those of
	// [Guard.Resolve] and of [WithResolver]. They are not known during a replay.
	Decisions []event.DecisionInfo
	// Cause is why the key is held, in the words of an [event.Held], or empty if it is not or the record does not say: one
	// of an earlier version does not. It is [event.CauseLapsed] if the run has not said why: its process died, hung or lost
	// the store. Held is when the run said so, by the clock of its process, and Answered the status that it gave, which
	// does not tell what happened; they are zero if it has not said.
	Cause    event.Cause
	Held     time.Time
	Answered int
	// Steps are the sorted names of the steps that have a recorded result. InDoubt are those that
	// were begun under [AtMostOnce] and may have happened. Of a step without AtMostOnce, nobody knows that it was begun until
	// it is recorded. Unread are those that this process cannot read, because they are sealed under keys that it does not
	// have, or of a later version: each may be one of the others. None is known during a replay.
	Steps, InDoubt, Unread []string
	// Forgotten is set only if there is no record any more, because somebody has removed it: what it was. It has State, Route
	// and Attempt, Age as it was then, and Decisions, of which the last is the forgetting; its Outcome is 0. TTL is how much
	// longer that stays known. See [WithTombstones].
	Forgotten *RecordInfo

	owner  store.Owner
	intent intent.Intent
}

// Seen returns what a decision about the key carries; see [Guard.Resolve] and [Guard.Forget].
func (i RecordInfo) Seen() store.Seen {
	return store.Seen{Owner: i.owner, Attempt: i.Attempt, State: i.State}
}

// DeriveKey returns what the function [DeriveKey] returned in the run: the key under
// which to ask a downstream service what happened. It is empty if ID is. Then nobody knows under
// which key to ask, and a service that knows nothing of an empty key has said nothing.
func (i RecordInfo) DeriveKey(purpose string) string {
	if i.ID == "" {
		return ""
	}
	return i.intent.DeriveKey(purpose)
}

// infoOf returns what was found of a key, for programs.
func infoOf(f engine.Found) RecordInfo {
	rec := &f.Record
	last, held := note.Last(rec.Notes), note.HeldFor(rec)
	return RecordInfo{
		Route: rec.Label, Started: last.Started, Trace: last.Trace, Runs: note.Runs(rec), Decisions: note.Decisions(rec), Steps: f.Recorded, InDoubt: f.InDoubt, Unread: f.Unread,
		Key: Key(f.Key), Record: f.Key.Name(), State: rec.State, Attempt: rec.Attempt,
		Lease: rec.Lease, Age: rec.Age, TTL: rec.TTL, Status: rec.Status, Size: rec.Size, owner: rec.Owner, intent: f.Intent,
		ID: f.Intent.ID(), Cause: held.Cause, Held: held.At, Answered: held.Status,
	}
}

// A Decision says who settles or forgets a key by hand, and why. Both are in the event and in the
// log, and as far as [event.DecisionInfo] says in the record, unsealed, until it expires or is forgotten. They may
// be empty.
type Decision struct {
	// Actor is who decides: a person, a ticket or a program.
	Actor string
	// Reason is how it was found out, for whoever asks later.
	Reason string
}

// A Resolution settles a key whose outcome is unknown; see [Guard.Resolve] and
// [WithResolver].
type Resolution struct {
	// Outcome is what was found out, and so what the next requests get.
	//
	// [Final]: the answer below is the answer, for all further requests. Nothing runs any more: steps
	// that the run has not made are never made, and the [event.Resolved] says how far it came.
	//
	// [Resume]: the next request goes on as the next attempt. It finds the steps that are recorded, and
	// repeats the one in doubt, under the keys that [DeriveKey] has made. It is right where a repetition
	// does no harm, whatever has happened.
	//
	// [NotExecuted]: nothing has happened, and nothing that is on its way can arrive. The next request
	// runs as if it were the first, and its attempt is counted on. A recorded step says otherwise: then
	// it is [ErrStepsRecorded].
	//
	// [Unknown], from a resolver, leaves the key held.
	Outcome Outcome
	// NotDone are the names of steps that were begun under [AtMostOnce], and are known not to have
	// happened, nor to be on their way. Resume lets the next attempt begin them again. Without it, a
	// step in doubt is [ErrUncertain], because the next attempt must not repeat it. NotExecuted says
	// so of each such step.
	NotDone []string
	// Decision says who has found it out, and how. The Actor of a resolver is "resolver" unless
	// it says something else.
	Decision
	// Status, Header and Body are the answer of a Final resolution, and an error in any other. A zero
	// Status means 200.
	// For a key of [Do] or of package queue, Body is the value as its codec encodes it. With the default
	// codec, an empty Body is the zero value, and that of a message that has been handled. A field that
	// HTTP cannot send, such as one with a line break in its name or value, is an error.
	Status int
	Header http.Header
	Body   []byte
}

// forEngine returns the resolution with an answer that is made when the record is known.
func (res Resolution) forEngine(recording response.Settings) engine.Resolution {
	return engine.Resolution{
		Outcome: res.Outcome, Decision: engine.Decision(res.Decision), NotDone: res.NotDone,
		HasAnswer: res.Status != 0 || len(res.Header) > 0 || len(res.Body) > 0,
		Answer: func(fp Fingerprint) (*answer.Answer, error) {
			return response.ByHand(res.Status, res.Header, res.Body, fp[0] == digest.VersionJob, problem.Header, recording)
		},
	}
}
