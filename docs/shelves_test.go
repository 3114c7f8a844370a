package docs_test

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"example.com/idempotency/internal/pagetest"

	"github.com/stretchr/testify/require"
)

// This file holds the pages of docs to what makes them readable.

// generated are the pages that a program writes. They, and their cells, may be as long as they need to be.
var generated = []string{"reference/conformance.md", "reference/options.md", "reference/profiles.md", "reference/protections.md", "reference/rules.md"}

// shelfRules are what holds for each page: each says how often a page breaks a rule, or by how much.
var shelfRules = map[string]func(page, text string) int{
	"a page begins with whom it is for and what they have at the end": noOpening,
	"a cell of a table has at most 25 words":                          longCells,
	"tutorials and how-to pages name no tests":                        testNames,
	"a page has at most 250 lines, and a how-to page 80":              longPage,
}

func TestPagesKeepTheRulesOfTheShelves(t *testing.T) {
	for page, text := range shelfPages(t) {
		for name, excess := range shelfRules {
			if n := excess(page, text); n > 0 {
				t.Errorf("%s: %s, which is broken by %d", page, name, n)
			}
		}
	}
}

// Every page stands on a shelf, and the index has it under its title.
func TestEveryPageIsOnAShelf(t *testing.T) {
	index := read(t, "docs/README.md")
	for page := range shelfPages(t) {
		if page != "README.md" {
			require.Contains(t, []string{"tutorials", "how-to", "reference", "explanation"}, filepath.Dir(page))
			require.Contains(t, index, "\n- ["+title(t, page)+"]("+page+")\n")
		}
	}
}

func TestBrokenRulesOfTheShelvesAreSeen(t *testing.T) {
	long := strings.Repeat("word ", 26)
	require.Equal(t, 1, noOpening("how-to/a.md", "# A\n\nThis page is about A.\n"))
	require.Equal(t, 0, noOpening("how-to/a.md", "# A\n\nFor operators. At the end, A stands.\n"))
	require.Equal(t, 1, longCells("how-to/a.md", "| "+long+" | b |\n| c | d |\n"))
	require.Equal(t, 0, longCells("how-to/a.md", long+"\n| [a](b.md) | \\| |\n"))
	require.Equal(t, 2, testNames("how-to/a.md", "`TestA` and `FuzzB/c`, and Testing\n"))
	require.Equal(t, 0, testNames("explanation/a.md", "`TestA`\n"))
	require.Equal(t, 1, longPage("how-to/a.md", strings.Repeat("a\n", 81)))
	require.Equal(t, 0, longPage("explanation/a.md", strings.Repeat("a\n", 250)))
	require.Equal(t, 0, longPage(generated[0], strings.Repeat("a\n", 1000)))
}

// shelfPages returns the text of each page, by its name below docs.
func shelfPages(t *testing.T) map[string]string {
	t.Helper()
	pages := make(map[string]string)
	for _, pattern := range []string{"*.md", "*/*.md"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, page := range found {
			text := pagetest.File(t, page)
			pages[filepath.ToSlash(page)] = string(text)
		}
	}
	require.Greater(t, len(pages), 15)
	return pages
}

func noOpening(_, text string) int {
	_, text, _ = strings.Cut(text, "\n\n")
	opening, _, _ := strings.Cut(text, "\n\n")
	if strings.HasPrefix(opening, "For ") && strings.Contains(opening, "At the end") {
		return 0
	}
	return 1
}

var cellEnd = regexp.MustCompile(`(?:^|[^\\])\|`)

func longCells(page, text string) (n int) {
	if slices.Contains(generated, page) {
		return 0
	}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "|") {
			for _, cell := range cellEnd.Split(line, -1) {
				if len(strings.Fields(cell)) > 25 {
					n++
				}
			}
		}
	}
	return n
}

func testNames(page, text string) int {
	if shelf := filepath.Dir(page); shelf == "reference" || shelf == "explanation" {
		return 0
	}
	return len(regexp.MustCompile("`(?:Test|Fuzz|Benchmark)[A-Z]\\w*[`/]").FindAllString(text, -1))
}

func longPage(page, text string) int {
	lines, most := strings.Count(text, "\n"), 250
	switch {
	case slices.Contains(generated, page):
		return 0
	case filepath.Dir(page) == "how-to":
		most = 80
	}
	return max(0, lines-most)
}
