package main

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/internal/pagetest"
)

// The page of the docs shows what the program prints.
func TestPage(t *testing.T) {
	text, err := os.ReadFile("../../docs/how-to/command-line.md")
	require.NoError(t, err)
	page := string(text)
	self, err := os.Executable()
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.Symlink(self, filepath.Join(dir, "idem")))
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))

	p, server := redisPlace(t)
	s := serve(t, p.records)
	s.post("POST /orders", "order-77", afterStep("ledger"), hold)
	server.FastForward(12*time.Minute + 20*time.Second)
	info, err := s.guard.Lookup(t.Context(), idempotency.Key{Scope: "alice", Value: "order-77"})
	require.NoError(t, err)
	names := []string{
		"held/1/0123456789abcdef0123456789abcdef", info.Seen().String(),
		"2026-11-27T03:12:09Z", info.Started.UTC().Format(time.RFC3339),
	}
	t.Setenv("IDEM_REDIS", p.flags[1])
	for _, mark := range []string{"held", "why", "decide"} {
		require.Equal(t, 1, pagetest.Converse(t, pagetest.Block(t, page, mark), names...))
	}
	require.Equal(t, http.StatusCreated, s.post("POST /orders", "order-77", created, hold).Code)

	place := sqlitePlace(t)
	require.NoError(t, serve(t, place.records).guard.Check(t.Context()))
	file := place.flags[1]
	require.NoError(t, os.Chmod(file, 0o644))
	got := call(t, "doctor", "--sqlite", file)
	require.Equal(t, inspect.ExitOK, got.code, got.err)
	_, shown, _ := strings.Cut(pagetest.Block(t, page, "doctor"), "\n")
	loose := func(text string) string { // the time of a call, and so the width of a column
		text = regexp.MustCompile(`[\d.]+(µ|m)?s a call`).ReplaceAllString(text, "some time a call")
		text = regexp.MustCompile(`born .* ago`).ReplaceAllString(text, "born long ago")
		return regexp.MustCompile(` {2,}`).ReplaceAllString(text, "  ")
	}
	require.Equal(t, loose(shown), loose(got.out))
}
