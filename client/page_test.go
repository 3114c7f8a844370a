package client_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The page shows lines of the example that compiles.
func TestPageShowsTheExample(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/reference/client.md")
	require.NoError(t, err)
	example, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	_, snippet, ok := strings.Cut(string(page), "```go\ntransport, err")
	require.True(t, ok)
	snippet, _, ok = strings.Cut("transport, err"+snippet, "```")
	require.True(t, ok)
	for line := range strings.SplitSeq(strings.TrimSpace(snippet), "\n") {
		require.Contains(t, string(example), "\t"+line+"\n")
	}
}
