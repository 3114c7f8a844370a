package source

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLinesOfCodeHaveMoreThanComments(t *testing.T) {
	for _, c := range []struct {
		src       string
		all, code int
	}{
		{"", 0, 0},
		{"package p\n", 1, 1},
		{"// Package p.\npackage p // here\n\n/* two\nlines */\n\nvar a = 1\n", 7, 2},
		{"package p\n\nvar text = `one\n\n// three\n`\n", 6, 5},
		{"package p\n\nvar a, b = `x\n`, `y\n` // z\n", 5, 4},
		{"package p\n\nfunc f() {\n\t/* why */ g()\n}\n", 5, 4},
		{"package p; var a = 1", 0, 1},
	} {
		if all, code := Lines([]byte(c.src)); all != c.all || code != c.code {
			t.Errorf("Lines(%q) = %d, %d, want %d, %d", c.src, all, code, c.all, c.code)
		}
	}
}

func TestLoadTakesWhatTheCompilerTakes(t *testing.T) {
	set, err := Load(t.Context(), ".", ".")
	require.NoError(t, err)
	if len(set.Packages) != 1 {
		t.Fatalf("%d packages, want this one", len(set.Packages))
	}
	p := set.Packages[0]
	if want := []string{"lines.go", "source.go"}; !reflect.DeepEqual(p.GoFiles, want) || len(p.Syntax) != len(want) {
		t.Errorf("the files are %q, want %q", p.GoFiles, want)
	}
	if p.Types.Scope().Lookup("Load") == nil || p.Types.Scope().Lookup("TestLoadTakesWhatTheCompilerTakes") != nil {
		t.Error("the types are not those without tests")
	}
	token, err := set.Import("go/token")
	if err != nil || token.Scope().Lookup("FileSet") == nil {
		t.Errorf("Import of go/token: %v", err)
	}
	if _, err := set.Import("net/http/cgi"); err == nil {
		t.Error("a package that nothing imports was found")
	}
}

func TestChainIsAShortestWay(t *testing.T) {
	set, err := Load(t.Context(), ".", ".")
	require.NoError(t, err)
	p := set.Packages[0]
	for to, want := range map[string]string{
		"go/token":     "go/token",
		"unicode/utf8": "bytes unicode/utf8",
		"net/http":     "",
	} {
		require.Equal(t, want, strings.Join(set.Chain(p, to), " "), to)
	}
}

func TestLoadRefusesWhatDoesNotCompile(t *testing.T) {
	for pattern, want := range map[string]string{
		"../knot/testdata/broken": "cannot use",
		"./nowhere":               "nowhere",
	} {
		if _, err := Load(t.Context(), ".", pattern); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Load of %s: %v, want an error with %q", pattern, err, want)
		}
	}
}
