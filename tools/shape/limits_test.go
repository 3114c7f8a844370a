package main

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLimitsJudgeFigures(t *testing.T) {
	for name, c := range map[string]struct {
		limits string
		figure figure
		want   string // the problem, without the place
		lower  map[int]int
	}{
		"at its limit":                        {"limit knot ... 8", figure{"knot", "a", 8}, "", nil},
		"far below a limit":                   {"limit knot ... 8", figure{"knot", "a", 0}, "", nil},
		"over its limit":                      {"limit knot ... 8", figure{"knot", "a", 9}, "knot of a is 9: more than 8", nil},
		"the first limit decides":             {"limit knot a 6\nlimit knot ... 8", figure{"knot", "a", 7}, "knot of a is 7: more than 6", nil},
		"not that of others":                  {"limit knot a 6\nlimit knot ... 8", figure{"knot", "a/b", 7}, "", nil},
		"not that of another measure":         {"limit files a 6", figure{"knot", "a", 7}, "", nil},
		"as today":                            {"limit knot ... 8\ntoday knot a 12", figure{"knot", "a", 12}, "", nil},
		"more than today":                     {"limit knot ... 8\ntoday knot a 12", figure{"knot", "a", 13}, "knot of a is 13: more than 12", nil},
		"less than today":                     {"limit knot ... 8\ntoday knot a 12", figure{"knot", "a", 11}, "knot of a is 11: lower the limit to 11", map[int]int{2: 11}},
		"within the limit":                    {"limit knot ... 8\ntoday knot a 12", figure{"knot", "a", 8}, "knot of a is 8: within its limit of 8: remove the line", map[int]int{2: -1}},
		"gone":                                {"today knot a 12", figure{"knot", "b", 12}, "there is no knot of a: remove the line", map[int]int{1: -1}},
		"no limit":                            {"today files a 12", figure{"files", "a", 11}, "files of a is 11: lower the limit to 11", map[int]int{1: 11}},
		"one percent too high":                {"today code a 1010", figure{"code", "a", 1000}, "", nil},
		"more than one percent too high":      {"today code a 1011", figure{"code", "a", 1000}, "code of a is 1000: lower the limit to 1005", map[int]int{1: 1005}},
		"lines are not allowed to grow":       {"today lines a.go 1000", figure{"lines", "a.go", 1001}, "lines of a.go is 1001: more than 1000", nil},
		"numbers of things have no tolerance": {"today names a 1001", figure{"names", "a", 1000}, "names of a is 1000: lower the limit to 1000", map[int]int{1: 1000}},
	} {
		l, err := parseLimits(c.limits)
		require.NoError(t, err)
		v := l.judge([]figure{c.figure})
		if got := strings.Join(v.problems, "\n"); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: problem %q, want %q", name, got, c.want)
		}
		if !maps.Equal(v.lower, c.lower) {
			t.Errorf("%s: lower %v, want %v", name, v.lower, c.lower)
		}
	}
}

func TestLimitsAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"\n# knots\nlimit knot ... eight": "3: eight is not a number of things",
		"limit knot ... -1":               "1: -1 is not a number of things",
		"limit knots ... 8":               "1: knots is not a measure",
		"limit knot 8":                    "1: neither kit PATTERN, nor limit or today MEASURE OF N",
		"until knot ... 8":                "1: neither kit PATTERN, nor limit or today MEASURE OF N",
		"kit a b":                         "1: neither kit PATTERN, nor limit or today MEASURE OF N",
		"<<<<<<< HEAD":                    "1: neither kit PATTERN, nor limit or today MEASURE OF N",
		"today knot a 9\ntoday knot a 8":  "2: a second line for knot a",
	} {
		if _, err := parseLimits(text); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestLowerWritesWhatIsEnough(t *testing.T) {
	const file = "tools/shape/limits.txt"
	want, err := os.ReadFile(filepath.Join("testdata/shop", file))
	require.NoError(t, err)
	high := strings.NewReplacer(
		"today knot    .          2\n", "today knot    .          20\n",
		"today code    .          16\n", "today code    .          1600\ntoday code    gone          9\n",
		"today lines   shop.go    13\n", "today lines   shop.go    14\ntoday lines price.go 99\n",
	).Replace(string(want))
	root := shop(t, map[string]string{file: high})

	var out strings.Builder
	problems, err := run(t.Context(), root, &out, false)
	if err != nil || len(problems) != 5 {
		t.Fatalf("problems %q, error %v, want 5 problems", problems, err)
	}
	if got, _ := os.ReadFile(filepath.Join(root, file)); string(got) != high {
		t.Error("limits were written although nobody asked for that")
	}
	problems, err = run(t.Context(), root, &out, true)
	if err != nil || len(problems) != 0 {
		t.Errorf("problems %q, error %v", problems, err)
	}
	if got, _ := os.ReadFile(filepath.Join(root, file)); string(got) != string(want) {
		t.Errorf("-lower writes\n%s\nwant\n%s", got, want)
	}

	// A limit that is too low stays.
	low := strings.Replace(string(want), "today files   .          3", "today files   .          2", 1)
	root = shop(t, map[string]string{file: low})
	problems, err = run(t.Context(), root, &out, true)
	if want := []string{"files of . is 3: more than 2 (tools/shape/limits.txt:9)"}; err != nil || !reflect.DeepEqual(problems, want) {
		t.Errorf("problems %q, error %v, want %q", problems, err, want)
	}
	if got, _ := os.ReadFile(filepath.Join(root, file)); string(got) != low {
		t.Errorf("-lower writes\n%s\nwant\n%s", got, low)
	}
}
