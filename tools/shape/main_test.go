package main

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// shop copies the repository that the tests look at, with other texts in place of some files'.
// It has no go.mod files where git sees it: these would be modules of this repository.
func shop(t *testing.T, changed map[string]string) (root string) {
	t.Helper()
	root = t.TempDir()
	require.NoError(t, os.CopyFS(root, os.DirFS("testdata/shop")))
	files := map[string]string{
		"go.mod": "module example.org/shop\n\ngo 1.26.0\n\n" +
			"require example.net/bench v0.0.0\n\nreplace example.net/bench => ./bench\n",
		"bench/go.mod": "module example.net/bench\n\ngo 1.26.0\n",
		".gitignore":   "ignored.go\n",
		".ci/run":      "",
		"ignored.go":   "package shop\n",
	}
	maps.Copy(files, changed)
	for name, text := range files {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	if out, err := exec.CommandContext(t.Context(), "git", "init", "-q", root).CombinedOutput(); err != nil {
		t.Fatalf("git init: %v\n%s", err, out)
	}
	return root
}

// edited returns a file of testdata/shop in which one text is replaced by another.
func edited(t *testing.T, file, old, text string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata/shop", file))
	require.NoError(t, err)
	if strings.Count(string(content), old) != 1 {
		t.Fatalf("%s has not one %q", file, old)
	}
	return strings.Replace(string(content), old, text, 1)
}

func TestShapeAsItShallBe(t *testing.T) {
	var out strings.Builder
	problems, err := run(t.Context(), shop(t, nil), &out, false)
	if err != nil || len(problems) > 0 {
		t.Errorf("problems %q, error %v", problems, err)
	}
	want := `measure  of                                     today  may be  shall be
knot     store                                  0      0       0
knot     clock, the most of ...                 0      1       1
knot     .                                      2      2       1
lines    shop_test.go, the most of ..._test.go  7      8       8
lines    store/store.go, the most of ...        8      12      12
lines    shop.go                                13     13      12
lines    order.go                               18     18      12
files    engine                                 1      2       2
files    .                                      3      3       -
code     .                                      16     16      -
longest  .                                      10     10      -
names    .                                      2      2       -
folders  .                                      6      6       -
product  .                                      25     25      -
tests    .                                      16     20      20
`
	if out.String() != want {
		t.Errorf("the table is\n%s\nwant\n%s", &out, want)
	}
}

// Each case breaks one rule, and only that one is reported.
func TestEachRuleFailsWhenItIsBroken(t *testing.T) {
	const limits, imports = "tools/shape/limits.txt", "tools/shape/imports.txt"
	for name, c := range map[string]struct {
		file, old, text string // the file is new if there is no old text
		want            string
	}{
		// What happens to the source.
		"a larger knot": {
			"shop.go", "all store.Store", "all, _ = store.Store{}, func(Order) {}",
			"knot of . is 3: more than 2 (tools/shape/limits.txt:3)",
		},
		"a longer file": {
			"price.go", "package shop\n", "package shop\n\n//\n//\n//\n//\n//\n//\n",
			"lines of price.go is 14: more than 12 (tools/shape/limits.txt:5)",
		},
		"a longer test": {
			"shop_test.go", "}\n", "\n\n}\n",
			"lines of shop_test.go is 9: more than 8 (tools/shape/limits.txt:4)",
		},
		"more tests": {
			"more_test.go", "", "package shop\n\nfunc more() {\n}\n",
			"tests of . is 28: more than 20 (tools/shape/limits.txt:16)",
		},
		"another file": {
			"other.go", "", "package shop\n",
			"code of . is 17: more than 16 (tools/shape/limits.txt:10)\n" +
				"files of . is 4: more than 3 (tools/shape/limits.txt:9)\n" +
				"product of . is 26: more than 25 (tools/shape/limits.txt:14)",
		},
		"another folder": {
			"docs/docs.md", "", "",
			"folders of . is 7: more than 6 (tools/shape/limits.txt:13)",
		},
		"a longer longest file": {
			"order.go", "\tall.Put", "\t_ = 0\n\tall.Put",
			"code of . is 17: more than 16 (tools/shape/limits.txt:10)\n" +
				"lines of order.go is 19: more than 18 (tools/shape/limits.txt:7)\n" +
				"longest of . is 11: more than 10 (tools/shape/limits.txt:11)\n" +
				"product of . is 26: more than 25 (tools/shape/limits.txt:14)",
		},
		"another name": {
			"price.go", "type Price int", "type Price int; const Free Price = 0",
			"names of . is 3: more than 2 (tools/shape/limits.txt:12)",
		},
		"an import": {
			"clock/clock.go", `import "time"`, `import ("time"; _ "example.org/shop/store")`,
			"clock/clock.go may not import store (tools/shape/imports.txt:5)",
		},
		"an import from outside": {
			"clock/clock.go", `import "time"`, `import ("time"; _ "example.net/bench")`,
			"clock/clock.go may not import example.net/bench (tools/shape/imports.txt:5)",
		},
		"an import on the way": {
			"clock/clock.go", `import "time"`, `import ("time"; _ "net/http")`,
			"engine may not reach net/http, and imports clock, which imports net/http (tools/shape/imports.txt:4)",
		},
		"an import of a file": {
			"price.go", "package shop", `package shop; import _ "example.org/shop/store"`,
			"price.go may not import store (tools/shape/imports.txt:3)",
		},
		"a package without a row": {
			"store/new/new.go", "", "package new\n",
			"product of . is 26: more than 25 (tools/shape/limits.txt:14)\n" +
				"tools/shape/imports.txt: no row is about store/new: add one",
		},
		"a dead link to a name": {
			"price.go", "[Price]", "[Cost]",
			"price.go:3: the doc link [Cost] leads nowhere",
		},
		"a dead link to a method": {
			"price.go", "an [Order]", "an [Order.Cancel]",
			"price.go:6: the doc link [Order.Cancel] leads nowhere",
		},
		"a dead link to a package": {
			"price.go", "an [Order]", "a [shops.Order]",
			"price.go:6: the doc link [shops.Order] leads nowhere",
		},
		"a dead link to a name of a package": {
			"shop.go", "[store.Store],", "[store.Shelf],",
			"shop.go:1: the doc link [example.org/shop/store.Shelf] leads nowhere",
		},
		"a dead link to a method of a package": {
			"shop.go", "[store.Store.Put]", "[store.Store.Get]",
			"shop.go:1: the doc link [example.org/shop/store.Store.Get] leads nowhere",
		},
		"a dead link to a type of a package": {
			"shop.go", "[store.Store.Put]", "[store.Shelf.Put]",
			"shop.go:1: the doc link [example.org/shop/store.Shelf.Put] leads nowhere",
		},
		"a dead link in a list": {
			"order.go", "[Price.String]", "[Price.Int]",
			"order.go:12: the doc link [Price.Int] leads nowhere",
		},
		"a dead link in a heading": {
			"order.go", "// Pay pays.\n//", "// # Prices and [Cost]\n//",
			"order.go:12: the doc link [Cost] leads nowhere",
		},
		"a dead link to a path": {
			"shop.go", "[expvar.Int]", "[example.org/shops.Shop]",
			"shop.go:1: the doc link [example.org/shops.Shop] leads nowhere",
		},
		// What happens to the rules.
		"a limit that is too high": {
			limits, "today files   .          3", "today files   .          4",
			"files of . is 3: lower the limit to 3 (tools/shape/limits.txt:9)",
		},
		"a line of today that is not needed": {
			limits, "kit kit", "kit kit\ntoday files engine 1",
			"files of engine is 1: within its limit of 2: remove the line (tools/shape/limits.txt:16)",
		},
		"a line of today about nothing": {
			limits, "kit kit", "kit kit\ntoday knot gone 9",
			"tools/shape/limits.txt:16: there is no knot of gone: remove the line",
		},
		"a kit that is gone": {
			limits, "kit kit", "kit kit\nkit gone",
			"tools/shape/limits.txt: there is no kit in gone: remove the line",
		},
		"a row about nothing": {
			imports, "clock:", "clock:\nold:",
			"tools/shape/imports.txt:6: there is no old: remove the row",
		},
		"a word that nobody needs": {
			imports, "clock:", "clock: store",
			"tools/shape/imports.txt:5: clock does not import store: remove that",
		},
	} {
		t.Run(name, func(t *testing.T) {
			text := c.text
			if c.old != "" {
				text = edited(t, c.file, c.old, c.text)
			}
			problems, err := run(t.Context(), shop(t, map[string]string{c.file: text}), new(strings.Builder), false)
			require.NoError(t, err)
			require.Equal(t, c.want, strings.Join(problems, "\n"))
		})
	}
}
