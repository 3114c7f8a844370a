package knot

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"example.com/idempotency/tools/internal/source"
	"github.com/stretchr/testify/require"
)

func draw(t *testing.T, dir string) *Graph {
	t.Helper()
	set, err := source.Load(t.Context(), ".", "./testdata/"+dir)
	require.NoError(t, err)
	return Draw(set, set.Packages[0])
}

func (g *Graph) arrows() (arrows []string) {
	for from := range g.Files {
		for _, to := range g.Uses(from) {
			arrows = append(arrows, fmt.Sprintf("%s > %s: %s", g.Files[from], g.Files[to], strings.Join(g.Names(from, to), " ")))
		}
	}
	return arrows
}

func TestArrowsHaveTheNamesThatTheyRideOn(t *testing.T) {
	for dir, want := range map[string][]string{
		// Instances of generic types count as what is declared, and locals do not count.
		"ring": {
			"body.go > head.go: head",
			"head.go > tail.go: tail tailLength",
			"rider.go > head.go: head",
			"tail.go > body.go: body body.half body.size",
		},
		// An interface knows nothing of those who implement it.
		"around": {"stop.go > caller.go: call"},
		// What is promoted counts for the struct that embeds, too.
		"promoted": {
			"reader.go > parts.go: engine.power engine.start",
			"reader.go > whole.go: car car.engine",
			"whole.go > parts.go: engine",
			"whole.go > reader.go: park",
		},
	} {
		require.Equal(t, want, draw(t, dir).arrows(), dir)
	}
}

// of makes a graph from arrows such as "ab", from file a to file b.
func of(arrows string) *Graph {
	g := &Graph{}
	number := map[byte]int{}
	node := func(name byte) int {
		if _, ok := number[name]; !ok {
			number[name] = len(g.Files)
			g.Files = append(g.Files, string(name))
			g.uses = append(g.uses, map[int]map[string]bool{})
		}
		return number[name]
	}
	for arrow := range strings.FieldsSeq(arrows) {
		from, to := node(arrow[0]), node(arrow[1])
		names := map[string]bool{}
		for i := range len(arrow) - 1 { // "abbb" rides on three names
			names[fmt.Sprint(i)] = true
		}
		g.uses[from][to] = names
	}
	return g
}

func (g *Graph) spell(knots [][]int) (words []string) {
	for _, knot := range knots {
		var word strings.Builder
		for _, file := range knot {
			word.WriteString(g.Files[file])
		}
		words = append(words, word.String())
	}
	return words
}

func TestKnotsAreTheFilesThatReachEachOther(t *testing.T) {
	for arrows, want := range map[string]string{
		"":                           "[]",
		"ab bc ac":                   "[]",
		"ab ba":                      "[ab]",
		"ab bc ca cd":                "[abc]",
		"ab ba bc cd de ec":          "[cde ab]",    // the largest first
		"ab bc cb ba":                "[abc]",       // two circles with a file in common
		"ab bc ca ad de ed":          "[abc de]",    // found before their users
		"ab ac bd cd da":             "[abcd]",      // two ways back
		"ab bc cd db ef fe fg gh hg": "[bcd ef gh]", // not connected; one that hangs on another
	} {
		g := of(arrows)
		require.Equal(t, want, fmt.Sprint(g.spell(g.Knots())), "%q", arrows)
	}
}

func TestCutsTakeTheArrowThatHelpsMostForItsNames(t *testing.T) {
	for _, c := range []struct {
		arrows string
		most   int
		want   string
	}{
		{"ab ba", 8, "[a>b []]"},
		{"abbbb bc ca", 8, "[b>c []]"},                  // one name instead of four
		{"ab bc ca ad da", 8, "[a>b [2] a>d []]"},       // the larger circle first
		{"ab bc ca ad da", 1, "[a>b [2]]"},              // no more than that
		{"abb bcc acc cd da", 8, "[c>d []]"},            // where all ways meet
		{"abab baba acac ca bcbc cbcb", 1, "[c>a [3]]"}, // none helps alone: the fewest names
	} {
		g := of(c.arrows)
		got := []string{}
		for _, cut := range g.Cuts(g.Knots()[0], c.most) {
			got = append(got, fmt.Sprintf("%s>%s %v", g.Files[cut.From], g.Files[cut.To], cut.Left))
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("the cuts of %q are %s, want %s", c.arrows, got, c.want)
		}
	}
}

func TestMiddlesHoldAKnotTogether(t *testing.T) {
	// Three circles that meet in a, and two in c.
	g := of("ab ba ac ca ad da ce ec")
	var got []string
	for _, m := range g.Middles(g.Knots()[0]) {
		got = append(got, fmt.Sprintf("%s %d", g.Files[m.File], m.Left))
	}
	if want := []string{"a 2", "c 3"}; !reflect.DeepEqual(got, want) {
		t.Errorf("the middles are %q, want %q", got, want)
	}
}
