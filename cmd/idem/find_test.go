package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/adapter"
	"example.com/idempotency/console"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/inspect"
)

// foundBy returns the names of all records that a search prints, page by page.
func foundBy(t *testing.T, p place, args ...string) (names []string) {
	t.Helper()
	args = append([]string{"find", "-o", "json"}, args...)
	for cursor := ""; ; {
		got := p.idem(t, append(args, "--cursor", cursor)...)
		if got.code == inspect.ExitNotFound {
			return nil
		}
		require.Equal(t, inspect.ExitOK, got.code, got.err)
		cursor = ""
		for line := range strings.Lines(got.out) {
			var said struct{ Type, Record, Cursor string }
			require.NoError(t, json.Unmarshal([]byte(line), &said))
			if said.Type == "record" {
				names = append(names, said.Record)
			}
			cursor = said.Cursor
		}
		if cursor == "" {
			return names
		}
	}
}

// All records of a tenant are found, however many are shown at once.
func TestFindOfATenant(t *testing.T) {
	t.Parallel()
	for store, make := range places {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			p := make(t)
			s := fill(t, p)
			var want []string
			for _, key := range []string{"payout-1", "order-77", "charge-5", "order-78", "order-79"} {
				want = append(want, s.name(key))
			}
			slices.Sort(want)
			for _, limit := range []string{"2", "100"} {
				names := foundBy(t, p, "--tenant", "alice", "--limit", limit)
				slices.Sort(names)
				require.Equal(t, want, slices.Compact(names))
			}
		})
	}
}

// With its secret, the records of a route that has one are found, and without it they are not.
func TestFindWithASecret(t *testing.T) {
	t.Parallel()
	p, _ := redisPlace(t)
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("secret\n"), 0o600))
	s := serve(t, p.records, idempotency.WithFindableScope(true), idempotency.WithDerivation("orders", []byte("secret\n")))
	s.post("POST /orders", "order-77", created)
	require.Equal(t, []string{s.name("order-77")}, foundBy(t, p, "--tenant", "alice", "--secret-file", secret))
	require.Empty(t, foundBy(t, p, "--tenant", "alice"))
}

// A record is found by its operation ID through a service that can read the keys of its routes, and not in the store.
func TestFindOfAnOperation(t *testing.T) {
	t.Parallel()
	p, _ := redisPlace(t)
	s := serve(t, p.records, sealed(t)...)
	through := placeOf(t, p, s.guard, console.Options{Authorize: isAda})
	for _, key := range []string{"payout-1", "payout-2"} {
		s.post("POST /payouts", key, broken)
	}
	id := s.look("payout-1").ID
	require.Equal(t, []string{s.name("payout-1")}, foundBy(t, through, "--operation", id))
	got := through.idem(t, "find", "--operation", strings.Repeat("0", 32)).exits(t, inspect.ExitNotFound)
	require.Contains(t, got.err, "nothing is found among held records and runs in flight on routes that hold. Only routes with WithKeptKeys tell it.")
	require.Contains(t, p.idem(t, "find", "--operation", id).exits(t, inspect.ExitUsage).err, "--operation needs --server")
	for _, args := range [][]string{{"--operation", "payout"}, {"--operation", id, "--trace", id}, {"--operation", id, "--shared"}} {
		through.idem(t, append([]string{"find"}, args...)...).exits(t, inspect.ExitUsage)
	}
	away := append([]string{}, through.flags...)
	away[1] = "http://127.0.0.1:1/"
	call(t, append([]string{"find", "--operation", id}, away...)...).exits(t, inspect.ExitUnreachable)
}

// The runs of a trace are found among what waits for somebody, also by a traceparent.
func TestFindOfATrace(t *testing.T) {
	t.Parallel()
	for store, make := range places {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			p := make(t)
			var now event.TraceContext
			s := serve(t, p.records, adapter.WithTraceContext(func(context.Context) event.TraceContext { return now }))
			for trace, key := range []string{"payout-0", "payout-1", "payout-2"} {
				now = event.TraceContext{TraceID: [16]byte{1 + byte(trace)%2}, SpanID: [8]byte{1}}
				s.post("POST /payouts", key, broken, hold)
			}
			id := strings.Repeat("0", 30)
			require.ElementsMatch(t, []string{s.name("payout-0"), s.name("payout-2")}, foundBy(t, p, "--trace", "01"+id))
			require.Equal(t, []string{s.name("payout-1")}, foundBy(t, p, "--trace", "00-02"+id+"-0100000000000000-01"))
			p.idem(t, "find", "--trace", "03"+id, "-o", "json").exits(t, inspect.ExitNotFound)
			require.Equal(t, inspect.ExitUsage, p.idem(t, "find", "--trace", "payout").code)
		})
	}
}
