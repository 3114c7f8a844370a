package guardtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Root returns the directory of the module, as a path from the directory that the test
// runs in.
func Root(t testing.TB) string {
	t.Helper()
	for dir := "."; len(dir) < 100; dir = filepath.Join("..", dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
	}
	t.Fatal("no go.mod above the test")
	return ""
}

// ReadFile returns a file of the module, which name gives from its root.
func ReadFile(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(Root(t), name))
	require.NoError(t, err)
	return string(b)
}

// Section returns what stands between two texts.
func Section(t testing.TB, text, from, to string) string {
	t.Helper()
	_, text, ok := strings.Cut(text, from)
	require.True(t, ok, from)
	text, _, ok = strings.Cut(text, to)
	require.True(t, ok, to)
	return text
}
