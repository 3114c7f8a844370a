package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParseTable(t *testing.T) {
	mutants, err := parseTable(`# A comment.
== Sums

mutant minus
guards Numbers
guards are added.
test   . ./sub
test   -tags x
run    Test
dies   TestA TestB/sub
dies   TestC
hangs  3s
file   a.go
- 	if a {
- 
- 		b()
+ 	if a {
file   b.go
- c + d
+

mutant two
guards More.
test .
file a.go
- x
+ -
`)
	require.NoError(t, err)
	m := mutants[0]
	if len(mutants) != 2 || m.group != "Sums" || m.name != "minus" || m.guards != "Numbers are added." || m.run != "Test" || m.hangs != 3*time.Second {
		t.Errorf("%d mutants, the first %+v", len(mutants), m)
	}
	if want := []string{".", "./sub", "-tags", "x"}; !slices.Equal(m.test, want) {
		t.Errorf("test: %q", m.test)
	}
	if want := []string{"TestA", "TestB/sub", "TestC"}; !slices.Equal(m.dies, want) {
		t.Errorf("dies: %q", m.dies)
	}
	if want := []edit{{"a.go", "\tif a {\n\n\t\tb()", "\tif a {"}, {"b.go", "c + d", ""}}; !slices.Equal(m.edits, want) {
		t.Errorf("edits: %q", m.edits)
	}
	if want := []edit{{"a.go", "x", "-"}}; !slices.Equal(mutants[1].edits, want) {
		t.Errorf("edits: %q", mutants[1].edits)
	}
}

func TestTableMistakes(t *testing.T) {
	const good = "mutant a\nguards It.\ntest .\nfile f\n- x\n+ y\n"
	for text, want := range map[string]string{
		"== G\nmutant A\nguards It.\ntest .\nfile f\n- x\n+ y\n": "line 2",
		"== G\n" + good + good:                 "line 8",
		"guards It.\n":                         `line 1: "guards" stands outside`,
		good:                                   "under no heading",
		"== G\n" + good + "colour red\n":       `line 8: "colour" is not expected`,
		"== G\n" + good + "- late\n":           `line 8: "-" is not expected`,
		"== G\n" + good + "hangs long\n":       "line 8: hangs needs a time",
		"== G\nmutant a\n+ y\n":                `line 3: "+" is not expected`,
		"== G\nmutant a\nguards It.\ntest .\n": "line 2: mutant a: it needs",
		"== G\nmutant a\nguards It.\ntest .\nfile f\n- x\n+ x\n": "line 2: mutant a: an edit needs",
		"== G\nmutant a\nguards It.\ntest .\nfile f\n+ x\n":      "line 2: mutant a: an edit needs",
	} {
		if _, err := parseTable(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestApply(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(root, "f"), []byte("one two two three"), 0o600))
	m := &mutant{edits: []edit{{"f", "one", "1"}, {"f", "three", "3"}}}
	if files, err := m.apply(root); err != nil || files["f"] != "1 two two 3" {
		t.Errorf("%q, %v", files, err)
	}
	for _, old := range []string{"two", "four"} {
		if _, err := (&mutant{edits: []edit{{"f", old, "x"}}}).apply(root); err == nil {
			t.Errorf("%q was replaced", old)
		}
	}
	if _, err := (&mutant{edits: []edit{{"gone", "x", "y"}}}).apply(root); err == nil {
		t.Error("a file that is not there was changed")
	}
}

func TestPattern(t *testing.T) {
	for _, tt := range []struct {
		m    mutant
		want string
	}{
		{mutant{}, "."},
		{mutant{dies: []string{"TestA"}}, "^TestA$"},
		{mutant{dies: []string{"TestA", "TestB/a.b_(c)", "TestMain"}}, `^TestA$|^TestB$/^a\.b_\(c\)$`},
		{mutant{dies: []string{"TestA"}, run: "TestA|TestB"}, "TestA|TestB"},
	} {
		require.Equal(t, tt.want, tt.m.pattern())
	}
}

// check finds whatever has drifted from the source, and write brings the document back.
func TestCheckAndWrite(t *testing.T) {
	const table = "== Sums\n" + minus + "dies TestAdd\n"
	doc := "Checked by `TestAdd`.\n" + tableBegin + "\n" + tableEnd + "\nThe end.\n"
	root := tree(t, map[string]string{tableFile: table, docFile: doc})
	mutants, err := readTable(root)
	require.NoError(t, err)
	if err := checkAll(root, mutants); err == nil || !strings.Contains(err.Error(), "not up to date") {
		t.Errorf("a document without its table: %v", err)
	}
	require.NoError(t, writeDoc(root, mutants))
	if err := checkAll(root, mutants); err != nil {
		t.Error(err)
	}
	written, err := os.ReadFile(filepath.Join(root, docFile))
	require.NoError(t, err)
	for _, want := range []string{"### Sums\n", "| Numbers are added. | `add.go` | `TestAdd` |\n", "\nThe end.\n"} {
		if !strings.Contains(string(written), want) {
			t.Errorf("%q is not in\n%s", want, written)
		}
	}

	for name, tt := range map[string]struct{ file, old, new, want string }{
		"the protection has gone":   {"add.go", "a + b", "b + a", "occurs 0 times"},
		"the test has gone":         {"add_test.go", "TestAdd", "TestSum", "there is no test TestAdd"},
		"the table has changed":     {tableFile, "added", "summed", "not up to date"},
		"a name in the document":    {docFile, "Checked by", "Checked by FuzzAdd and", docFile + ":1: there is no test FuzzAdd"},
		"no test is named":          {tableFile, "dies TestAdd\n", "", "names no test"},
		"the document has no place": {docFile, tableEnd, "", "no place"},
	} {
		t.Run(name, func(t *testing.T) {
			changed := tree(t, map[string]string{tableFile: table, docFile: string(written)})
			path := filepath.Join(changed, tt.file)
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(string(text), tt.old, tt.new)), 0o600))
			mutants, err := readTable(changed)
			require.NoError(t, err)
			if err := checkAll(changed, mutants); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}

func TestChoose(t *testing.T) {
	mutants := parse(t, minus+"dies TestAdd\n"+strings.Replace(minus, "mutant minus", "mutant other", 1))
	if got, err := choose(mutants, "^oth"); err != nil || len(got) != 1 || got[0].name != "other" {
		t.Error(got, err)
	}
	if _, err := choose(mutants, "none"); err == nil {
		t.Error("nothing was chosen, and nothing said")
	}
}
