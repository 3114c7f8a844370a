package main

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The README shows this program, commands to talk to it, and its answers as they come.
func TestReadme(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	program, err := os.ReadFile("main.go")
	require.NoError(t, err)
	_, shown, _ := strings.Cut(string(program), "\n") // the comment is for godoc
	require.Equal(t, shown, block(t, string(page), "program"))

	if _, err := exec.LookPath("curl"); err != nil {
		if os.Getenv("REDIS_REQUIRED") == "1" {
			t.Fatal("curl is not installed")
		}
		t.Skip("curl is not installed")
	}
	const addr = "127.0.0.1:8080"
	free := serve(t, string(program), addr)
	date := regexp.MustCompile(`(?m)^Date: .*$`)
	conversation := strings.Split(block(t, string(page), "conversation"), "$ ")[1:]
	require.Len(t, conversation, 4)
	for _, turn := range conversation {
		command, answer, _ := strings.Cut(turn, "\n")
		got, err := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(command, addr, free)).Output()
		require.NoError(t, err, command)
		said := strings.TrimSpace(strings.ReplaceAll(string(got), "\r\n", "\n"))
		require.Equal(t, date.ReplaceAllString(strings.TrimSpace(answer), "Date:"), date.ReplaceAllString(said, "Date:"), command)
	}
}

// block returns the code block after a mark.
func block(t *testing.T, page, mark string) string {
	t.Helper()
	_, rest, ok := strings.Cut(page, "<!-- "+mark+" -->\n```")
	require.True(t, ok, mark)
	_, rest, _ = strings.Cut(rest, "\n")
	code, _, ok := strings.Cut(rest, "```")
	require.True(t, ok, mark)
	return code
}

// serve builds the program with a free address in place of its own, and runs it.
func serve(t *testing.T, program, addr string) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	free := listener.Addr().String()
	require.NoError(t, listener.Close())

	dir := t.TempDir()
	source, err := filepath.Abs("main.go")
	require.NoError(t, err)
	copied, overlay, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "hello")
	require.NoError(t, os.WriteFile(copied, []byte(strings.ReplaceAll(program, addr, free)), 0o600))
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{source: copied}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(overlay, replace, 0o600))
	out, err := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "-o", binary, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)

	ctx, stop := context.WithCancel(context.Background())
	server := exec.CommandContext(ctx, binary)
	require.NoError(t, server.Start())
	t.Cleanup(func() {
		stop()
		_ = server.Wait()
	})
	require.Eventually(t, func() bool {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", free)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}, 30*time.Second, 10*time.Millisecond)
	return free
}
