// Package docs_test compares the documentation with the code and with itself. Pages that
// promise something about one package are compared by that package's tests.
package docs_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/idempotency/internal/pagetest"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/store"
	"example.com/idempotency/webhook"
)

// root is the directory of the module.
const root = ".."

func TestProductionShowsTheQuickStart(t *testing.T) {
	page, program := read(t, "docs/tutorials/production.md"), read(t, "examples/quickstart/main.go")
	_, start, ok := strings.Cut(program, "\nfunc main() {")
	require.True(t, ok)
	require.Contains(t, page, "```go\nfunc main() {"+start+"```")
	test := between(t, read(t, "examples/quickstart/main_test.go"), "\nfunc TestRetryOfACharge(", "\n}\n")
	require.Contains(t, read(t, "docs/how-to/testing.md"), "```go\nfunc TestRetryOfACharge("+test+"\n}\n```")
}

// The package documentation states the guarantee in the words of the README, and more of it. The order of a shutdown, and how long a key is held, have the same words wherever
// they are explained.
func TestGuaranteeIsStatedInTheSameWords(t *testing.T) {
	readme, doc := read(t, "README.md"), plainWords(read(t, "doc.go"))
	promises := regexp.MustCompile(`(?m)^\d\. (\*\*.*)\.$`).FindAllStringSubmatch(between(t, readme, "## What it promises", "\n## "), -1)
	require.Len(t, promises, 4)
	require.LessOrEqual(t, strings.Count(readme, "\n"), 130, "the lines of the README")
	for _, promise := range promises {
		require.Contains(t, doc, plainWords(promise[1]))
	}

	shutdown := plainWords("Call `http.Server.Shutdown` and `Guard.Shutdown` together, with one deadline. " +
		"When both have returned, close the store.")
	for _, text := range []string{doc, read(t, "operate.go"), read(t, "docs/how-to/shutdown.md"), read(t, "docs/tutorials/production.md")} {
		require.Contains(t, plainWords(text), shutdown)
	}

	held := plainWords("A held key, and one claimed under `Hold`, has no end of its own: it is kept until somebody " +
		"resolves or forgets it, unless `WithRetention` sets an end.")
	for _, page := range []string{"docs/tutorials/production.md", "doc.go", "options_run.go", "docs/how-to/steps.md", "docs/explanation/guarantees.md"} {
		require.Contains(t, plainWords(read(t, page)), held, page)
	}
	require.Contains(t, plainWords(read(t, "docs/reference/answers.md")), strings.TrimSuffix(held, "."))
}

// A shutdown is shown with the same function wherever it is shown, and done with it wherever
// an example listens.
func TestShutdownIsShownInOneWay(t *testing.T) {
	shown := "func shutdown(" + between(t, read(t, "example_shutdown_test.go"), "\nfunc shutdown(", "\n}\n") + "\n}\n"
	require.Contains(t, strings.ReplaceAll(read(t, "doc.go"), "\n//\t", "\n"), shown)
	for _, page := range []string{"docs/tutorials/production.md", "docs/how-to/shutdown.md"} {
		require.Contains(t, read(t, page), shown, page)
	}
	listening := 0
	err := fs.WalkDir(os.DirFS(root), "examples", func(path string, _ fs.DirEntry, err error) error {
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		if program := read(t, path); strings.Contains(program, "&http.Server{") {
			listening++
			require.Contains(t, program, shown, path)
		}
		return err
	})
	require.NoError(t, err)
	require.GreaterOrEqual(t, listening, 4)
}

// The code of the runbook is compiled and run, and its log lines are those of the code.
func TestRunbookShowsWhatWorks(t *testing.T) {
	runbook, examples, events := read(t, "docs/reference/runbook.md"), read(t, "example_runbook_test.go"), read(t, "internal/engine/report/line.go")
	blocks := regexp.MustCompile("(?s)```go[^\n]*\n(.*?)```").FindAllStringSubmatch(runbook, -1)
	require.Len(t, blocks, 3)
	for _, block := range blocks {
		require.Contains(t, examples, block[1])
	}
	lines := regexp.MustCompile(`"(idempotency: [^"]+)"`).FindAllStringSubmatch(runbook, -1)
	require.NotEmpty(t, lines)
	for _, line := range lines {
		if line[1] != "idempotency: " {
			require.Contains(t, events, line[0])
		}
	}
}

// The programs of the pages about SQL stores are those of examples that are compiled and run.
func TestPostgresPageShowsWhatWorks(t *testing.T) {
	indent := regexp.MustCompile(`(?m)^\t+`)
	var sources strings.Builder
	for _, file := range []string{"stores/pgstore/example_test.go", "stores/sqlitestore/example_test.go", "examples/orders/main.go"} {
		sources.WriteString(indent.ReplaceAllString(read(t, file), ""))
	}
	examples := sources.String()
	pages := read(t, "docs/tutorials/postgres.md") + read(t, "docs/how-to/postgres-operations.md") + read(t, "docs/how-to/sqlite.md")
	blocks := regexp.MustCompile("(?s)```go[^\n]*\n(.*?)```").FindAllStringSubmatch(pages, -1)
	shown := 0
	for _, block := range blocks {
		if program := indent.ReplaceAllString(block[1], ""); strings.Count(program, "\n") > 5 && !strings.HasPrefix(program, "package ") {
			shown++
			require.Contains(t, examples, strings.Replace(program, "func main()", "func Example()", 1))
		}
	}
	require.Equal(t, 3, shown)
}

// The code of the pages about webhooks is compiled and run, and their table is the data.
func TestWebhooksShowsWhatWorks(t *testing.T) {
	page := read(t, "docs/how-to/webhooks.md") + read(t, "docs/how-to/webhook-inbox.md") + read(t, "docs/reference/webhook-senders.md")
	var sources strings.Builder
	for _, file := range []string{"webhook/example_test.go", "examples/webhook/receiver.go", "examples/webhook/worker.go", "examples/webhook/database.go"} {
		sources.WriteString(read(t, file))
	}
	blocks := regexp.MustCompile("(?s)```go[^\n]*\n(.*?)```").FindAllStringSubmatch(page, -1)
	require.Len(t, blocks, 5)
	for _, block := range blocks {
		require.Contains(t, sources.String(), block[1])
	}
	for _, s := range webhook.Senders() {
		days := int(s.TTL / (24 * time.Hour))
		ttl := fmt.Sprintf("%d days", days)
		if days == 1 {
			ttl = "1 day"
		}
		require.Regexp(t, `(?m)^\| `+s.Name+` \|.*\| `+ttl+` \|$`, page)
	}
}

// The glossary has each word that code, logs and metrics have for a state, an outcome or an ability.
func TestGlossaryHasTheWordsOfTheCode(t *testing.T) {
	glossary := read(t, "docs/reference/glossary.md")
	for state := store.Claimed; state <= store.Corrupt; state++ {
		require.Contains(t, glossary, "\n| "+state.String()+" | State")
	}
	for _, word := range []any{idempotency.Final, idempotency.NotExecuted, idempotency.Unknown} {
		require.Contains(t, strings.ToLower(strings.ReplaceAll(glossary, "NotExecuted", "not-executed")), "`"+fmt.Sprint(word)+"`")
	}
	abilities := regexp.MustCompile(`(?m)^type (\w+) interface`).FindAllStringSubmatch(read(t, "store/abilities.go"), -1)
	require.NotEmpty(t, abilities)
	for _, ability := range abilities {
		require.Contains(t, glossary, "`"+ability[1]+"`")
	}
}

// Every test and benchmark that a page names exists.
func TestNamedTestsExist(t *testing.T) {
	var sources strings.Builder
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			sources.WriteString(read(t, path))
		}
		return err
	})
	require.NoError(t, err)
	name := regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Za-z]+)[`/]")
	named := 0
	for _, page := range everyPage(t) {
		text := pagetest.File(t, page)
		for _, found := range name.FindAllStringSubmatch(string(text), -1) {
			named++
			if !strings.Contains(sources.String(), "\nfunc "+found[1]+"(") { // the sources are too long to be printed
				t.Errorf("%s: there is no %s", page, found[1])
			}
		}
	}
	require.Greater(t, named, 300)
}

// Every relative link of a page leads to a file, and to a heading if it names one.
func TestLinksLeadSomewhere(t *testing.T) {
	code := regexp.MustCompile("(?s)```.*?```")
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	links := 0
	for _, page := range everyPage(t) {
		text := pagetest.File(t, page)
		for _, found := range link.FindAllStringSubmatch(code.ReplaceAllString(string(text), ""), -1) {
			if strings.Contains(found[1], "://") {
				continue
			}
			links++
			file, anchor, _ := strings.Cut(found[1], "#")
			target := page
			if file != "" {
				target = filepath.Join(filepath.Dir(page), file)
				_, err := os.Stat(target)
				require.NoError(t, err, "%s links to %s", page, found[1])
			}
			if anchor != "" {
				require.Contains(t, anchors(t, target), anchor, "%s links to %s", page, found[1])
			}
		}
	}
	require.Greater(t, links, 50)
}

// everyPage returns the files that users read: those of docs, and those beside the code.
func everyPage(t *testing.T) []string {
	t.Helper()
	var pages []string
	for _, pattern := range []string{"*.md", "llms.txt", "docs/*.md", "docs/*/*.md", "*/README.md", "*/*/README.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		pages = append(pages, found...)
	}
	require.Greater(t, len(pages), 30)
	return pages
}

// anchors returns the names of a page's headings, as the usual hosts of repositories make
// them: lower case, spaces as hyphens, without punctuation.
func anchors(t *testing.T, page string) []string {
	t.Helper()
	text := pagetest.File(t, page)
	punctuation := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	var names []string
	for line := range strings.Lines(string(text)) {
		if title := strings.TrimLeft(line, "#"); title != line && strings.HasPrefix(title, " ") {
			title = punctuation.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
			names = append(names, strings.ReplaceAll(title, " ", "-"))
		}
	}
	return names
}

// The map in CONTRIBUTING.md has a place for every source file of the root and of the engine, for
// every package of the module and for nothing else.
func TestMapIsComplete(t *testing.T) {
	var names []string
	for row := range strings.Lines(between(t, read(t, "CONTRIBUTING.md"), "\n## The map\n", "\n## ")) {
		if place, _, ok := strings.Cut(strings.TrimPrefix(row, "| "), " | "); ok {
			for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(place, -1) {
				names = append(names, name[1])
				found, err := filepath.Glob(filepath.Join(root, name[1]))
				require.NoError(t, err)
				require.NotEmpty(t, found, "%s is on the map only", name[1])
			}
		}
	}
	onMap := func(path string) bool {
		if filepath.Dir(path) == "internal/engine" {
			return slices.Contains(names, path)
		}
		for _, name := range names {
			matched, err := filepath.Match(name, path)
			require.NoError(t, err)
			if matched || strings.HasPrefix(path, name+"/") {
				return true
			}
		}
		return false
	}
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			require.True(t, onMap(path), "%s is not on the map", path)
		}
		return err
	})
	require.NoError(t, err)
	require.Greater(t, len(names), 40)
}

// Every file that CONTRIBUTING.md names exists, and so does every folder that one of its tables
// names. In a table, a name may be short for what is in a folder named before it in the same row.
func TestContributingNamesWhatIsThere(t *testing.T) {
	name := regexp.MustCompile("`([\\w*-][\\w./*-]*)`")
	file := regexp.MustCompile(`\.(go|lua|md|sh|txt)$`)
	checked := 0
	for line := range strings.Lines(read(t, "CONTRIBUTING.md")) {
		places := []string{"."}
		for _, found := range name.FindAllStringSubmatch(line, -1) {
			inTable := strings.HasPrefix(line, "| ")
			if file.MatchString(found[1]) || inTable && strings.Contains(found[1], "/") {
				checked++
				require.True(t, slices.ContainsFunc(places, func(place string) bool {
					there, err := filepath.Glob(filepath.Join(root, place, found[1]))
					return err == nil && len(there) > 0
				}), "CONTRIBUTING.md names %s", found[1])
			}
			if inTable {
				places = append(places, found[1])
			}
		}
	}
	require.Greater(t, checked, 50)
}

// plainWords removes everything from a text that is not a word or its punctuation: the marks
// of Markdown, of comments and of doc links, and line ends.
func plainWords(s string) string {
	s = strings.NewReplacer("//", " ", "*", "", "`", "", "[", "", "]", "").Replace(s)
	return strings.Join(strings.Fields(s), " ")
}

func read(t *testing.T, name string) string {
	t.Helper()
	b := pagetest.File(t, filepath.Join(root, name))
	return string(b)
}

func between(t *testing.T, text, from, to string) string {
	t.Helper()
	_, text, ok := strings.Cut(text, from)
	require.True(t, ok, from)
	text, _, ok = strings.Cut(text, to)
	require.True(t, ok, to)
	return text
}
