package rules

import "example.com/idempotency/event"

// A Left is what is left of a run.
type Left uint8

// What may be left of a run.
const (
	Definite Left = iota // an answer
	Undone               // nothing: the run is known to have had no effect
	Open                 // the next attempt may find effects
	Held                 // nobody runs until somebody has settled the key
)

// Outcome returns the outcome of a run that leaves l.
func (l Left) Outcome() event.Outcome {
	switch l {
	case Definite:
		return event.Final
	case Undone:
		return event.NotExecuted
	default:
		return event.Unknown
	}
}

// Lasts reports whether what is left must not be forgotten.
func (l Left) Lasts() bool { return l == Definite || l == Held }

// Unknown says what is left of a run whose outcome is unknown.
var Unknown = newTable([]column[Run]{attempt, transaction, word, steps, recovery, lost}, []row[Run, Left]{
	{LastAttempt, Held, "no attempt may follow"},
	{rollsBack | SaidNothing | SaidFinal | SaidNotExecuted | NoStep, Undone, "all that the run did is rolled back"},
	{rollsBack | SaidNothing | SaidFinal | SaidNotExecuted | StepsBegun, Open, "only steps are left, and the next attempt finds them"},
	{StepInDoubt, Held, "the step may have happened, and the next attempt would repeat it"},
	{Holds, Held, "the route does not repeat what may have happened"},
	{AnswerLost, Held, "the run has happened"},
	{0, Open, "the route repeats what may have happened"},
})

// A Release says what is remembered of a run that is known to have had no effect.
type Release uint8

// What may be remembered of a run without effect.
const (
	Remember  Release = iota // its attempt, its steps and its payload
	Forget                   // all but the payload, for as long as a late claim may come
	ForgetAll                // the payload too
)

// Released says what is remembered of a run that is known to have had no effect.
var Released = newTable([]column[Run]{steps, payload}, []row[Run, Release]{
	{StepsBegun | StepInDoubt, Remember, "only the outcome says that the steps do not count"},
	{OtherPayload, ForgetAll, "the client may come back with another payload"},
	{0, Forget, "the key is as good as new"},
})
