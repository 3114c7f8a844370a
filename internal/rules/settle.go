package rules

// A Settling is a set of facts about a verdict that is to be settled, and about the record that it is for.
type Settling uint64

// The facts about a verdict and its record, by column.
const (
	Answer   Settling = 1 << iota // definite: it says what was done
	Refusal                       // definite: it says that nothing was done
	Hold                          // nobody may run
	Nothing                       // was done
	GiveBack                      // somebody may run, and find what was done

	CommitKnown
	CommitInDoubt // the transaction may have been committed with an answer

	// What the store has said of the claim.

	Ours
	Lost

	// The record.

	NotSeen
	MineFirst   // it was gone, or free, and is claimed again: nobody has run meanwhile
	MineAfter   // it is claimed again, and another run came between
	OwnCommit   // it has the answer of the transaction in doubt
	OfOther     // it is bound to another payload
	OtherRuns   // another run of this payload is in flight
	OtherOrNone // somebody has settled it, or the store could not tell

	// The steps of the run that must not be repeated and may have happened.

	MarksKept // none, or the record has them all
	MarksLost // the record that was claimed again has not all of them: the store has lost the one that had

	// What has become of the call for the verdict.

	NotOwner // the store says that somebody else has the claim
	NoReply  // the store could not be reached for as long as the client waits

	FirstTry
	TriedBefore // by a call for the verdict itself, whose reply was lost

	Undisputed
	Disputed // the lease may have lapsed, or the store may have lost the claim

	OnCourse
	AlreadyOvertaken
)

var (
	verdict = column[Settling]{"the verdict", []named[Settling]{{Answer, "an answer"}, {Refusal, "a refusal"}, {Hold, "hold"}, {Nothing, "nothing was done"}, {GiveBack, "give back"}}}
	commit  = column[Settling]{"the commit", []named[Settling]{{CommitKnown, "none, or known"}, {CommitInDoubt, "in doubt"}}}
	claim   = column[Settling]{"the claim", []named[Settling]{{Ours, "ours"}, {Lost, "lost"}}}
	record  = column[Settling]{"the record", []named[Settling]{
		{NotSeen, "not looked at"},
		{MineFirst, "claimed again, nobody came between"},
		{MineAfter, "claimed again, another run came between"},
		{OwnCommit, "completed by our commit"},
		{OfOther, "of another payload"},
		{OtherRuns, "another run in flight"},
		{OtherOrNone, "settled by another, or not known"},
	}}
	kept = column[Settling]{"steps under `AtMostOnce`", []named[Settling]{{MarksKept, "none, or in the record"}, {MarksLost, "not in the record any more"}}}
)

var (
	failure   = column[Settling]{"the store", []named[Settling]{{NotOwner, "says that another has the claim"}, {NoReply, "did not answer in time"}}}
	tries     = column[Settling]{"the call", []named[Settling]{{FirstTry, "is the first"}, {TriedBefore, "repeats one"}}}
	dispute   = column[Settling]{"the lease", []named[Settling]{{Undisputed, "lasts"}, {Disputed, "may have lapsed, or its claim may be lost"}}}
	overtaken = column[Settling]{"so far", []named[Settling]{{OnCourse, "not overtaken"}, {AlreadyOvertaken, "overtaken"}}}
)

// A Fate is what has become of a verdict, as far as its client is concerned.
type Fate uint8

// The fates of verdicts.
const (
	Settled    Fate = iota // the store has the verdict
	Pending                // settling goes on in the background
	Overtaken              // another run's answer is recorded, or another run is or may be in flight
	Supplanted             // another payload has the key: its record says nothing about this run
)

// After returns what is left of a run whose verdict has this fate. Where another payload has the key, there
// is nothing to hold.
func (l Left) After(f Fate) Left {
	if l == Held && f == Supplanted {
		return Open
	}
	return l
}

// A Move is the next thing to do for a verdict.
type Move uint8

// The moves.
const (
	Conclude Move = iota // make the call that the verdict stands for
	Look                 // claim again, and look at the record
	Retreat              // give the claim back in place of the verdict
	Withdraw             // give the claim back, and leave the key as it was found
	Detain               // hold the key in place of the verdict
	Believe              // the verdict in doubt is true
	Yield                // leave the record to the other run
	Wait                 // leave the client, and come back when the other run has ended
)

// A Step is a move, and the fate of the verdict once the store has taken it.
type Step struct {
	Move
	Fate
}

// Settle says what is done next for a verdict.
var Settle = newTable([]column[Settling]{verdict, commit, claim, record, kept}, []row[Settling, Step]{
	{Ours | NotSeen, Step{Conclude, Settled}, "nobody else can have the claim"},
	{Answer | Hold | NotSeen, Step{Conclude, Settled}, "the claim may be ours again, by a call whose reply was lost"},
	{NotSeen, Step{Look, Settled}, "another run may have done what this one did not do"},
	{OwnCommit, Step{Believe, Settled}, "rows and answer are committed"},
	{OfOther, Step{Yield, Supplanted}, "the record says nothing of this run, whose own answer stands"},
	{OtherRuns | Answer | Hold, Step{Wait, Overtaken}, "what must not be forgotten waits for its chance"},
	{OtherRuns | MarksLost, Step{Wait, Overtaken}, "the next run would repeat a step that must not be repeated"},
	{OtherRuns | OtherOrNone, Step{Yield, Overtaken}, "what is recorded counts"},
	{MineAfter | Refusal, Step{Retreat, Overtaken}, "the other run may have done what this one refused"},
	{MineAfter | Nothing, Step{Withdraw, Overtaken}, "nothing was done under the claim that was made again"},
	{MineAfter | Answer | Hold, Step{Conclude, Settled}, "the other run has left no answer, and this one says what was done"},
	{MineAfter | GiveBack | MarksLost, Step{Detain, Overtaken}, "the next run would repeat a step that must not be repeated"},
	{MineAfter, Step{Conclude, Overtaken}, "the other run may have done something"},
	{CommitInDoubt | GiveBack | MarksLost, Step{Detain, Overtaken}, "the next run would repeat a step that must not be repeated"},
	{CommitInDoubt, Step{Conclude, Overtaken}, "a record that is gone does not tell whether there was a commit"},
	{GiveBack | MarksLost, Step{Detain, Settled}, "the next run would repeat a step that must not be repeated"},
	{0, Step{Conclude, Settled}, "nobody has run meanwhile"},
})

// Stalled says what is done for a verdict that the store did not take.
var Stalled = newTable([]column[Settling]{failure, record, verdict, commit, tries, dispute, overtaken, kept}, []row[Settling, Step]{
	{NoReply | Undisputed | OnCourse, Step{Wait, Pending}, "only this answer tells of the effect"},
	{NoReply, Step{Wait, Overtaken}, "another run may have ended with another answer"},
	{MineFirst | MineAfter, Step{Yield, Overtaken}, "another run was faster"},
	{Nothing | GiveBack | CommitKnown | TriedBefore | Undisputed | MarksKept, Step{Yield, Settled}, "the first call was executed: nobody else can have got the claim in another way"},
	{0, Step{Look, Settled}, "the record tells what has become of the claim"},
})
