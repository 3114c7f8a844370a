package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/pagetest"
)

// The README shows this program, commands to talk to it, and its answers as they come.
func TestReadme(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	program, err := os.ReadFile("main.go")
	require.NoError(t, err)
	_, shown, _ := strings.Cut(string(program), "\n") // the comment is for godoc
	require.Equal(t, shown, pagetest.Block(t, string(page), "program"))

	pagetest.Need(t, "curl")
	const addr = "127.0.0.1:8080"
	free := pagetest.FreeAddr(t)
	pagetest.Start(t, free, build(t, strings.ReplaceAll(string(program), addr, free)))
	require.Equal(t, 4, pagetest.Converse(t, pagetest.Block(t, string(page), "conversation"), addr, free))
}

// build builds another text of the program.
func build(t *testing.T, program string) string {
	t.Helper()
	dir := t.TempDir()
	source, err := filepath.Abs("main.go")
	require.NoError(t, err)
	copied, overlay, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "hello")
	require.NoError(t, os.WriteFile(copied, []byte(program), 0o600))
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{source: copied}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(overlay, replace, 0o600))
	out, err := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "-o", binary, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return binary
}
