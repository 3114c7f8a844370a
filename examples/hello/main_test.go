package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/pagetest"
)

// The README shows this program, commands to talk to it, and its answers as they come.
func TestReadme(t *testing.T) {
	page := pagetest.File(t, "../../README.md")
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

// The commands of the README make a module that finds all modules which are meant to be imported.
func TestReadmeReplacesEveryModule(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("there is no shell")
	}
	page := pagetest.File(t, "../../README.md")
	list, err := os.ReadFile("../../modules.txt")
	require.NoError(t, err)
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "start"), 0o700))
	require.NoError(t, os.Symlink(root, filepath.Join(dir, "idempotency")))
	sh := exec.CommandContext(t.Context(), "sh", "-ec", pagetest.Block(t, string(page), "modules"))
	sh.Dir = filepath.Join(dir, "start")
	out, err := sh.CombinedOutput()
	require.NoError(t, err, "%s", out)
	file := pagetest.File(t, filepath.Join(dir, "hello", "go.mod"))
	released := regexp.MustCompile(`(?m)^(\S+) +yes$`).FindAllStringSubmatch(string(list), -1)
	require.NotEmpty(t, released)
	for _, module := range released {
		require.Contains(t, string(file), path.Join("example.com/idempotency", module[1])+" => ../"+path.Join("idempotency", module[1])+"\n")
	}
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
