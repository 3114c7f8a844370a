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

func TestTheLastNotesAreKept(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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
		require.Equal(t, append(want[max(0, len(want)-MaxNotes+1):len(want):len(want)], "z"), more, "%q", list)
	}
}

func TestReadingNotesAllocatesNothing(t *testing.T) {
	list := Append(nil, Append(nil, nil, []byte("a")), []byte("b"))
	n := 0
	require.Zero(t, testing.AllocsPerRun(100, func() {
		for note := range All(list) {
			n += len(note) + len(Last(list)) + Len(list)
		}
	}))
	require.Positive(t, n)
}
