package idempotency_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/guardtest"
)

// Every test that docs/security.md and docs/http.md name exists.
func TestSecurityDocNamesTests(t *testing.T) {
	t.Parallel()
	var sources strings.Builder
	err := fs.WalkDir(os.DirFS("."), ".", func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			sources.WriteString(guardtest.ReadFile(t, filepath.FromSlash(path)))
		}
		return err
	})
	require.NoError(t, err)
	names := regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z]+)`").FindAllStringSubmatch(
		guardtest.ReadFile(t, "docs/security.md")+guardtest.ReadFile(t, "docs/http.md"), -1)
	require.Greater(t, len(names), 50)
	for _, name := range names {
		require.Contains(t, sources.String(), "\nfunc "+name[1]+"(", "%s is named in docs", name[1])
	}
}
