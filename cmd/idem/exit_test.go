package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/idempotency/internal/pagetest"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/internal/pgserver"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/store"
)

func TestUsageIsRefused(t *testing.T) {
	t.Parallel()
	const redis = "--redis=redis://127.0.0.1:1"
	for _, args := range [][]string{
		{"held"},
		{"held", redis, "--sqlite", "x"},
		{"held", redis, "--limit", "x"},
		{"held", redis, "-o", "xml"},
		{"held", redis, "more"},
		{"held", "--redis", "http://user:secret@host"},
		{"held", "--redis", "redis://user:secret@host:port:port"},
		{"held", "--postgres", "postgres://user:secret@host:port"},
		{"unknown", redis},
		{"why", redis},
		{"find", redis, "--key", "a", "--scope", "a", "--shared"},
		{"find", redis},
		{"erase", redis, "--tenant", "alice"},
		{"erase", redis, "--reason", "x"},
		{"find", redis, "--reference", "77", "--tenant", "alice"},
		{"find", redis, "--reference", "77", "--scope", "alice"},
		{"resolve", redis, "name", "final"},
	} {
		got := call(t, args...).exits(t, inspect.ExitUsage)
		require.NotEmpty(t, got.err)
		require.NotContains(t, got.err, "secret")
		require.Empty(t, got.out)
	}
}

// What was to be in JSON is, also if an argument before -o is wrong.
func TestUsageErrorsAreJSON(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--nosuch"}, {"held", "--nosuch"}, {"held", "--limit", "x"}, {"held", "--limit=x", "-x"}, {"unknown"}, {"why"}} {
		for _, output := range [][]string{{"-o", "json"}, {"-ojson"}, {"--output=json"}, {"--output", "json"}} {
			got := call(t, append(args, output...)...).exits(t, inspect.ExitUsage)
			var failed inspect.Failure
			require.NoError(t, json.Unmarshal([]byte(got.err), &failed), "%v: %s", args, got.err)
			require.Equal(t, inspect.ExitUsage, failed.Code)
		}
	}
}

// What is wrong with arguments that only a look at the record can tell.
func TestUsageOfADecision(t *testing.T) {
	t.Parallel()
	p, _ := redisPlace(t)
	s := serve(t, p.records)
	s.post("POST /payouts", "a", broken, hold)
	name, seen := s.name("a"), s.seen("a")
	for _, args := range [][]string{
		{"resolve", name, "resume", "--reason", "x"},
		{"resolve", name, "resume", "--reason", " ", "--seen", seen},
		{"resolve", name, "resume", "--reason", "x", "--seen", "held/1"},
		{"resolve", name, "maybe", "--reason", "x", "--seen", seen},
		{"resolve", name, "final", "--reason", "x", "--seen", seen},
		{"resolve", name, "final", "--reason", "x", "--seen", seen, "--status", "200"},
		{"resolve", name, "final", "--reason", "x", "--seen", seen, "--status", "200", "--answer", "x", "--unsealed"},
		{"resolve", name, "final", "--reason", "x", "--seen", seen, "--unsealed", "--answer", filepath.Join(t.TempDir(), "none")},
		{"resolve", name, "final", "--reason", "x", "--seen", seen, "--unsealed", "--status", "200", "--header", "none"},
		{"resolve", name, "final", "--reason", "x", "--seen", seen, "--unsealed", "--status", "200", "--ttl", "-1s"},
		{"held", "--limit", "0"},
		{"held", "--cursor", "nonsense"},
		{"watch", "--every", "0s"},
		{"find", "--scope", "alice", "--key", ""},
		{"find", "--key", "a"},
		{"erase", "--tenant", "", "--reason", "x"},
		{"erase", "--tenant", "alice", "--reason", " "},
		{"erase", "--tenant", "alice", "--reason", "x", "--older-than", "1ms"},
		{"find", "--reference", "77", "--limit", "0"},
		{"find", "--reference", "77", "--cursor", "nonsense"},
		{"find", "--reference", "77", "--secret-file", filepath.Join(t.TempDir(), "none")},
	} {
		p.idem(t, args...).exits(t, inspect.ExitUsage)
	}
	require.Equal(t, seen, s.seen("a"))
	callWith(t, "not HTTP", nil, append([]string{"resolve", name, "final", "--reason", "x", "--seen", seen, "--unsealed", "--answer", "-"}, p.flags...)...).exits(t, inspect.ExitUsage)
}

func TestStoreThatCannotBeReached(t *testing.T) {
	t.Parallel()
	server, locked := redistest.Start(t), redistest.Start(t)
	locked.Do(t, "CONFIG", "SET", "requirepass", "secret")
	for _, flags := range [][]string{
		{"--redis", "redis://127.0.0.1:1"},
		{"--redis", "redis://payments:wrong@" + server.Addr},
		{"--redis", "redis://" + locked.Addr},
		{"--redis", "redis://" + server.Addr + "/99"},
		{"--postgres", "postgres://user@127.0.0.1:1/db"},
		{"--postgres", strings.Replace(pgserver.Shared(t).DSN, "/postgres?", "/nosuch?", 1)},
		{"--sqlite", filepath.Join(t.TempDir(), "none.db")},
	} {
		for _, command := range [][]string{{"held"}, {"stats"}, {"doctor"}, {"find", "--shared", "--key", "a"}} {
			args := append(command, flags...)
			got := call(t, append(args, "-o", "json")...).exits(t, inspect.ExitUnreachable)
			require.Contains(t, got.err, `"code":6`)
		}
	}
	for code, away := range map[string]bool{"57P03": true, "53300": true, "08006": true, "28P01": true, "42501": false} {
		require.Equal(t, away, isAway(fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: code})), code)
	}
	require.Equal(t, inspect.ExitError, codeOf(errors.New("anything else")))
	require.Equal(t, inspect.ExitError, codeOf(store.ErrCorrupt))
}

// A file that is none of ours is left as it is, and one that is not there is not made.
func TestForeignFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "other.db")
	p := sqlitePlace(t)
	require.Equal(t, inspect.ExitOK, call(t, "held", "--sqlite", p.flags[1]).code)
	require.NoError(t, os.WriteFile(file, []byte("nonsense"), 0o600))
	require.Equal(t, inspect.ExitError, call(t, "held", "--sqlite", file).code)
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	got := call(t, "held", "--sqlite", file).exits(t, inspect.ExitError)
	require.Contains(t, got.err, "no table of records")
	left := pagetest.File(t, file)
	require.Empty(t, left)
	got = call(t, "held", "--sqlite", filepath.Dir(file)) // to wait for a named pipe would never end
	require.Equal(t, inspect.ExitUsage, got.code)
	require.Contains(t, got.err, "not a regular file")
}

func TestStoresOfTheEnvironment(t *testing.T) {
	t.Parallel()
	redis, _ := redisPlace(t)
	env := map[string]string{"IDEM_REDIS": redis.flags[1]}
	require.Equal(t, inspect.ExitOK, callWith(t, "", env, "held").code)
	sqlite := sqlitePlace(t)
	require.Equal(t, inspect.ExitOK, callWith(t, "", map[string]string{"IDEM_SQLITE": sqlite.flags[1]}, "held").code)
	postgres := postgresPlace(t, pgserver.Shared(t).DSN)
	require.Equal(t, inspect.ExitOK, callWith(t, "", map[string]string{"IDEM_POSTGRES": postgres.flags[1]}, append([]string{"held"}, postgres.flags[2:]...)...).code)
	require.Equal(t, inspect.ExitOK, callWith(t, "", env, append([]string{"held"}, sqlite.flags...)...).code, "a flag counts before a variable")
	env["IDEM_SQLITE"] = sqlite.flags[1]
	require.Equal(t, inspect.ExitUsage, callWith(t, "", env, "held").code)
}

func TestHelpAndCompletion(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--help"}, {"resolve", "--help"}, {"completion", "bash"}, {"completion", "zsh"}, {"completion", "fish"}} {
		var out bytes.Buffer
		require.Equal(t, inspect.ExitOK, run(context.Background(), args, nil, &out, &out, func(string) string { return "" }))
		require.Contains(t, out.String(), "idem")
	}
}

// What comes from a store is not obeyed by a terminal.
func TestControlCharactersAreShown(t *testing.T) {
	t.Parallel()
	p, _ := redisPlace(t)
	for key, c := range map[string]struct{ label, want, json string }{
		"escape":   {"\x1b[2Jroute", `"\x1b[2Jroute"`, `"\u001b[2Jroute"`},
		"C1":       {"\u009b2Jroute", `"\u009b2Jroute"`, `"\u009b2Jroute"`},
		"no UTF-8": {"\x9b2Jroute", `"\x9b2Jroute"`, `"\ufffd2Jroute"`},
		"bidi":     {"\u202eroute", `"\u202eroute"`, `"\u202eroute"`},
		"wide":     {"\U000e0001é路", `"\U000e0001é路"`, `"\udb40\udc01é路"`},
	} {
		_, err := p.Claim(t.Context(), intent.Key{Scope: "alice", Value: key}.Name(), store.Claim{
			Owner: store.Owner{1}, Lease: time.Hour, Retention: 2 * time.Hour, Label: c.label,
		})
		require.NoError(t, err)
		require.Contains(t, p.idem(t, "find", "--scope", "alice", "--key", key).out, c.want, key)
		require.Contains(t, p.idem(t, "find", "--scope", "alice", "--key", key, "-o", "json").out, c.json, key)
	}
}

// One address of a Cluster is enough.
func TestCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, false)
	st := guardtest.RedisStore(t, guardtest.RedisClient(t, cluster.Addrs()...))
	s := serve(t, st)
	for i := range 5 {
		s.post("POST /payouts", strconv.Itoa(i), broken, hold)
	}
	p := place{st, []string{"--redis", "redis://" + cluster.Masters[0].Addr}, nil}
	for i := range 5 {
		p.idem(t, "why", s.name(strconv.Itoa(i))).exits(t, inspect.ExitOK)
	}
	require.Equal(t, 5, strings.Count(p.idem(t, "held", "-o", "json").out, `"type":"record"`))
	require.Equal(t, 3, strings.Count(p.idem(t, "doctor", "-o", "json").out, `"check":"persistence"`))
}
