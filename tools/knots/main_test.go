package main

import (
	"strings"
	"testing"
)

const fixtures = "../internal/knot/testdata/"

func TestKnotsPrintsHowFilesHangTogether(t *testing.T) {
	ring := `example.com/idempotency/tools/internal/knot/testdata/ring: files 4, code lines 18, arrows 4, knots 3

  code  uses  used by  knot  file
     8     1        1     1  body.go
     2     1        2     1  head.go
     2     1        0        rider.go
     6     1        1     1  tail.go
`
	edges := `
* body.go -> head.go (head)
* head.go -> tail.go (tail tailLength)
  rider.go -> head.go (head)
* tail.go -> body.go (body body.half body.size)
`
	knots := `
knot 1: 3 files, 16 code lines: body.go head.go tail.go
  middle: body.go (0 left), head.go (0 left), tail.go (0 left)
  cut body.go -> head.go (head): none left

`
	around := "example.com/idempotency/tools/internal/knot/testdata/around: files 2, code lines 6, arrows 1, knots none\n"
	first, _, _ := strings.Cut(ring, "\n")
	for _, c := range []struct {
		p    printer
		dirs []string
		want string
	}{
		{printer{}, []string{"ring"}, ring + knots},
		{printer{edges: true}, []string{"ring"}, ring + edges + knots},
		{printer{quiet: true}, []string{"ring", "around"}, around + first + "\n"},
	} {
		var out strings.Builder
		c.p.w = &out
		if err := c.p.run(t.Context(), fixtures, c.dirs, 3); err != nil {
			t.Error(err)
		}
		if out.String() != c.want {
			t.Errorf("knots of %s prints\n%s\nwant\n%s", c.dirs, &out, c.want)
		}
	}
}

func TestKnotsFails(t *testing.T) {
	for _, c := range []struct {
		dirs []string
		want string
	}{
		{[]string{"around", "ring"}, "testdata/ring: a knot of 3 files, more than 2"},
		{[]string{"broken"}, "cannot use"},
		{[]string{"nowhere"}, "nowhere"},
	} {
		p := printer{w: new(strings.Builder), quiet: true}
		if err := p.run(t.Context(), fixtures, c.dirs, 2); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("knots of %s: %v, want an error with %q", c.dirs, err, c.want)
		}
	}
}
