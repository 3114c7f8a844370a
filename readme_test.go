package idempotency_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/guardtest"
)

// The quick start and the test that the README shows are those of examples/quickstart,
// which compile.
func TestReadmeShowsTheQuickStart(t *testing.T) {
	t.Parallel()
	readme, program := guardtest.ReadFile(t, "README.md"), guardtest.ReadFile(t, "examples/quickstart/main.go")
	_, start, ok := strings.Cut(program, "\nfunc main() {")
	require.True(t, ok)
	require.Contains(t, readme, "```go\nfunc main() {"+start+"```")
	test := guardtest.Section(t, guardtest.ReadFile(t, "examples/quickstart/main_test.go"), "\nfunc TestRetryOfACharge(", "\n}\n")
	require.Contains(t, readme, "```go\nfunc TestRetryOfACharge("+test+"\n}\n```")
}

// The README and the package documentation state the guarantee, its limit, and the order of
// a shutdown in the same words, and so do the other places that mention the shutdown.
func TestGuaranteeIsStatedInTheSameWords(t *testing.T) {
	t.Parallel()
	readme, doc := guardtest.ReadFile(t, "README.md"), plainWords(guardtest.ReadFile(t, "doc.go"))
	guarantee := guardtest.Section(t, readme, "For one scope and key", "\n## ")
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
	require.Contains(t, plainWords(guardtest.ReadFile(t, "docs/operations.md")), shutdown)
}

// plainWords removes everything from a text that is not a word or punctuation: the marks of
// Markdown, of comments and of doc links, and line ends.
func plainWords(s string) string {
	s = strings.NewReplacer("//", " ", "*", "", "`", "", "[", "", "]", "").Replace(s)
	return strings.Join(strings.Fields(s), " ")
}
