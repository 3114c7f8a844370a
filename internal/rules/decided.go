package rules

import "example.com/idempotency/event"

// A Deciding is a set of facts about a decision on a held key, and about the steps of its record.
type Deciding uint64

// The facts about a decision, by column.
const (
	SaysFinal Deciding = 1 << iota
	SaysNotExecuted
	SaysNothing
	SaysResume

	GivesNoAnswer
	GivesAnswer

	NoResult   // of a step is recorded
	HasResults // which the next attempt finds

	DeniesNone
	DeniesResult // of a step: the decision says that it did not happen

	NoMark     // of a step that was begun at most once and has no result, but those that are said not to have happened
	MarkStands // such a step may have happened
	StepHidden // this process cannot read a step

	KeysStay    // that the run has derived, or nobody knows
	KeysChanged // the route derives others now
)

// Says returns the fact that a decision says o.
func Says(o event.Outcome) Deciding {
	if o < event.Final || o > event.Resume {
		return SaysNothing
	}
	return SaysFinal << (o - event.Final)
}

var (
	decision = column[Deciding]{"the decision", []named[Deciding]{{SaysFinal, "Final"}, {SaysNotExecuted, "NotExecuted"}, {SaysResume, "Resume"}, {SaysNothing, "another word"}}}
	handed   = column[Deciding]{"an answer", []named[Deciding]{{GivesNoAnswer, "is not given"}, {GivesAnswer, "is given"}}}
	results  = column[Deciding]{"results of steps", []named[Deciding]{{NoResult, "none"}, {HasResults, "recorded"}}}
	denial   = column[Deciding]{"it denies", []named[Deciding]{{DeniesNone, "none of them"}, {DeniesResult, "one of them"}}}
	marks    = column[Deciding]{"marks without a result", []named[Deciding]{{NoMark, "none, or said not to have happened"}, {MarkStands, "may have happened"}, {StepHidden, "not readable here"}}}
)

var derivation = column[Deciding]{"derived keys", []named[Deciding]{{KeysStay, "as they were, or not told"}, {KeysChanged, "others than the run had"}}}

// A Ruling says what is made of a held key.
type Ruling uint8

// The rulings. All but the first two change nothing.
const (
	RecordAnswer Ruling = iota // for all further requests
	LetRun                     // the next attempt, with all results and without the marks
	RefuseWord                 // that settles nothing
	RefuseHidden               // a step
	RefuseResult               // contradicts the decision
	RefuseMark                 // of a step that must not be repeated
	RefuseKeys                 // that other systems do not know
)

// Decided says what is made of a held key by a decision. The results of steps stay, whatever it is.
var Decided = newTable([]column[Deciding]{decision, handed, results, denial, marks, derivation}, []row[Deciding, Ruling]{
	{SaysNothing, RefuseWord, "it settles nothing"},
	{SaysFinal, RecordAnswer, "it is the answer, however far the run came"},
	{GivesAnswer, RefuseWord, "only Final records an answer"},
	{StepHidden, RefuseHidden, "it may be a mark or a result"},
	{DeniesResult, RefuseResult, "a step with a result has happened"},
	{SaysNotExecuted | HasResults, RefuseResult, "where a step has happened, something was done"},
	{SaysResume | KeysChanged, RefuseKeys, "the next attempt would repeat, under other keys, what the run may have done"},
	{SaysResume | MarkStands, RefuseMark, "the next attempt would repeat a step that must not be repeated"},
	{0, LetRun, "the next attempt finds what was done, and may do the rest"},
})
