package main

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/console"
	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/internal/pagetest"
)

// pageOf returns a page of the docs, and lets it call the program.
func pageOf(t *testing.T, name string) string {
	t.Helper()
	text := pagetest.File(t, "../../docs/how-to/"+name)
	self, err := os.Executable()
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.Symlink(self, filepath.Join(dir, "idem")))
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	return string(text)
}

// The page about --server shows what the program prints.
func TestServerPage(t *testing.T) {
	page := pageOf(t, "command-line-server.md")
	p, server := redisPlace(t)
	s := serve(t, p.records, append(sealed(t), idempotency.WithRoute("POST /payouts"), idempotency.WithTTL(24*time.Hour), idempotency.WithResolver(
		func(context.Context, idempotency.RecordInfo) (idempotency.Resolution, error) {
			return idempotency.Resolution{
				Outcome: idempotency.Final, Status: http.StatusCreated, Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(`{"id":7}`),
				Decision: idempotency.Decision{Reason: "the bank has it"},
			}, nil
		}))...)
	through := placeOf(t, p, s.guard, console.Options{Authorize: isAda})
	s.post("POST /payouts", "payout-2", broken)
	server.FastForward(12*time.Minute + 20*time.Second)
	t.Setenv("IDEM_SERVER", through.flags[1])
	t.Setenv("IDEM_SERVER_HEADER", through.flags[3])
	seen := s.seen("payout-2")
	for _, mark := range []string{"held", "ask", "decide"} {
		require.Equal(t, 1, pagetest.Converse(t, pagetest.Block(t, page, mark), "held/1/0123456789abcdef0123456789abcdef", seen))
	}
	require.Equal(t, http.StatusCreated, s.post("POST /payouts", "payout-2", broken).Code)
}

// The page of the docs shows what the program prints.
func TestPage(t *testing.T) {
	page := pageOf(t, "command-line.md")

	p, server := redisPlace(t)
	s := serve(t, p.records)
	s.post("POST /orders", "order-77", afterStep("ledger"), hold)
	server.FastForward(12*time.Minute + 20*time.Second)
	info, err := s.guard.Lookup(t.Context(), idempotency.Key{Scope: "alice", Value: "order-77"})
	require.NoError(t, err)
	names := []string{"held/1/0123456789abcdef0123456789abcdef", info.Seen().String()}
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
