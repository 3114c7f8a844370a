package rules

import "example.com/idempotency/problem"

// A Met is a set of facts about the record that a request meets.
type Met uint64

// The facts about a record, by column.
const (
	NotKnown  Met = 1 << iota // the store could not tell
	Unsettled                 // a run is in flight, or has ended and left the key free
	HeldKey
	Completed

	Same          // request as the one that the key is bound to
	Differs       // from it
	NotComparable // another version of the library has made its fingerprint
)

var (
	state    = column[Met]{"the record", []named[Met]{{NotKnown, "is not known"}, {Unsettled, "has no answer yet"}, {HeldKey, "is held"}, {Completed, "has an answer"}}}
	identity = column[Met]{"its request", []named[Met]{{Same, "is the same"}, {Differs, "is another"}, {NotComparable, "cannot be compared"}}}
)

// Recorded says what a request gets from the record that it meets: the code of a refusal, or the recorded
// answer if that is empty.
var Recorded = newTable([]column[Met]{state, identity}, []row[Met, problem.Code]{
	{NotKnown, problem.InFlight, "somebody had the key when the store was asked"},
	{NotComparable, problem.StoreUnavailable, "a process that can compare them will answer"},
	{Differs, problem.KeyReused, "nothing of the record is told to another request"},
	{HeldKey, problem.OutcomeUnknown, "it does not run again"},
	{Unsettled, problem.InFlight, "its answer is to come"},
	{0, "", "the first answer is the answer"},
})
