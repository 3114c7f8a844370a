package history

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func texts(list []byte) (all []string) {
	for note := range All(list) {
		all = append(all, string(note))
	}
	return all
}

func decided(list []byte) (all []string) {
	for note := range Decisions(list) {
		all = append(all, string(note))
	}
	return all
}

// Neither decisions nor runs push the others out, in whatever order they come.
func TestTheLastDecisionsAreKeptBesideTheNotes(t *testing.T) {
	var list []byte
	var runs, decisions []string
	for n := range 5 * MaxNotes {
		note := strings.Repeat("x", n*n%300) + fmt.Sprint("note ", n)
		before, old := bytes.Clone(list), list
		if n%3 == 0 || n > 2*MaxNotes && n < 4*MaxNotes {
			list = AppendDecision(nil, list, []byte(note))
			decisions = append(decisions, note)
			decisions = decisions[max(0, len(decisions)-MaxDecisions):]
			require.Equal(t, note, string(LastDecision(list)))
		} else {
			list = Append(nil, list, []byte(note))
			runs = append(runs, note)
			runs = runs[max(0, len(runs)-MaxNotes):]
			require.Equal(t, note, string(Last(list)))
		}
		require.Equal(t, before, old, "what was handed out has changed")
		require.Equal(t, runs, texts(list))
		require.Equal(t, decisions, decided(list))
	}
	require.Equal(t, list, AppendDecision(nil, list, nil), "an empty note is none")
	require.Equal(t, list, Append(nil, list, nil), "an empty note is none")
	for range 2 {
		before := bytes.Clone(list)
		replaced := Replace(nil, list, []byte("held"))
		require.Equal(t, before, list, "what was handed out has changed")
		runs[len(runs)-1] = "held"
		require.Equal(t, runs, texts(replaced))
		require.Equal(t, decisions, decided(replaced))
		list = replaced
	}
	require.Equal(t, list, Replace(nil, list, nil), "an empty note is none")
	require.Empty(t, Replace(nil, nil, []byte("a")), "nothing is there to replace")
	require.Nil(t, LastDecision(Append(nil, nil, []byte("a"))))
	require.Empty(t, Decision(nil))
	require.Equal(t, []string{"b"}, decided(Join(nil, Decision([]byte("b")))))
}

// A version that knows of no decisions reads and appends as this did.
func TestAnEarlierVersionSeesTheRunsOnly(t *testing.T) {
	list := AppendDecision(nil, Append(nil, Append(nil, nil, []byte("a")), []byte("b")), []byte("by ada"))
	require.Equal(t, []string{"a", "b"}, texts(list))
	require.Equal(t, 2, Len(list))
	require.Equal(t, "b", string(Last(list)))
	require.Equal(t, "\x01a\x01b\x01c", string(appendTo(nil, list, []byte("c"), MaxNotes)), "and so leaves a list that can be read")
}

func TestTheLastNotesAreKept(t *testing.T) {
	var list []byte
	var want []string
	for n := range 2 * MaxNotes {
		note := fmt.Sprint("note ", n)
		before := bytes.Clone(list)
		old := list
		list = Append(nil, list, []byte(note))
		require.Equal(t, before, old, "what was handed out has changed")
		want = append(want, note)
		want = want[max(0, len(want)-MaxNotes):]
		require.Equal(t, want, texts(list))
		require.Equal(t, len(want), Len(list))
		require.Equal(t, note, string(Last(list)))
	}
	require.Equal(t, list, Append(nil, list, nil), "an empty note is none")
	long := strings.Repeat("x", 300)
	require.Equal(t, []string{"a", long}, texts(Append(nil, Append(nil, nil, []byte("a")), []byte(long))))
	require.Nil(t, Last(nil))
}

// Anybody may have written to a store. What cannot be read ends the list.
func TestForeignListsAreReadAsFarAsTheyGo(t *testing.T) {
	for list, want := range map[string][]string{
		"":              nil,
		"\x00":          nil,
		"\x01":          nil,
		"\x01a":         {"a"},
		"\x01a\x02b":    {"a"},
		"\x00\x01a\x00": {"a"},
		"\x01a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xffb":     {"a"},
		"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01 a long number": nil,
		strings.Repeat("\x01a", 20):                              slices.Repeat([]string{"a"}, 20),
	} {
		require.Equal(t, want, texts([]byte(list)), "%q", list)
		require.Equal(t, len(want), Len([]byte(list)), "%q", list)
		more := texts(Append(nil, []byte(list), []byte("z")))
		require.Empty(t, decided([]byte(list)), "%q", list)
		require.Equal(t, []string{"by ada"}, decided(AppendDecision(nil, []byte(list), []byte("by ada"))), "%q", list)
		require.Equal(t, want[max(0, len(want)-MaxNotes):], texts(AppendDecision(nil, []byte(list), []byte("by ada"))), "%q", list)
		require.Equal(t, append(want[max(0, len(want)-MaxNotes+1):len(want):len(want)], "z"), more, "%q", list)
	}
}

func TestReadingNotesAllocatesNothing(t *testing.T) {
	list := AppendDecision(nil, Append(nil, Append(nil, nil, []byte("a")), []byte("b")), []byte("c"))
	n := 0
	require.Zero(t, testing.AllocsPerRun(100, func() {
		for note := range All(list) {
			n += len(note) + len(Last(list)) + Len(list) + len(LastDecision(list))
		}
	}))
	require.Positive(t, n)
}
