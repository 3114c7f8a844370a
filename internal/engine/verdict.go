package engine

import (
	"bytes"

	"example.com/idempotency/internal/answer"
	"example.com/idempotency/internal/engine/note"
	"example.com/idempotency/internal/rules"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// A Verdict is what a run leaves in the store.
type Verdict struct {
	rules.Left
	Release store.Release  // what else the store is told if the claim is given back
	answer  []byte         // for a definite answer: its stored form
	buffer  *answer.Buffer // the memory of the answer, if it is used again
	status  int            // for a definite answer: what is told of it without reading it
	refusal bool           // for a definite answer: it says that nothing was done
	// Instead is what the client gets in place of the run's answer, because of Cause.
	Instead problem.Code
	Cause   error
	once    map[string][]byte // what is stored of the steps that must not be repeated and may have happened
	hold    note.Hold         // for a held key: why it is
	// doubt is the verdict that counts if the transaction of the run was committed after all.
	doubt *Verdict
}

// isCommitted reports whether a record holds the answer of the transaction in doubt.
func (v *Verdict) isCommitted(rec *store.Record) bool {
	return v.doubt != nil && rec.State == store.Completed && bytes.Equal(rec.Answer, v.doubt.answer)
}

// resolve returns the verdict on a run whose transaction was in doubt, once it was settled.
func (v Verdict) resolve(e Ending) Verdict {
	seen := rules.If(e.Record().State != 0, rules.RecordSeen, rules.RecordUnknown)
	switch rules.Doubtful.Of(seen | e.Fate.Doubt() | v.Doubt()) {
	case rules.Undone:
		v.doubt = nil
	case rules.Held:
		v.Instead = problem.OutcomeUnknown
	default:
		v.Left, v.Instead = rules.Open, problem.NoAnswer
	}
	return v
}

// An Ending is how a run was settled, as far as its client is concerned.
type Ending struct {
	Fate rules.Fate
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
