package engine

import (
	"bytes"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/answer"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// A Verdict is what a run leaves in the store.
type Verdict struct {
	Outcome event.Outcome
	Hold    bool           // for an Unknown outcome: Hold rather than Release
	Release store.Release  // what else the store is told if the claim is given back
	answer  []byte         // for a Final outcome: the answer in its stored form
	buffer  *answer.Buffer // the memory of the answer, if it is used again
	status  int            // for a Final outcome: what is told of the answer without reading it
	Refusal bool           // for a Final outcome: the answer says that nothing was done
	// instead is what the client gets in place of the run's answer, because of cause.
	Instead problem.Code
	Cause   error
	// doubt is the verdict that counts if the transaction of the run was committed after all.
	doubt *Verdict
}

// Lasting reports whether the verdict says something that must not be forgotten.
func (v Verdict) Lasting() bool {
	return v.Outcome == event.Final || v.Outcome == event.Unknown && v.Hold
}

// isCommitted reports whether a record holds the answer of the transaction in doubt.
func (v *Verdict) isCommitted(rec store.Record) bool {
	return v.doubt != nil && rec.State == store.Completed && bytes.Equal(rec.Answer, v.doubt.answer)
}

// resolve returns the verdict on a run whose transaction was in doubt, once it was settled. As
// long as the store has not answered, the transaction may have been committed.
func (v Verdict) resolve(e Ending) Verdict {
	switch {
	case v.doubt == nil, e.Fate == Settled, e.Fate == Overtaken && e.Record().State != 0:
		v.doubt = nil
	case v.Lasting():
		v.Instead = problem.OutcomeUnknown
	default:
		v.Outcome, v.Instead = event.Unknown, problem.NoAnswer
	}
	return v
}

// An Ending is how a run was settled, as far as its client is concerned.
type Ending struct {
	Fate Fate
	// obstacle is the record that stands in the way of an overtaken run. It is nil if the store
	// could not tell.
	obstacle *store.Record
}

// Record returns what stands in the way, and the zero Record if the store could not tell.
func (e Ending) Record() store.Record {
	if e.obstacle == nil {
		return store.Record{}
	}
	return *e.obstacle
}

// A Fate is what became of a verdict.
type Fate uint8

// The fates of verdicts.
const (
	Settled    Fate = iota // the store has the verdict
	Pending                // settling goes on in the background
	Overtaken              // another run's answer is recorded, or another run is or may be in flight
	Supplanted             // another payload has the key: its record says nothing about this run
)
