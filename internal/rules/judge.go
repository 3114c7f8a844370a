package rules

import "example.com/idempotency/event"

// A Run is a set of facts about a run whose code has returned, or has panicked.
type Run uint64

// The facts about a run, by column.
const (
	Returned Run = 1 << iota
	Panicked     // or ended its goroutine

	// What the program has said of the outcome itself.

	SaidNothing
	SaidFinal
	SaidNotExecuted
	SaidUnknown

	NoStep
	StepsBegun  // by this attempt, or recorded by an earlier one
	StepInDoubt // that an earlier attempt has begun, and that may have happened

	// A refusal by a run that was told to stop says nothing of the request: its lease was lost, its
	// time was over, or its client was gone.

	NotStopped
	RefusedStopped

	// What the route's function has made of the answer.

	Unasked
	JudgedFinal
	JudgedNotExecuted
	JudgedUnknown

	StandardJudge // judges by status, and knows nothing of steps
	OwnJudge      // was chosen by the program

	NoTransaction
	TxOpen     // the handler has said nothing
	TxReady    // it is to be committed with the answer
	TxGivenUp  // it was rolled back
	TxByItself // it was ended without the record, and may be committed
	TxNeverBegun
	TxRefused // the program wanted a commit, and it was rolled back

	MayRunAgain
	LastAttempt

	Reruns
	Holds

	NothingLost
	AnswerLost // it was definite, and cannot be recorded

	Fits
	OverLimit // the answer was kept back for the transaction, and is gone

	ClaimsSuccess
	ClaimsFailure

	SamePayload
	OtherPayload // may come next with the key: the route rebinds, or the client was sent elsewhere
)

// rollsBack are the transactions of which nothing is left unless the answer is recorded.
const rollsBack = TxOpen | TxReady | TxGivenUp | TxNeverBegun | TxRefused

var (
	end         = column[Run]{"the code", []named[Run]{{Returned, "returned"}, {Panicked, "panicked"}}}
	word        = column[Run]{"the program said", []named[Run]{{SaidNothing, "nothing"}, {SaidFinal, "Final"}, {SaidNotExecuted, "NotExecuted"}, {SaidUnknown, "Unknown"}}}
	steps       = column[Run]{"steps", []named[Run]{{NoStep, "none"}, {StepsBegun, "begun"}, {StepInDoubt, "one in doubt"}}}
	stopped     = column[Run]{"the refusal", []named[Run]{{NotStopped, "counts"}, {RefusedStopped, "came when told to stop"}}}
	opinion     = column[Run]{"the answer was judged", []named[Run]{{Unasked, "not yet"}, {JudgedFinal, "Final"}, {JudgedNotExecuted, "NotExecuted"}, {JudgedUnknown, "Unknown"}}}
	outcome     = column[Run]{"the outcome", []named[Run]{{JudgedFinal, "Final"}, {JudgedNotExecuted, "NotExecuted"}, {JudgedUnknown, "Unknown"}}}
	judgedBy    = column[Run]{"by", []named[Run]{{StandardJudge, "DefaultOutcome"}, {OwnJudge, "WithOutcome"}}}
	transaction = column[Run]{"transaction", []named[Run]{{NoTransaction, "none"}, {TxOpen, "open"}, {TxReady, "ready"}, {TxGivenUp, "given up"}, {TxByItself, "ended by itself"}, {TxNeverBegun, "never begun"}, {TxRefused, "refused"}}}
	attempt     = column[Run]{"attempt", []named[Run]{{MayRunAgain, "not the last"}, {LastAttempt, "the last"}}}
	recovery    = column[Run]{"recovery", []named[Run]{{Reruns, "Rerun"}, {Holds, "Hold"}}}
	lost        = column[Run]{"a definite answer", []named[Run]{{NothingLost, "was not lost"}, {AnswerLost, "was lost"}}}
	limit       = column[Run]{"the answer's size", []named[Run]{{Fits, "fits"}, {OverLimit, "is over the limit"}}}
	claims      = column[Run]{"the answer claims", []named[Run]{{ClaimsSuccess, "success"}, {ClaimsFailure, "failure"}}}
	payload     = column[Run]{"another payload", []named[Run]{{SamePayload, "may not use the key"}, {OtherPayload, "may use the key"}}}
)

// A Judgement says what the end of a run means.
type Judgement struct {
	Outcome event.Outcome // 0 if the route's function has to be asked
	ByStep  bool          // only a step speaks against the answer, which says that nothing was done
}

// Judge says what the end of a run means.
var Judge = newTable([]column[Run]{end, word, steps, stopped, opinion, judgedBy, transaction}, []row[Run, Judgement]{
	{Panicked, Judgement{Outcome: event.Unknown}, "a panic does not tell what was done before it"},
	{SaidNotExecuted | TxByItself, Judgement{Outcome: event.Unknown}, "what is committed has been executed, whatever the program says"},
	{SaidFinal, Judgement{Outcome: event.Final}, "the program's own word comes first"},
	{SaidNotExecuted, Judgement{Outcome: event.NotExecuted}, "the program's own word comes first"},
	{SaidUnknown, Judgement{Outcome: event.Unknown}, "the program's own word comes first"},
	{StepInDoubt, Judgement{Outcome: event.Unknown}, "the step may have happened"},
	{RefusedStopped, Judgement{Outcome: event.Unknown}, "the refusal is about the time, and not about the request"},
	{Unasked, Judgement{}, "the answer decides"},
	{JudgedNotExecuted | TxByItself, Judgement{Outcome: event.Unknown}, "what is committed has been executed"},
	{JudgedNotExecuted | StepsBegun | StandardJudge, Judgement{Outcome: event.Unknown, ByStep: true}, "a step says otherwise than the status"},
	{JudgedNotExecuted, Judgement{Outcome: event.NotExecuted}, "as it was judged"},
	{JudgedFinal, Judgement{Outcome: event.Final}, "as it was judged"},
	{0, Judgement{Outcome: event.Unknown}, "as it was judged"},
})
