package main

import (
	"fmt"
	"html"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/pagetest"
)

// The recording has so many columns, and each of its scenes at most so many lines. A character is 7.8 wide.
const (
	columns, rows   = 122, 28
	charW, lineH    = 7.8, 18
	typed, readable = 1.0, 0.45 // seconds until the output comes, and for each of its lines
)

// wrap cuts a line as a terminal does.
func wrap(line string) (all []string) {
	runes := []rune(line)
	for len(runes) > columns {
		all, runes = append(all, string(runes[:columns])), runes[columns:]
	}
	return append(all, string(runes))
}

// draw makes a picture that plays conversations, one after the other, as a terminal has shown them. Where pictures
// must not move it shows the second.
func draw(conversations ...string) string {
	type scene struct {
		command, output  []string
		from, shown, end float64
	}
	var scenes []scene
	var now float64
	for _, text := range conversations {
		command, output, _ := strings.Cut(strings.TrimSuffix(text, "\n"), "\n")
		s := scene{command: wrap(command), from: now, shown: now + typed}
		for line := range strings.SplitSeq(output, "\n") {
			s.output = append(s.output, wrap(line)...)
		}
		now = s.shown + 2 + readable*float64(len(s.output))
		s.end = now
		scenes = append(scenes, s)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %d" role="img" aria-labelledby="t">
<title id="t">A key is held: idem says what happened, and ada decides</title>
<style>
text { font: 13px ui-monospace, Menlo, Consolas, monospace; fill: #d5dae3; white-space: pre }
.c { fill: #7fd1a4 }
g g { opacity: 0; animation: %.1fs step-end infinite }
`, charW*columns+32, lineH*rows+32, now)
	for i, s := range scenes {
		for part, at := range []float64{s.from, s.shown} {
			name := fmt.Sprintf("%c%d", "co"[part], i)
			fmt.Fprintf(&b, "@keyframes %s { 0%% { opacity: 0 } %.2f%% { opacity: 1 } %.2f%% { opacity: 0 } }\n.%[1]s { animation-name: %[1]s }\n", name, at/now*100, s.end/now*100)
		}
	}
	b.WriteString("@media (prefers-reduced-motion) { g g { animation: none } .c1, .o1 { opacity: 1 } }\n</style>\n<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#171b23\"/>\n<g>\n")
	for i, s := range scenes {
		fmt.Fprintf(&b, "<g class=\"c%d\">\n%s</g>\n<g class=\"o%[1]d\">\n%[3]s</g>\n", i, lines(s.command, 0, ` class="c"`), lines(s.output, len(s.command), ""))
	}
	b.WriteString("</g>\n</svg>\n")
	return b.String()
}

func lines(all []string, from int, attributes string) string {
	var b strings.Builder
	for i, line := range all {
		if line != "" {
			fmt.Fprintf(&b, "<text x=\"16\" y=\"%d\"%s>%s</text>\n", 16+lineH*(from+i)+13, attributes, html.EscapeString(line))
		}
	}
	return b.String()
}

// The recording plays what the page shows, which TestPage runs.
func TestRecording(t *testing.T) {
	text, err := os.ReadFile("../../docs/how-to/command-line.md")
	require.NoError(t, err)
	var scenes []string
	for _, mark := range []string{"held", "why", "decide"} {
		scenes = append(scenes, pagetest.Block(t, string(text), mark))
	}
	for _, s := range scenes {
		n := 0
		for line := range strings.SplitSeq(s, "\n") {
			n += len(wrap(line))
		}
		require.LessOrEqual(t, n, rows)
	}
	requireGolden(t, "../../../docs/images/idem.svg", draw(scenes...))
}
