package rules

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"example.com/idempotency/internal/pagetest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/idempotency/event"
	"example.com/idempotency/problem"
)

var write = flag.Bool("write", false, "write docs/reference/rules.md")

const docs = "../../docs/reference/rules.md"

const head = `# The rules, as tables

For those who want to know exactly what a guard decides. At the end, you can look up each decision. Each table goes from the top to the bottom: the first row that fits decides. The guard decides by these
tables and by nothing else. A test tries each combination of facts against the guarantee, and each table
without each of its rows. Another one keeps this page: ` + "`go test ./internal/rules -run Docs -write`" + ` writes it.
`

func TestDocs(t *testing.T) {
	var b strings.Builder
	b.WriteString(head)
	section(&b, "What the end of a run means", "The outcome of a run whose code has returned or panicked.", Judge, func(j Judgement) string {
		switch {
		case j.Outcome == 0:
			return "ask the route's function"
		case j.ByStep:
			return outcomeName(j.Outcome) + ", only because of a step"
		}
		return outcomeName(j.Outcome)
	})
	section(&b, "What is left of a run whose outcome is Unknown", "What the next request with the key finds.", Unknown, func(l Left) string {
		return [...]string{Undone: "nothing: NotExecuted", Open: "Unknown; the next request runs", Held: "Unknown; the key is held"}[l]
	})
	section(&b, "What is remembered of a run without effect", "What the store keeps after NotExecuted.", Released, func(r Release) string {
		return [...]string{Remember: "the attempt, its steps and its payload", Forget: "the payload", ForgetAll: "nothing"}[r]
	})
	section(&b, "How a transaction ends", "What the guard does with the transaction of a run that was judged, and what the client gets. Where a step is left, a code that says all was undone becomes `no-answer`, or `outcome-unknown` if the key is held.", Transaction, func(e End) string {
		what := [...]string{Commit: "commit with the answer", RollBack: "roll back", LetGo: "nothing to end", Over: "nothing to end", Missed: "nothing to end; `not-joined` is reported"}[e.Ending]
		if e.Code != "" {
			what += fmt.Sprintf(", `%s`", e.Code)
		}
		return what
	})
	section(&b, "What is done for a verdict", "How a verdict gets into its record.", Settle, stepName)
	section(&b, "What is done when the store does not take a verdict", "After a call that was refused, or had no reply.", Stalled, stepName)
	section(&b, "What a commit in doubt leaves", "What is told of a run whose commit had no reply, once its record was looked at.", Doubtful, func(l Left) string {
		return [...]string{Undone: "what holds without the commit", Open: "`no-answer`", Held: "`outcome-unknown`"}[l]
	})
	section(&b, "What is made of a held key", "What `Guard.Resolve` and a resolver do. Recorded steps stay, whatever is decided. An answer that an HTTP client could not get is refused besides.", Decided, func(r Ruling) string {
		return [...]string{
			RecordAnswer: "record the answer", LetRun: "let the next attempt run, without the marks", RefuseWord: "an error",
			RefuseHidden: "`ErrCorrupt` or `ErrUnreadableHere`", RefuseResult: "`ErrStepsRecorded`", RefuseMark: "`ErrUncertain`",
			RefuseKeys: "`ErrOtherKeys`",
		}[r]
	})
	section(&b, "What is told of the keys that a run has derived", "Of `RecordInfo.ID` and `DeriveKey`, for the function of `WithResolver` too. `WithDerivation` says what they are derived of.", Derived, func(told bool) string {
		if told {
			return "they are told, and a resolver is asked"
		}
		return "they are empty, and no resolver is asked"
	})
	section(&b, "What a request gets from the record that it meets", "A request with a key that somebody has claimed. An overtaken run gets the same, with `in-flight` in place of `key-reused`, `store-unavailable` and `try-later`: its client is not told that it was not run.", Recorded, func(c problem.Code) string {
		if c == "" {
			return "the recorded answer"
		}
		return fmt.Sprintf("`%s`", c)
	})
	section(&b, "What the client of a run sees", "The last decision, once the run is settled.", Client, func(s Showing) string {
		switch s.Action {
		case Show:
			return "the answer"
		case Mark:
			return fmt.Sprintf("the answer, with `%s: %s`", problem.Header, s.Code)
		case Recall:
			return "what the record says"
		case Stay:
			return "nothing from the guard"
		}
		if s.Code == OfRun {
			return "that problem"
		}
		return fmt.Sprintf("`%s`", s.Code)
	})
	if *write {
		require.NoError(t, os.WriteFile(docs, []byte(b.String()), 0o600))
	}
	got := pagetest.File(t, docs)
	assert.Equal(t, string(got), b.String(), "docs/reference/rules.md does not have these tables: go test ./internal/rules -run Docs -write")
}

func section[F fact, R any](b *strings.Builder, title, what string, table *Table[F, R], name func(R) string) {
	fmt.Fprintf(b, "\n## %s\n\n%s\n\n| If | then | because |\n|---|---|---|\n", title, what)
	for _, r := range table.rows {
		fmt.Fprintf(b, "| %s | %s | %s |\n", table.describe(r.when), name(r.then), r.why)
	}
}

func outcomeName(o event.Outcome) string {
	return map[event.Outcome]string{event.Final: "Final", event.NotExecuted: "NotExecuted", event.Unknown: "Unknown"}[o]
}

func stepName(s Step) string {
	move := [...]string{
		Conclude: "make its call", Look: "claim again, and look at the record", Retreat: "give the claim back", Withdraw: "give the claim back, and leave the key as it was",
		Detain: "hold the key", Believe: "the commit counts", Yield: "leave the record as it is", Wait: "come back later",
	}[s.Move]
	return move + [...]string{Settled: "", Pending: "; the client gets its answer", Overtaken: "; overtaken", Supplanted: "; supplanted"}[s.Fate]
}
