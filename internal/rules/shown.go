package rules

import "example.com/idempotency/problem"

// A Reply is a set of facts about a run that was settled, and about its answer.
type Reply uint64

// The facts about an answer, by column.
const (
	IsSettled Reply = 1 << iota
	IsPending
	IsOvertaken
	IsSupplanted

	NothingSent
	PartSent // of the run's own answer, which cannot be taken back

	OwnAnswer
	HasCode // that the client gets in place of the answer

	IsDefinite
	IsUndone
	IsOpen
	IsHeld

	OutsideTransaction
	InTransaction

	RanOn
	StoppedSilent   // the run was told to stop, and answered nothing
	StoppedRefusing // the run was told to stop, and answered with an error

	Answered
	Silent // the empty 200 that net/http makes of silence
	Past   // the answer went past the guard

	// What the answer says of the effect.

	TellsNone      // nothing that is known to be false: success, a server error, or a definite answer
	Denies         // nothing was done
	DeniesButSteps // nothing was done, and the same request may come again; only a step speaks against it
	Promises       // another answer, later
	GuardRan       // from a guard behind: a run has ended, and no retry changes what is known of it
	GuardIdle      // from a guard behind: nothing was done
	GuardBusy      // from a guard behind: another run is in flight
	GuardOther     // from a guard behind: another refusal

	WithoutSteps
	WithSteps // begun or found

	KeepsPayload
	FreesPayload // the client may come back with another request
)

// Reply returns the fact that a verdict has this fate.
func (f Fate) Reply() Reply { return IsSettled << f }

// Reply returns the fact that this is left of a run.
func (l Left) Reply() Reply { return IsDefinite << l }

var (
	fateOfReply = column[Reply]{"the verdict is", []named[Reply]{{IsSettled, "settled"}, {IsPending, "pending"}, {IsOvertaken, "overtaken"}, {IsSupplanted, "supplanted"}}}
	sent        = column[Reply]{"sent so far", []named[Reply]{{NothingSent, "nothing"}, {PartSent, "a part of the answer"}}}
	instead     = column[Reply]{"in place of it", []named[Reply]{{OwnAnswer, "nothing"}, {HasCode, "a problem"}}}
	leftOfReply = column[Reply]{"left of the run", []named[Reply]{{IsDefinite, "an answer"}, {IsUndone, "nothing"}, {IsOpen, "perhaps an effect"}, {IsHeld, "a held key"}}}
	within      = column[Reply]{"transaction", []named[Reply]{{OutsideTransaction, "none"}, {InTransaction, "of the run"}}}
	stop        = column[Reply]{"told to stop", []named[Reply]{{RanOn, "no"}, {StoppedSilent, "and was silent"}, {StoppedRefusing, "and refused"}}}
	given       = column[Reply]{"the answer", []named[Reply]{{Answered, "was given"}, {Silent, "is silence"}, {Past, "went past the guard"}}}
	message     = column[Reply]{"it says", []named[Reply]{
		{TellsNone, "nothing untrue"},
		{Denies, "nothing was done"},
		{DeniesButSteps, "nothing was done, but for steps"},
		{Promises, "come back"},
		{GuardRan, "a guard behind: it ran"},
		{GuardIdle, "a guard behind: nothing was done"},
		{GuardBusy, "a guard behind: in flight"},
		{GuardOther, "a guard behind: other"},
	}}
	stepsOfReply = column[Reply]{"steps", []named[Reply]{{WithoutSteps, "none"}, {WithSteps, "begun"}}}
	frees        = column[Reply]{"the key", []named[Reply]{{KeepsPayload, "keeps its payload"}, {FreesPayload, "is free for another payload"}}}
)

// An Action is what happens to the answer of a run.
type Action uint8

// The actions.
const (
	Show    Action = iota // the run's own answer
	Mark                  // it with the code of a problem in its header
	Replace               // it by a problem
	Recall                // by what the record in the way says
	Stay                  // silent: somebody else may have answered, or be about to
)

// A Showing is an action, and the code of its problem. [OfRun] stands for the code that the run has
// in place of its answer.
type Showing struct {
	Action
	Code problem.Code
}

// OfRun is the code that the run itself has in place of its answer.
const OfRun problem.Code = "of the run"

// Client says what the client of a run sees.
var Client = newTable([]column[Reply]{sent, fateOfReply, instead, leftOfReply, within, stop, given, message, stepsOfReply, frees}, []row[Reply, Showing]{
	{PartSent, Showing{Action: Show}, "there are never two answers"},
	{IsOvertaken, Showing{Action: Recall}, "what is recorded counts, and nobody else would ever see this answer"},
	{HasCode, Showing{Replace, OfRun}, "the transaction has decided"},
	{InTransaction | IsUndone | StoppedSilent, Showing{Replace, problem.RolledBack}, "silence would look like an empty success"},
	{InTransaction | IsUndone | StoppedRefusing | Denies | DeniesButSteps | Promises | GuardIdle | GuardBusy, Showing{Replace, problem.RolledBack}, "the refusal is about the time, and the same request may succeed"},
	{StoppedSilent | IsHeld, Showing{Replace, problem.OutcomeUnknown}, "silence would look like an empty success"},
	{StoppedSilent | IsUndone | IsOpen, Showing{Replace, problem.NoAnswer}, "silence would look like an empty success"},
	{FreesPayload | IsPending | IsUndone, Showing{Replace, problem.StoreUnavailable}, "another request would meet the record of this one"},
	{Past, Showing{Action: Stay}, "the client has its answer"},
	{Silent | IsUndone | IsOpen | IsHeld, Showing{Action: Stay}, "somebody else may answer"},
	{IsDefinite | IsUndone, Showing{Action: Show}, "it is true"},
	{TellsNone | GuardRan, Showing{Action: Show}, "no retry changes what it says"},
	{IsHeld, Showing{Replace, problem.OutcomeUnknown}, "it denies an effect that may have happened, or invites a retry of what is held"},
	{DeniesButSteps, Showing{Mark, problem.NoAnswer}, "it asks for the same request again, and the next attempt finds the steps"},
	{Denies | GuardIdle, Showing{Replace, problem.NoAnswer}, "it denies an effect that may have happened"},
	{GuardOther | WithSteps, Showing{Replace, problem.NoAnswer}, "a step may have happened in front of the other guard"},
	{0, Showing{Action: Show}, "it denies nothing"},
})

// Overtook corrects the code of the record in the way of an overtaken run. Its client must not be told
// that this request was not run.
func Overtook(c problem.Code) problem.Code {
	switch c {
	case problem.StoreUnavailable, problem.TryLater, problem.KeyReused:
		return problem.InFlight
	default:
		return c
	}
}

// RefusalBehind returns the code of another guard's refusal, or "" if the answer is none. A success is none. A
// guard marks a redirect with a code if it has sent its head already; one that nobody knows is not its mark.
func RefusalBehind(status int, code string) problem.Code {
	if c := problem.Code(code); status >= 400 || status >= 307 && c.Known() {
		return c
	}
	return ""
}

// MessageOf returns what the refusal of a guard behind this one says, by its code.
func MessageOf(c problem.Code) Reply {
	switch {
	case c == problem.OutcomeUnknown, c == problem.ResponseNotKept, c == problem.AnswerUnreadable:
		return GuardRan
	case c.NotRun(), c.Undone():
		return GuardIdle
	case c == problem.InFlight:
		return GuardBusy
	default:
		return GuardOther
	}
}
