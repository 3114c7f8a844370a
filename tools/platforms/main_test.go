package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each file has one mistake, of which a compiler for Linux with an int of 64 bits, and vet there, say nothing.
func TestMistakesOfAnotherPlatformAreFound(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":       "module m\n\ngo 1.26.0\n",
		"large.go":     "package m\n\nconst large int = 1 << 40\n",
		"p_windows.go": "package m\n\nvar p = missing\n",
		"m_test.go":    "package m\n\nimport \"testing\"\n\nfunc TestM(t *testing.T) { t.Log(uint(len(t.Name())) >> 32) }\n",
		"b/atomic.go":  "package b\n\nimport \"sync/atomic\"\n\ntype s struct {\n\ta int32\n\tn int64\n}\n\nvar X s\n\nfunc F() { atomic.AddInt64(&X.n, 1) }\n",
	} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	env := append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	problems, err := check(dir, append(env, "GOOS=linux", "GOARCH=amd64"), "./...")
	require.NoError(t, err)
	require.Empty(t, problems)

	env = append(env, "GOOS=windows", "GOARCH=386")
	problems, err = check(dir, env, "./...")
	require.NoError(t, err)
	require.Len(t, problems, 3)
	require.Regexp(t, `b/atomic.go:12:\d+: .*64-bit`, problems[0])
	require.Regexp(t, `large.go:3:\d+: .*overflows`, problems[1])
	require.Regexp(t, `p_windows.go:3:\d+: undefined: missing`, problems[2])

	require.NoError(t, os.Remove(filepath.Join(dir, "large.go")))
	require.NoError(t, os.Remove(filepath.Join(dir, "p_windows.go")))
	problems, err = check(dir, env, "./...")
	require.NoError(t, err)
	require.Len(t, problems, 2)
	require.Regexp(t, `m_test.go:5:\d+: .*too small for shift`, problems[1])
}
