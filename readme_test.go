package idempotency_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What the README shows must be what compiles, and what it promises must be what the
// package documentation promises.
func TestReadmeAgreesWithTheCode(t *testing.T) {
	t.Parallel()
	readme, program, doc := readFile(t, "README.md"), readFile(t, "examples/quickstart/main.go"), readFile(t, "doc.go")
	require.Contains(t, readme, "```go\n"+program+"```", "the quick start is not examples/quickstart/main.go")
	_, test, _ := strings.Cut(readFile(t, "examples/quickstart/main_test.go"), "\n)\n\n")
	require.Contains(t, readme, "```go\n"+test+"```", "the test is not that of examples/quickstart")

	words := func(s string) string {
		s = strings.NewReplacer("//", " ", "*", "", "`", "").Replace(s)
		return strings.Join(strings.Fields(s), " ")
	}
	for sentence := range strings.SplitSeq(section(t, readme, "For one scope and key", "**And its limit:**"), "\n") {
		_, promise, _ := strings.Cut(sentence, ". ")
		require.Contains(t, words(doc), words(promise))
	}
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
