package idempotency_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The quick start and the test that the README shows are those of examples/quickstart,
// which compile.
func TestReadmeShowsTheQuickStart(t *testing.T) {
	t.Parallel()
	readme, program := readFile(t, "README.md"), readFile(t, "examples/quickstart/main.go")
	_, start, ok := strings.Cut(program, "\nfunc main() {")
	require.True(t, ok)
	require.Contains(t, readme, "```go\nfunc main() {"+start+"```")
	test := section(t, readFile(t, "examples/quickstart/main_test.go"), "\nfunc TestRetryOfACharge(", "\n}\n")
	require.Contains(t, readme, "```go\nfunc TestRetryOfACharge("+test+"\n}\n```")
}

// The README and the package documentation state the guarantee, its limit, and the order of
// a shutdown in the same words, and so do the other places that mention the shutdown.
func TestGuaranteeIsStatedInTheSameWords(t *testing.T) {
	t.Parallel()
	readme, doc := readFile(t, "README.md"), plainWords(readFile(t, "doc.go"))
	guarantee := section(t, readme, "For one scope and key", "\n## ")
	for sentence := range strings.SplitSeq(guarantee, "\n") {
		_, promise, _ := strings.Cut(sentence, ". ")
		require.Contains(t, doc, plainWords(promise))
	}
	_, limit, ok := strings.Cut(guarantee, "**And its limit:**")
	require.True(t, ok)
	require.Contains(t, doc, plainWords(limit))

	shutdown := plainWords("Call `http.Server.Shutdown` and `Guard.Shutdown` together, with one deadline. " +
		"When both have returned, close the store.")
	require.Contains(t, plainWords(readme), shutdown)
	require.Contains(t, doc, shutdown)
	require.Contains(t, plainWords(readFile(t, "docs/operations.md")), shutdown)
}

// plainWords removes everything from a text that is not a word or punctuation: the marks of
// Markdown, of comments and of doc links, and line ends.
func plainWords(s string) string {
	s = strings.NewReplacer("//", " ", "*", "", "`", "", "[", "", "]", "").Replace(s)
	return strings.Join(strings.Fields(s), " ")
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(b)
}

func section(t *testing.T, text, from, to string) string {
	t.Helper()
	_, text, ok := strings.Cut(text, from)
	require.True(t, ok, from)
	text, _, ok = strings.Cut(text, to)
	require.True(t, ok, to)
	return text
}
