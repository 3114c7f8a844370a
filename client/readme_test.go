package client_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The README shows lines of the example that compiles.
func TestReadmeShowsTheExample(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	example, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	_, snippet, ok := strings.Cut(string(readme), "```go\ntransport, err")
	require.True(t, ok)
	snippet, _, ok = strings.Cut("transport, err"+snippet, "```")
	require.True(t, ok)
	for line := range strings.SplitSeq(strings.TrimSpace(snippet), "\n") {
		require.Contains(t, string(example), "\t"+line+"\n")
	}
}
