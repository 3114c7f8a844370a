package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestImportRulesAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"a: b\nc d":         "2: neither PACKAGES: IMPORTS, nor GROUP = PATTERNS, nor == planned",
		"== to come":        "1: neither PACKAGES: IMPORTS, nor GROUP = PATTERNS, nor == planned",
		"a: $b\nb = c":      "1: there is no group b above",
		"a =":               "1: neither PACKAGES: IMPORTS, nor GROUP = PATTERNS, nor == planned",
		">>>>>>> measure\n": "1: neither PACKAGES: IMPORTS, nor GROUP = PATTERNS, nor == planned",
	} {
		if _, err := parseImports(text); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestRowsDecideOnImports(t *testing.T) {
	const rows = `
small = tiny/... little
a b: c $small
a: d
a/...:
store_*.go: example.net/redis/v9

== planned

a: e
z: f
`
	for _, c := range []struct {
		dir, file, name string
		want            bool
	}{
		{"a", "a/a.go", "c", true},
		{"b", "b/b.go", "c", true},
		{"a", "a/a.go", "little", true},
		{"a", "a/a.go", "tiny", true},
		{"a", "a/a.go", "tiny/one/two", true},
		{"a", "a/a.go", "c/c", false},
		{"a", "a/a.go", "d", false}, // the first row decides
		{"a", "a/a.go", "e", true},  // beside those planned
		{"b", "b/b.go", "e", false},
		{"a/b", "a/b/b.go", "c", false},
		{"z", "z/z.go", "f", true},
		{"y", "y/y.go", "f", false},
		{".", "store_redis.go", "example.net/redis/v9", true},
		{".", "store_redis.go", "example.net/redis/v9/extra", false},
		{".", "storage.go", "example.net/redis/v9", false},
		{"a", "a/store_redis.go", "example.net/redis/v9", false},
	} {
		rules, err := parseImports(rows)
		require.NoError(t, err)
		require.Equal(t, c.want, allow(rules.decide(c.dir, c.file), c.name), "%s imports %s", c.file, c.name)
	}
}

func TestPatternsAreThoseOfTheGoCommand(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{".", ".", true},
		{".", "a", false},
		{"...", ".", true},
		{"...", "a/b", true},
		{"a", "a/b", false},
		{"a/...", "a", true},
		{"a/...", "a/b/c", true},
		{"a/...", "ab", false},
		{"a/*", "a/b", true},
		{"a/*", "a", false},
		{"a/*", "a/b/c", false},
		{"...test", "a/btest", true},
		{"...test", "tester", false},
		{"*.*/...", "example.net/a", true},
		{"*.*/...", "a/b.c", false},
		{"a.go", "abgo", false},
	} {
		require.Equal(t, c.want, newPattern(c.pattern).matches(c.name), "%s matches %s", c.pattern, c.name)
	}
}
