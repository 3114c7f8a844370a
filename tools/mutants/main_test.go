package main

import (
	"bytes"
	"context"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// tree writes a module whose tests watch over one function, and returns its root.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	all := map[string]string{
		"go.mod": "module example.org/tree\n\ngo 1.26.0\n",
		"add.go": "package tree\n\nfunc add(a, b int) int {\n\treturn a + b\n}\n\nfunc waits() bool { return false }\n",
		"add_test.go": `package tree

import "testing"

func TestAdd(t *testing.T) {
	if waits() {
		select {}
	}
	t.Run("one and one", func(t *testing.T) {
		if add(1, 1) != 2 {
			t.Fatal("one and one")
		}
	})
	t.Run("nothing", func(t *testing.T) {
		if add(0, 0) != 0 {
			t.Fatal("nothing")
		}
	})
}

func TestIdle(t *testing.T) {}

func TestSkipped(t *testing.T) { t.Skip("not here") }
`,
	}
	maps.Copy(all, files)
	for name, text := range all {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return root
}

func parse(t *testing.T, entries string) []*mutant {
	t.Helper()
	mutants, err := parseTable("== Sums\n\n" + entries)
	require.NoError(t, err)
	return mutants
}

// minus takes the sum out; what follows it says what dies.
const minus = `
mutant minus
guards Numbers are added.
test   .
file   add.go
- a + b
+ a - b
`

func TestVerdicts(t *testing.T) {
	for name, tt := range map[string]struct{ entry, want, err string }{
		"killed by the named subtest":   {minus + "dies TestAdd/one_and_one\n", "killed    minus", ""},
		"killed by the test as a whole": {minus + "dies TestAdd\n", "TestAdd/one_and_one", ""},
		"survives": {
			minus + "dies TestIdle\n", "SURVIVES  minus", "not killed",
		},
		"another test dies": {
			minus + "dies TestIdle\nrun .\n", "TestIdle; dead are TestAdd/one_and_one", "not killed",
		},
		"a subtest that does not see it": {
			minus + "dies TestAdd/nothing\nrun TestAdd\n", "SURVIVES", "not killed",
		},
		"nothing is named yet": {
			minus, "dies TestAdd/one_and_one", "not killed",
		},
		"does not compile": {
			strings.Replace(minus, "+ a - b", "+ a - c", 1) + "dies TestAdd\n", "broken    minus", "not killed",
		},
		"crashes": {
			strings.Replace(minus, "+ a - b", "+ a / (b - b)", 1) + "dies TestAdd/one_and_one\n", "killed", "",
		},
		"hangs": {
			strings.Replace(minus, "- a + b\n+ a - b", "- return false\n+ return true", 1) + "dies TestAdd\n", "hangs", "not killed",
		},
		"hangs as expected": {
			strings.Replace(minus, "- a + b\n+ a - b", "- return false\n+ return true", 1) + "dies TestAdd\nhangs 5s\n", "killed", "",
		},
		"the test is skipped":    {minus + "dies TestSkipped\n", "", `TestSkipped does not pass`},
		"the test is not there":  {minus + "dies TestGone\n", "", `TestGone does not pass`},
		"the package is missing": {strings.Replace(minus, "test   .", "test   ./gone", 1) + "dies TestAdd\n", "", "without any mutant"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			r := &runner{root: tree(t, nil), timeout: 15 * time.Second, out: &out}
			requireVerdict(t, r.run(t.Context(), parse(t, tt.entry)), &out, tt.want, tt.err)
		})
	}
}

func requireVerdict(t *testing.T, err error, out *bytes.Buffer, want, mistake string) {
	t.Helper()
	if !strings.Contains(out.String(), want) {
		t.Errorf("got:\n%s\nwant: %s", out, want)
	}
	switch {
	case mistake == "" && err != nil:
		t.Errorf("error %v\n%s", err, out)
	case mistake != "" && (err == nil || !strings.Contains(err.Error(), mistake)):
		t.Errorf("error %v, want %s", err, mistake)
	}
}

// The tree that the mutants are tried on must pass, or what dies proves nothing.
func TestTreeThatFailsAnyway(t *testing.T) {
	root := tree(t, map[string]string{"bad_test.go": "package tree\n\nimport \"testing\"\n\nfunc TestBad(t *testing.T) { t.Fatal(\"as always\") }\n"})
	var out bytes.Buffer
	r := &runner{root: root, timeout: time.Minute, out: &out}
	err := r.run(t.Context(), parse(t, minus+"dies TestBad\n"))
	requireVerdict(t, err, &out, "", "as always")
}

// What TestMain says after the tests is a death too, and no test's.
func TestRanTellsOfTestsThatWereNotRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "said")
	said := `{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestB/one"}
{"Action":"skip","Package":"p","Test":"TestC"}
`
	require.NoError(t, os.WriteFile(file, []byte(said), 0o600))
	for name, ok := range map[string]bool{"TestA": true, "TestB/one": true, "TestB": false, "TestC": true, "TestC/one": true, "TestD": false} {
		err := checkRan(file, []*mutant{{name: "m", dies: []string{name}}})
		if (err == nil) != ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMainThatFails(t *testing.T) {
	root := tree(t, map[string]string{"main_test.go": `package tree

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	m.Run()
	os.Exit(add(0, 7) - 7)
}
`})
	var out bytes.Buffer
	r := &runner{root: root, timeout: time.Minute, out: &out}
	entry := strings.Replace(minus, "+ a - b", "+ a + b + b/7", 1)
	requireVerdict(t, r.run(t.Context(), parse(t, entry+"dies TestMain\n")), &out, "killed    minus", "")
}

// Embedded files are part of the program as well, and the tree stays as it is.
func TestEmbeddedFile(t *testing.T) {
	files := map[string]string{
		"lua/a.lua": "return 1\n",
		"lua.go":    "package tree\n\nimport _ \"embed\"\n\n//go:embed lua/a.lua\nvar script string\n",
		"lua_test.go": "package tree\n\nimport \"testing\"\n\n" +
			"func TestScript(t *testing.T) {\n\tif script != \"return 1\\n\" {\n\t\tt.Fatal(script)\n\t}\n}\n",
	}
	root := tree(t, files)
	var out bytes.Buffer
	r := &runner{root: root, timeout: time.Minute, parallel: 2, out: &out}
	entries := "mutant lua\nguards It.\ntest .\ndies TestScript\nfile lua/a.lua\n- 1\n+ 2\n" + minus + "dies TestAdd\n"
	requireVerdict(t, r.run(t.Context(), parse(t, entries)), &out, "2 of 2 mutants killed", "")
	if text, err := os.ReadFile(filepath.Join(root, "lua/a.lua")); err != nil || string(text) != files["lua/a.lua"] {
		t.Fatal("the tree was changed", err)
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := &runner{root: tree(t, nil), timeout: time.Minute, out: new(bytes.Buffer)}
	if err := r.run(ctx, parse(t, minus+"dies TestAdd\n")); err == nil || !strings.Contains(err.Error(), context.Canceled.Error()) {
		t.Fatal(err)
	}
}
