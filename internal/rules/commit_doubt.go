package rules

// A Doubt is a set of facts about a run whose commit was in doubt, after it was settled.
type Doubt uint64

// The facts about a commit in doubt, by column.
const (
	FateSettled Doubt = 1 << iota
	FatePending
	FateOvertaken
	FateSupplanted

	RecordSeen
	RecordUnknown

	LeavesUndone
	LeavesOpen
	LeavesHeld
)

// Doubt returns the fact that a verdict has this fate.
func (f Fate) Doubt() Doubt { return FateSettled << f }

// Doubt returns the fact that this is left without the commit. An answer is not.
func (l Left) Doubt() Doubt { return LeavesUndone << (l - Undone) }

var (
	fateOfDoubt = column[Doubt]{"the verdict is", []named[Doubt]{{FateSettled, "settled"}, {FatePending, "pending"}, {FateOvertaken, "overtaken"}, {FateSupplanted, "supplanted"}}}
	seen        = column[Doubt]{"the record", []named[Doubt]{{RecordSeen, "was seen"}, {RecordUnknown, "is not known"}}}
	leaves      = column[Doubt]{"without the commit", []named[Doubt]{{LeavesUndone, "nothing is left"}, {LeavesOpen, "steps are left"}, {LeavesHeld, "the key is held"}}}
)

// Doubtful says whether the client of a run whose commit was in doubt is told what holds without it
// (Undone), that there is no answer (Open), or that the outcome is unknown (Held).
var Doubtful = newTable([]column[Doubt]{fateOfDoubt, seen, leaves}, []row[Doubt, Left]{
	{FateSupplanted, Open, "it may have been committed, and there is nothing to hold"},
	{FateSettled, Undone, "the record has told: there was no commit"},
	{FateOvertaken | RecordSeen, Undone, "the record of the other run is what counts"},
	{LeavesHeld, Held, "it may have been committed, and nobody runs again"},
	{0, Open, "it may have been committed"},
})
