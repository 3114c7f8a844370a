package rules

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/event"
	"example.com/idempotency/problem"
)

// The guarantee, as the tables have to keep it: an effect that may have happened is never denied, what is
// held is never repeated and nobody is asked to, what is recorded counts, and nobody gets two answers.

func TestJudge(t *testing.T) {
	check(t, Judge, func(f Run, j Judgement) string {
		said := !has(f, SaidNothing)
		switch {
		case has(f, Panicked) && j.Outcome != event.Unknown:
			return "a panic is no answer"
		case has(f, TxByItself) && j.Outcome == event.NotExecuted:
			return "it may be committed"
		case has(f, StepInDoubt) && !said && j.Outcome != event.Unknown:
			return "the step may have happened"
		case has(f, StepsBegun) && !said && has(f, StandardJudge) && j.Outcome == event.NotExecuted:
			return "a step may have happened, and a status knows nothing of it"
		case has(f, RefusedStopped) && !said && j.Outcome != event.Unknown:
			return "who was told to stop has not judged the request"
		case said && has(f, Returned) && j.Outcome != event.NotExecuted && j.Outcome != map[Run]event.Outcome{SaidFinal: event.Final, SaidNotExecuted: event.Unknown, SaidUnknown: event.Unknown}[f&(SaidFinal|SaidNotExecuted|SaidUnknown)]:
			return "the program has said something else"
		case j.Outcome == 0 && !has(f, Unasked):
			return "asked twice"
		case j.Outcome == event.Final && !has(f, SaidFinal|JudgedFinal):
			return "nobody has called it final"
		case j.ByStep && (j.Outcome != event.Unknown || !has(f, JudgedNotExecuted) || !has(f, StepsBegun) || has(f, TxByItself)):
			return "more than a step speaks against it"
		case !j.ByStep && has(f, Returned) && !said && has(f, NotStopped) && has(f, StepsBegun) && has(f, StandardJudge) && has(f, JudgedNotExecuted) && !has(f, TxByItself):
			return "only a step speaks against it"
		case has(f, Returned) && !said && has(f, NotStopped) && !has(f, StepInDoubt) && has(f, JudgedFinal) && j.Outcome != event.Final:
			return "a definite answer is not recorded"
		case has(f, Returned) && !said && has(f, NotStopped) && has(f, NoStep) && !has(f, TxByItself) && has(f, JudgedNotExecuted) && j.Outcome != event.NotExecuted:
			return "nothing speaks against the route's word"
		}
		if has(f, Unasked) && j.Outcome != 0 { // then it must not matter
			for _, o := range []Run{JudgedFinal, JudgedNotExecuted, JudgedUnknown} {
				if Judge.Of(f&^Unasked|o) != j {
					return "the route's function would have said otherwise"
				}
			}
		}
		return ""
	})
}

func TestUnknown(t *testing.T) {
	check(t, Unknown, func(f Run, l Left) string {
		undoes := has(f, rollsBack) && !has(f, SaidUnknown) && !has(f, StepInDoubt)
		switch {
		case l == Definite:
			return "there is no answer"
		case has(f, LastAttempt) && l != Held:
			return "another attempt"
		case l == Undone && (!undoes || !has(f, NoStep)):
			return "something may have happened"
		case undoes && has(f, MayRunAgain) && l == Held:
			return "nothing is left that another attempt would not find"
		case undoes && has(f, MayRunAgain) && has(f, NoStep) && l != Undone:
			return "nothing has happened"
		case l == Held && !has(f, LastAttempt|StepInDoubt|Holds|AnswerLost):
			return "the route repeats what may have happened"
		case !undoes && has(f, StepInDoubt|Holds|AnswerLost) && l != Held:
			return "what may have happened is repeated"
		}
		return ""
	})
}

func TestReleased(t *testing.T) {
	check(t, Released, func(f Run, r Release) string {
		switch {
		case has(f, StepsBegun|StepInDoubt) && r != Remember:
			return "steps are forgotten"
		case has(f, NoStep) && r == Remember:
			return "there is nothing to remember"
		case r == ForgetAll && !has(f, OtherPayload):
			return "the key is bound"
		case has(f, OtherPayload) && has(f, NoStep) && r != ForgetAll:
			return "the client's next request is refused for a run that did nothing"
		}
		return ""
	})
}

func TestTransaction(t *testing.T) {
	check(t, Transaction, func(f Run, e End) string {
		switch {
		case e.Ending == Commit && (!has(f, TxReady) || !has(f, JudgedFinal) || !has(f, Fits)):
			return "the program has not said so, or there is no answer to record"
		case e.Ending == Commit && e.Code != "":
			return "what is committed is shown"
		case e.Ending != Commit && !has(f, TxByItself) && has(f, ClaimsSuccess) && e.Code == "" && !has(f, TxGivenUp|TxNeverBegun):
			return "success is claimed of what is rolled back"
		case has(f, OverLimit) && e.Code == "":
			return "the answer is gone"
		case e.Code != "" && e.Code.Undone() == has(f, TxByItself):
			return "the code does not say what was undone"
		case e.Code.Undone() != (e.Cause != NoCause):
			return "code and cause do not agree"
		case (e.Cause == TooLarge) != (has(f, OverLimit) && !has(f, TxByItself)),
			(e.Cause == LeftOpen) != (has(f, TxOpen) && has(f, Fits) && has(f, ClaimsSuccess)),
			(e.Cause == Refused) != (has(f, TxRefused) && has(f, Fits) && has(f, ClaimsSuccess)),
			(e.Cause == NotDefinite) != (has(f, TxReady) && has(f, Fits) && has(f, ClaimsSuccess) && !has(f, JudgedFinal)):
			return "the program is told of another mistake"
		case (e.Code == problem.RolledBack) != (e.Cause == NotDefinite):
			return "another attempt helps, and the client is told otherwise, or the other way round"
		case has(f, TxReady) && has(f, JudgedFinal) && has(f, Fits) && e.Ending != Commit:
			return "the program has said so, and the answer is there"
		case has(f, TxGivenUp|TxNeverBegun|TxRefused) != (e.Ending == Over || e.Ending == Missed), has(f, TxByItself) != (e.Ending == LetGo):
			return "what has ended cannot be ended again"
		case (e.Ending == Missed) != (has(f, TxNeverBegun) && has(f, JudgedFinal) && has(f, ClaimsSuccess) && has(f, Fits)):
			return "success without a transaction is told, and nothing else is"
		case has(f, TxByItself|TxGivenUp|TxNeverBegun) && has(f, Fits) && e.Code != "":
			return "the handler knows what it answers"
		}
		return ""
	})
}

func TestSettle(t *testing.T) {
	check(t, Settle, func(f Settling, s Step) string {
		mine := has(f, MineFirst|MineAfter)
		lasting := has(f, Answer|Hold)
		switch {
		case has(f, OwnCommit|OfOther|OtherRuns|OtherOrNone) && (s.Move == Conclude || s.Move == Retreat || s.Move == Withdraw):
			return "the record is another's"
		case has(f, NotSeen) && has(f, Lost) && !lasting && s.Move != Look:
			return "another run may have come between"
		case s.Move == Look && !has(f, NotSeen):
			return "it has been looked at"
		case lasting && mine && s.Move != Conclude:
			return "what must not be forgotten is"
		case (s.Move == Wait) != (has(f, OtherRuns) && (lasting || has(f, MarksLost))):
			return "what must not be forgotten waits for its chance, and nothing else does"
		case has(f, OwnCommit) != (s == Step{Believe, Settled}):
			return "the record has the answer, and only then it is believed"
		case has(f, MineAfter|OtherRuns|OtherOrNone) && !lasting && s.Fate != Overtaken:
			return "another run counts"
		case has(f, MineAfter) && has(f, Refusal) && s.Move != Retreat:
			return "a refusal is recorded over what may have been done, or the claim is kept"
		case has(f, MineAfter) && has(f, Nothing) && s.Move != Withdraw:
			return "a run that did nothing changes what another has left"
		case (s.Move == Detain) != (has(f, MineFirst|MineAfter) && has(f, GiveBack) && has(f, MarksLost)):
			return "what must not be repeated is held if the record has forgotten it, and only then"
		case (has(f, MineFirst|MineAfter) && has(f, GiveBack) && has(f, MarksKept) || has(f, MineFirst) && has(f, Nothing)) && s.Move != Conclude:
			return "the claim is not given back"
		case has(f, OfOther) && s.Fate != Supplanted:
			return "the record says nothing of this run"
		case s.Fate == Overtaken && has(f, MineFirst) && has(f, CommitKnown):
			return "nobody came between"
		case has(f, CommitInDoubt) && has(f, MineFirst) && s.Fate != Overtaken:
			return "nobody knows whether it was committed"
		case has(f, NotSeen) && has(f, Ours) && s != Step{Conclude, Settled}:
			return "nobody else can have the claim"
		case has(f, NotSeen) && lasting && s != Step{Conclude, Settled}:
			return "the claim may be ours, and the call tells"
		case has(f, MineAfter) && lasting && s.Fate != Settled:
			return "nobody else has an answer"
		}
		return ""
	})
}

func TestStalled(t *testing.T) {
	check(t, Stalled, func(f Settling, s Step) string {
		switch {
		case s.Move == Conclude, s.Move == Retreat, s.Move == Believe:
			return "the store has just refused"
		case has(f, NoReply) && s.Move != Wait:
			return "a verdict is given up because the store is away"
		case s.Fate == Pending && (has(f, Disputed) || has(f, AlreadyOvertaken)):
			return "another answer may count"
		case has(f, NotOwner) && s.Fate == Settled && s.Move == Yield && (!has(f, Nothing|GiveBack) || !has(f, TriedBefore) || !has(f, Undisputed) || !has(f, CommitKnown) || !has(f, MarksKept)):
			return "nobody has seen the record"
		case has(f, NoReply) && has(f, Undisputed) && has(f, OnCourse) && s.Fate != Pending:
			return "the only answer is kept from the client"
		case has(f, NotOwner) && has(f, MineFirst|MineAfter) && s != Step{Yield, Overtaken}:
			return "somebody else has the claim, for sure"
		case has(f, NotOwner) && !has(f, MineFirst|MineAfter) && s.Move != Look && s != Step{Yield, Settled}:
			return "the record would tell"
		case has(f, NotOwner) && has(f, NotSeen) && has(f, Nothing|GiveBack) && has(f, CommitKnown) && has(f, TriedBefore) && has(f, Undisputed) && has(f, MarksKept) && s != Step{Yield, Settled}:
			return "a run is reported as overtaken that has given back its claim"
		}
		return ""
	})
}

func TestDoubtful(t *testing.T) {
	check(t, Doubtful, func(f Doubt, l Left) string {
		told := has(f, FateSettled) || has(f, FateOvertaken) && has(f, RecordSeen)
		switch {
		case l == Undone && !told:
			return "it may have been committed"
		case told && l != Undone:
			return "the record has told"
		case l == Held && !has(f, LeavesHeld), l == Held && has(f, FateSupplanted):
			return "nobody holds the key"
		case l == Open && has(f, LeavesHeld) && !has(f, FateSupplanted):
			return "a retry of what is held"
		}
		return ""
	})
}

func TestRecorded(t *testing.T) {
	check(t, Recorded, func(f Met, c problem.Code) string {
		known := !has(f, NotKnown)
		switch {
		case (c == "") != (has(f, Completed) && has(f, Same)):
			return "an answer is for the request that it was given to"
		case (c == problem.KeyReused) != (known && has(f, Differs)):
			return "a mismatch is told as such, and nothing else is"
		case (c == problem.OutcomeUnknown) != (has(f, HeldKey) && has(f, Same)):
			return "a held key is told as such to its own request, and to nobody else"
		case (c == problem.StoreUnavailable) != (known && has(f, NotComparable)):
			return "only what cannot be compared is left to another process"
		case c != "" && c.NotRun():
			return "it denies an earlier run"
		}
		return ""
	})
}

func TestDecided(t *testing.T) {
	check(t, Decided, func(f Deciding, r Ruling) string {
		switch {
		case has(f, SaysNothing), has(f, GivesAnswer) && !has(f, SaysFinal):
			if r != RefuseWord {
				return "it settles nothing, or an answer is dropped"
			}
		case has(f, SaysFinal):
			if r != RecordAnswer {
				return "the answer is known, and everybody goes on to be refused"
			}
		case r == RecordAnswer:
			return "nobody has called an answer final"
		case (r == RefuseHidden) != has(f, StepHidden):
			return "somebody decides about a step that nobody has read"
		case has(f, StepHidden):
		case r == LetRun && has(f, SaysNotExecuted) && has(f, HasResults):
			return "something was done, and somebody says that nothing was"
		case r == LetRun && has(f, DeniesResult):
			return "a step that has happened is denied"
		case r == LetRun && has(f, SaysResume) && has(f, KeysChanged):
			return "an effect is repeated under a key by which nobody recognises it"
		case r == RefuseKeys && (!has(f, KeysChanged) || has(f, SaysNotExecuted) || has(f, DeniesResult)):
			return "nothing is repeated under other keys"
		case r == LetRun && has(f, SaysResume) && has(f, MarkStands):
			return "a step that must not be repeated is"
		case r == RefuseMark && (!has(f, MarkStands) || has(f, SaysNotExecuted) || has(f, DeniesResult) || has(f, KeysChanged)):
			return "who says that nothing has happened says it of each step"
		case r == RefuseResult && !has(f, DeniesResult) && (!has(f, HasResults) || has(f, SaysResume)):
			return "the recorded steps are those that the next attempt is to find"
		case r == RefuseWord:
			return "the decision is clear"
		}
		return ""
	})
}

func TestDerived(t *testing.T) {
	check(t, Derived, func(f Keying, told bool) string {
		switch {
		case told && has(f, OnlyName):
			return "what is told is derived of nothing"
		case told && has(f, DerivedOtherwise):
			return "somebody asks under a key that the run has not had, and hears that nothing has happened"
		case !told && has(f, KeyKnown) && !has(f, DerivedOtherwise):
			return "nobody can ask what has happened"
		}
		return ""
	})
}

func TestSays(t *testing.T) {
	for o, want := range map[event.Outcome]Deciding{
		0: SaysNothing, event.Final: SaysFinal, event.NotExecuted: SaysNotExecuted, event.Unknown: SaysNothing, event.Resume: SaysResume,
		event.Resume + 1: SaysNothing,
	} {
		require.Equal(t, want, Says(o), o)
	}
}

func TestClient(t *testing.T) {
	check(t, Client, func(f Reply, s Showing) string {
		overtaken := has(f, IsOvertaken) && has(f, NothingSent)
		open, code := has(f, IsOpen|IsHeld), s.Code
		shown := s.Action == Show || s.Action == Mark
		switch {
		case has(f, PartSent) && s != Showing{Action: Show}:
			return "two answers"
		case has(f, PartSent):
			return ""
		case overtaken != (s.Action == Recall):
			return "what is recorded counts, and only that"
		case overtaken:
			return ""
		case has(f, HasCode) != (code == OfRun):
			return "the transaction has decided"
		case has(f, HasCode):
			return ""
		case s.Action == Show && open && has(f, Denies|DeniesButSteps|GuardIdle) && has(f, Answered):
			return "an effect that may have happened is denied"
		case s.Action == Mark && code.NotRun():
			return "the mark denies an effect"
		case s.Action == Mark && !has(f, DeniesButSteps):
			return "the answer denies an effect beside its mark"
		case shown && has(f, IsHeld) && has(f, Promises|DeniesButSteps|GuardBusy) && has(f, Answered):
			return "a retry of what is held"
		case has(f, IsHeld) && code.Retryable():
			return "a retry of what is held"
		case s.Action == Replace && code != problem.OutcomeUnknown && !code.Retryable():
			return "the client cannot come back"
		case s.Action == Replace && has(f, IsDefinite):
			return "a definite answer is kept from its client"
		case code.Undone() && (!has(f, InTransaction) || !has(f, IsUndone)):
			return "something may be left"
		case code == problem.OutcomeUnknown && !has(f, IsHeld):
			return "nobody holds the key"
		case code == problem.StoreUnavailable && (!has(f, IsUndone) || !has(f, IsPending) || !has(f, FreesPayload)):
			return "something may have happened, or the store has the verdict"
		case shown && has(f, StoppedSilent) && !has(f, IsDefinite):
			return "an empty success that nobody gave"
		case s.Action == Stay && has(f, Answered):
			return "a client without an answer"
		case has(f, InTransaction) && has(f, IsUndone) && code == problem.NoAnswer:
			return "it is known that nothing is left"
		case shown && has(f, InTransaction) && has(f, IsUndone) && has(f, StoppedRefusing) && has(f, Denies|GuardIdle|GuardBusy) && has(f, Answered):
			return "the client takes it for the last word"
		case shown && has(f, FreesPayload) && has(f, IsPending) && has(f, IsUndone):
			return "the client's next request meets the record of this one"
		case s.Action != Stay && has(f, RanOn) && has(f, KeepsPayload) && (has(f, Past) || has(f, Silent) && !has(f, IsDefinite)):
			return "somebody else answers"
		case s.Action != Show && has(f, RanOn) && has(f, KeepsPayload) && has(f, Answered) && (has(f, TellsNone|GuardRan) || has(f, IsDefinite|IsUndone)):
			return "nothing speaks against the answer"
		case s.Action != Show && has(f, RanOn) && has(f, KeepsPayload) && has(f, Answered) && has(f, IsOpen) && has(f, Promises|GuardBusy):
			return "it denies nothing"
		case s.Action == Show && has(f, RanOn) && has(f, Answered) && has(f, IsOpen) && has(f, GuardOther) && has(f, WithSteps):
			return "it tells of the other guard's run, and not of the step"
		case s.Action != Mark && has(f, RanOn) && has(f, KeepsPayload) && has(f, Answered) && has(f, IsOpen) && has(f, DeniesButSteps):
			return "the client does not learn when to come back"
		}
		return ""
	})
}

func TestOvertook(t *testing.T) {
	for _, c := range problem.Codes() {
		got := Overtook(c)
		require.NotEqual(t, problem.StoreUnavailable, got, "it would say that this request has done nothing")
		require.NotEqual(t, problem.KeyReused, got, "it would ask for a new key")
		if got != c {
			require.Equal(t, problem.InFlight, got)
		}
	}
}

func TestRefusalBehind(t *testing.T) {
	for _, c := range append(problem.Codes(), "of-somebody-else", "") {
		for status := 100; status <= 599; status++ {
			want := problem.Code("")
			if status >= 400 || status >= 307 && c.Known() {
				want = c
			}
			require.Equal(t, want, RefusalBehind(status, string(c)), "%d %s", status, c)
		}
	}
}

func TestMessageOf(t *testing.T) {
	for _, c := range problem.Codes() {
		m := MessageOf(c)
		require.Equal(t, c.NotRun() || c.Undone(), m == GuardIdle, c)
		require.Equal(t, c == problem.InFlight, m == GuardBusy, c)
		if m == GuardRan {
			require.False(t, c.Retryable(), c)
		}
	}
}

func TestTold(t *testing.T) {
	for _, code := range []problem.Code{problem.RolledBack, problem.CannotCommit} {
		require.Equal(t, code, Told(Undone, code))
		require.Equal(t, problem.NoAnswer, Told(Open, code))
		require.Equal(t, problem.OutcomeUnknown, Told(Held, code))
	}
}

func TestLeft(t *testing.T) {
	for l, want := range map[Left]event.Outcome{Definite: event.Final, Undone: event.NotExecuted, Open: event.Unknown, Held: event.Unknown} {
		require.Equal(t, want, l.Outcome())
		require.Equal(t, l == Definite || l == Held, l.Lasts())
		for _, f := range []Fate{Settled, Pending, Overtaken, Supplanted} {
			if l == Held && f == Supplanted {
				require.Equal(t, Open, l.After(f))
			} else {
				require.Equal(t, l, l.After(f))
			}
		}
	}
	require.Equal(t, []Reply{IsDefinite, IsUndone, IsOpen, IsHeld}, []Reply{Definite.Reply(), Undone.Reply(), Open.Reply(), Held.Reply()})
	require.Equal(t, []Reply{IsSettled, IsPending, IsOvertaken, IsSupplanted}, []Reply{Settled.Reply(), Pending.Reply(), Overtaken.Reply(), Supplanted.Reply()})
	require.Equal(t, []Doubt{LeavesUndone, LeavesOpen, LeavesHeld}, []Doubt{Undone.Doubt(), Open.Doubt(), Held.Doubt()})
	require.Equal(t, []Doubt{FateSettled, FatePending, FateOvertaken, FateSupplanted}, []Doubt{Settled.Doubt(), Pending.Doubt(), Overtaken.Doubt(), Supplanted.Doubt()})
}
