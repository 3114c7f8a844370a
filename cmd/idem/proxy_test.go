package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.com/idempotency/internal/pagetest"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/internal/redistest"
)

// What the program says of itself, and of a file, is compared with what it has said before.
func TestProxySays(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good.yaml"), filepath.Join(dir, "bad.yaml")
	page := pagetest.File(t, "../../docs/how-to/proxy.md")
	_, text, _ := strings.Cut(string(page), "```yaml\n")
	text, rest, _ := strings.Cut(text, "```")
	require.NoError(t, os.WriteFile(good, []byte(text), 0o600))
	require.NoError(t, os.WriteFile(bad, []byte(text+"ttll: 1h\n"), 0o600))
	for _, c := range []struct {
		golden string
		args   []string
		code   int
	}{
		{"proxy-help.txt", []string{"proxy", "--help"}, inspect.ExitOK},
		{"proxy-check.txt", []string{"proxy", "--check", good}, inspect.ExitOK},
		{"proxy-flags.txt", []string{"proxy", "--check", good, "--to", "http://127.0.0.1:4000", "--scope", "shared", "--ttl", "1h", "--required", "--sqlite", "r.db"}, inspect.ExitOK},
		{"proxy-wrong.txt", []string{"proxy", "--check", bad}, inspect.ExitUsage},
		{"proxy-nothing.txt", []string{"proxy"}, inspect.ExitUsage},
		{"proxy-scope.txt", []string{"proxy", "--to", "http://127.0.0.1:4000", "--scope", "tenant"}, inspect.ExitUsage},
	} {
		got := call(t, c.args...)
		require.Equal(t, c.code, got.code, got.err)
		requireGolden(t, c.golden, strings.ReplaceAll(got.out+got.err, dir, "DIR"))
	}
	shown := pagetest.File(t, "testdata/proxy-check.txt")
	require.Contains(t, rest, string(shown), "the page shows the output")
}

// A store of the environment counts if neither the flags nor the file name one.
func TestProxyStore(t *testing.T) {
	t.Parallel()
	env := map[string]string{"IDEM_SQLITE": "r.db"}
	file := filepath.Join(t.TempDir(), "proxy.yaml")
	require.NoError(t, os.WriteFile(file, []byte("to: http://127.0.0.1:4000\n"), 0o600))
	require.Contains(t, callWith(t, "", env, "proxy", "--check", file).out, "store sqlite")
	require.Contains(t, callWith(t, "", env, "proxy", "--check", file, "--redis", "redis://127.0.0.1").out, "store redis")
	require.Contains(t, call(t, "proxy", "--check", file).out, "store memory")
}

// The proxy keeps its records in each store that the flags can name, and ends when it is told to.
func TestProxyOpensItsStore(t *testing.T) {
	t.Parallel()
	for name, place := range map[string]func(*testing.T) []string{
		"redis":    func(t *testing.T) []string { return []string{"--redis", "redis://" + redistest.Start(t).Addr} },
		"sqlite":   func(t *testing.T) []string { return sqlitePlace(t).flags },
		"postgres": func(t *testing.T) []string { return places["postgres"](t).flags },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			log := new(guardtest.LockedBuffer)
			code := make(chan int, 1)
			args := append([]string{"proxy", "--to", "http://127.0.0.1:9", "--listen", "127.0.0.1:0", "--admin", "off"}, place(t)...)
			go func() { code <- run(ctx, args, strings.NewReader(""), io.Discard, log, os.Getenv) }()
			require.Eventually(t, func() bool { return strings.Contains(log.String(), "\n") }, guardtest.Patience, time.Millisecond)
			require.Contains(t, log.String(), `"store":"`+name+`"`)
			cancel()
			require.Equal(t, inspect.ExitOK, <-code, log.String())
		})
	}
}
