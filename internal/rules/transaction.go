package rules

import "example.com/idempotency/problem"

// An Ending is what is done with the transaction of a run.
type Ending uint8

// The endings of transactions.
const (
	Commit Ending = iota // with the answer
	RollBack
	LetGo  // it has ended past the guard, and may hold a connection
	Over   // it holds nothing any more
	Missed // there is none, and perhaps one past the guard
)

// A Cause is why the client of a run with a transaction does not get its answer.
type Cause uint8

// The causes.
const (
	NoCause Cause = iota
	TooLarge
	LeftOpen
	NotDefinite
	Refused
)

// An End says how the transaction of a run ends, and what its client gets in place of the answer.
type End struct {
	Ending
	Code problem.Code // empty for the answer
	Cause
}

var ending = column[Run]{"the transaction", []named[Run]{{TxOpen, "is open"}, {TxReady, "is ready"}, {TxGivenUp, "was given up"}, {TxByItself, "was ended by itself"}, {TxNeverBegun, "was never begun"}, {TxRefused, "was refused its commit"}}}

// Transaction says how the transaction of a run ends that was judged. Where a code says that all was
// undone, [Told] corrects it for steps.
var Transaction = newTable([]column[Run]{ending, outcome, limit, claims}, []row[Run, End]{
	{TxByItself | OverLimit, End{LetGo, problem.ResponseNotKept, NoCause}, "the answer is gone"},
	{TxByItself, End{Ending: LetGo}, "whatever was committed, the answer tells of it"},
	{TxReady | JudgedFinal | Fits, End{Ending: Commit}, "rows and answer are one commit"},
	{TxGivenUp | TxNeverBegun | TxRefused | OverLimit, End{Over, problem.CannotCommit, TooLarge}, "the answer is gone; that of another attempt would be as large"},
	{TxNeverBegun | JudgedFinal | ClaimsSuccess, End{Ending: Missed}, "the answer is believed, and what it tells of may be committed without the record"},
	{TxRefused | ClaimsSuccess, End{Over, problem.CannotCommit, Refused}, "the handler has wanted the commit, and has ignored that there was none"},
	{TxGivenUp | TxNeverBegun | TxRefused, End{Ending: Over}, "the handler knows that nothing was committed"},
	{OverLimit, End{RollBack, problem.CannotCommit, TooLarge}, "the answer is gone; that of another attempt would be as large"},
	{TxOpen | ClaimsSuccess, End{RollBack, problem.CannotCommit, LeftOpen}, "the handler has forgotten to commit"},
	{TxReady | ClaimsSuccess, End{RollBack, problem.RolledBack, NotDefinite}, "only a definite answer is committed"},
	{0, End{Ending: RollBack}, "the answer claims nothing that is rolled back"},
})

// Told returns what the client is told of a run that leaves l, where code says that all was undone.
func Told(l Left, code problem.Code) problem.Code {
	switch l {
	case Held:
		return problem.OutcomeUnknown
	case Open:
		return problem.NoAnswer
	default:
		return code
	}
}
