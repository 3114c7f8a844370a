package engine

import (
	"slices"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/answer"
	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/store"
)

// A Found is what was found of a key.
type Found struct {
	Key    intent.Key
	Record store.Record
	// Intent is that of the run. It is zero if the client's key is not known, or its keys were derived otherwise.
	Intent intent.Intent
	// Forgotten is what a record was that somebody has removed, if there is none, or there is another one now. Only LookInto tells.
	Forgotten *store.Record
	Steps
}

// Steps are those of a record, without those that are known not to have happened.
type Steps struct {
	// Recorded are the sorted names of those that have a result. InDoubt are those that have a mark and no
	// result, and Unread those that cannot be read here.
	Recorded, InDoubt, Unread []string

	marks  map[string][]byte // the stored values of those that have a mark
	hidden error             // why one cannot be read
}

// mayHave are those that may have happened without a result.
func (s Steps) mayHave() []string { return slices.Concat(s.InDoubt, s.Unread) }

// A Decision says who settles or forgets a key by hand, and why.
type Decision struct{ Actor, Reason string }

// A Resolution settles a key whose outcome is unknown.
type Resolution struct {
	Outcome event.Outcome
	Decision
	// NotDone are the names of steps that are known not to have happened.
	NotDone []string
	// HasAnswer says that an answer is given.
	HasAnswer bool
	// Answer returns the answer of a Final resolution, for a record with that fingerprint.
	Answer func(fp store.Fingerprint) (*answer.Answer, error)
}
