package main

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/console"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/inspect"
)

// This file works through a service. That it prints what a store has it print, the tests of all places find out.

// sealed are the options of a service that seals what it records, keeps keys, and finds by a secret.
func sealed(t *testing.T) []idempotency.Option {
	t.Helper()
	sealer, err := idempotency.NewSealer(bytes.Repeat([]byte{7}, 32))
	require.NoError(t, err)
	return []idempotency.Option{
		idempotency.WithSealer(sealer), idempotency.WithKeptKeys(true), idempotency.WithDerivation("orders", []byte("secret")), idempotency.WithFindableScope(true), hold,
	}
}

// Only the service can seal an answer, read a sealed step, and find by its secret.
func TestServerDecidesAboutASealedRoute(t *testing.T) {
	t.Parallel()
	var events guardtest.Events
	var log bytes.Buffer
	p, _ := redisPlace(t)
	s := serve(t, p.records, append(sealed(t), idempotency.WithObserver(events.Observe), idempotency.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))...)
	through := placeOf(t, p, s.guard, console.Options{Authorize: isAda})
	s.post("POST /payouts", "a", afterStep("ledger"))
	s.post("POST /payouts", "b", afterStep("ledger"))

	// Who cannot read a step does not say that it is in doubt, nor why the key is held.
	fromStore := p.idem(t, s.named([]string{"why", "name:a"})...).exits(t, inspect.ExitOK)
	require.Regexp(t, `recorded +-
in doubt +-
unread +ledger: sealed, or of a later version; a service with the key can tell \(--server\)`, fromStore.out)
	require.NotContains(t, fromStore.out, "step-in-doubt")
	require.Regexp(t, ` outcome-unknown 500 .* ledger \(unread\) `, p.idem(t, "held").exits(t, inspect.ExitOK).out)
	require.Regexp(t, `recorded +ledger
in doubt +-
`, through.idem(t, s.named([]string{"why", "name:a", "--no-ask"})...).exits(t, inspect.ExitOK).out)

	const body = "{\"id\":1}\r\n\xff"
	file := filepath.Join(t.TempDir(), "answer")
	require.NoError(t, os.WriteFile(file, []byte("HTTP/1.1 201 Created\r\nLocation: /payouts/1\r\nX-Step: 1\r\nX-Step: 2\r\nContent-Type: a/b\r\n\r\n"+body), 0o600))
	args := s.named([]string{"resolve", "name:a", "final", "--seen", "seen:a", "--reason", "the bank has it", "--answer", file})
	require.Equal(t, inspect.ExitError, p.idem(t, append(args, "--unsealed")...).code, "not from here")
	require.Equal(t, inspect.ExitOK, through.idem(t, append(args, "--dry-run")...).code)
	require.Equal(t, args[4], s.seen("a"))
	got := through.idem(t, args...)
	require.Equal(t, inspect.ExitOK, got.code, got.err)
	require.Contains(t, got.out, "by ada: the bank has it")
	require.NoError(t, os.WriteFile(file, append([]byte("HTTP/1.1 201 Created\r\n\r\n"), bytes.Repeat([]byte{0xff}, inspect.MostForm/2)...), 0o600))
	large := through.idem(t, s.named([]string{"resolve", "name:b", "final", "--seen", "seen:b", "--reason", "x", "--answer", file})...)
	require.Equal(t, inspect.ExitUsage, large.code)
	require.Contains(t, large.err, "larger than the console takes, 4 MiB as a form")
	answer := s.post("POST /payouts", "a", broken)
	require.Equal(t, http.StatusCreated, answer.Code)
	require.Equal(t, body, answer.Body.String())
	require.Equal(t, []string{"1", "2"}, answer.Header().Values("X-Step"))
	require.Equal(t, "a/b", answer.Header().Get("Content-Type"))

	args = s.named([]string{"resolve", "name:b", "resume", "--seen", "seen:b", "--reason", "keys are derived"})
	got = through.idem(t, args...)
	require.Equal(t, inspect.ExitOK, got.code, got.err)
	var heard []event.Event
	for _, e := range events.All() {
		if e.Kind == event.Resolved {
			heard = append(heard, e)
		}
	}
	require.Len(t, heard, 2)
	require.Equal(t, "ada", heard[0].Actor)
	require.Equal(t, "the bank has it", heard[0].Reason)
	require.Contains(t, log.String(), "keys are derived")
	require.NotContains(t, log.String(), token)

	require.ElementsMatch(t, []string{s.name("a"), s.name("b")}, foundBy(t, through, "--tenant", "alice"))
	require.Empty(t, foundBy(t, p, "--tenant", "alice"), "without the secret")
	got = through.idem(t, "erase", "--tenant", "alice", "--reason", "she has left")
	require.Equal(t, inspect.ExitOK, got.code, got.err)
	require.Contains(t, got.out, "Erased 1 completed, whose retries run again, 1 without an answer, and 0 held.")
	require.Equal(t, inspect.ExitNotFound, through.idem(t, "why", args[1]).code)
}

// An actor does what the service lets the actor do.
func TestServerLetsNobodyDoMore(t *testing.T) {
	t.Parallel()
	viewer := serverPlace(t, console.Options{Authorize: func(*http.Request) (console.Actor, error) { return console.Actor{Name: "vic"}, nil }})
	s := fill(t, viewer)
	for _, args := range [][]string{{"held"}, {"why", "name:payout-1"}, {"stats"}, {"find", "--reference", "77"}} {
		require.Equal(t, inspect.ExitOK, viewer.idem(t, s.named(args)...).code, args)
	}
	for _, args := range [][]string{
		{"resolve", "name:payout-1", "resume", "--seen", "seen:payout-1", "--reason", "x"},
		{"forget", "name:payout-1", "--dry-run", "--reason", "x"},
		{"erase", "--tenant", "alice", "--reason", "x"},
		{"erase", "--tenant", "alice", "--dry-run", "--reason", "x"},
	} {
		got := viewer.idem(t, s.named(args)...)
		require.Equal(t, inspect.ExitError, got.code, args)
		require.Equal(t, "idem: you may look, and not decide.\n", got.err)
	}
	require.Equal(t, inspect.ExitOK, viewer.idem(t, s.named([]string{"why", "name:payout-1"})...).code)
}

// What cannot be asked of a service, and an address that is none, is wrong usage; and no secret is repeated.
func TestServerUsage(t *testing.T) {
	t.Parallel()
	const url, record, hidden = "https://127.0.0.1:1/console/", "A7sryahtLZVJFr2ZL90kAYV1hkC1HOn3KDNnU1b0YbA", "hunter2"
	for says, args := range map[string][]string{
		"doctor looks at the store itself":         {"doctor", "--server", url},
		"--server is not for it":                   {"proxy", "--to", "http://127.0.0.1:1", "--server", url},
		"2 are named":                              {"held", "--server", url, "--redis", "redis://127.0.0.1:1"},
		"--ttl is for a store":                     {"why", record, "--server", url, "--ttl", "1h"},
		"--actor is for a store":                   {"forget", record, "--server", url, "--reason", "x", "--actor", "ada"},
		"--secret-file is for a store":             {"find", "--tenant", "a", "--server", url, "--secret-file", "f"},
		"must begin with https://":                 {"held", "--server", "ftp://example.com"},
		"and a host":                               {"held", "--server", "https:///console"},
		"this is no URL":                           {"held", "--server", "https://ada:" + hidden + "@example.com:port/"},
		"the URL has a user":                       {"held", "--server", "https://ada:" + hidden + "@example.com/"},
		"without ? and #":                          {"held", "--server", url + "?token=" + hidden},
		"number 2 of --server-header":              {"held", "--server", url, "--server-header", "A: b", "--server-header", "Bearer " + hidden},
		"number 1 of --server-header":              {"held", "--server", url, "--server-header", "A: " + hidden + "\nB: c"},
		"the field Accept is not to be set":        {"held", "--server", url, "--server-header", "accept: text/html"},
		"in plain text: use https":                 {"held", "--server", "http://0.0.0.0:1/console", "--server-header", "Authorization: Bearer " + hidden},
		"--ca-file: open":                          {"held", "--server", url, "--ca-file", "/nonexistent"},
		"server_test.go has no certificate":        {"held", "--server", url, "--ca-file", "server_test.go"},
		"--server-timeout is 0s":                   {"held", "--server", url, "--server-timeout", "0s"},
		"Authorization is a field of a request":    {"resolve", record, "final", "--server", url, "--status", "200", "--reason", "x", "--seen", "held/1/00000000000000000000000000000001", "--header", "Authorization: Bearer " + hidden},
		"unknown flag: --header":                   {"held", "--server", url, "--header", "Authorization: Bearer " + hidden},
		"is not the name of a record":              {"why", "order-77", "--server", url},
		"--limit is 0":                             {"held", "--server", url, "--limit", "0"},
		"--scope, or --shared, and --key must not": {"find", "--server", url, "--key", "k"},
	} {
		got := call(t, args...)
		require.Equal(t, inspect.ExitUsage, got.code, "%v: %s", args, got.err)
		require.Contains(t, got.err, says)
		require.NotContains(t, got.err+got.out, hidden)
	}
}

func TestServerOfTheEnvironment(t *testing.T) {
	t.Parallel()
	p := serverPlace(t, console.Options{Authorize: func(r *http.Request) (console.Actor, error) {
		if r.Header.Get("X-Tenant") != "a" || r.Host != "orders.internal" {
			return console.Actor{}, idempotency.ErrUnauthenticated
		}
		return isAda(r)
	}})
	env := map[string]string{"IDEM_SERVER": p.flags[1], "IDEM_SERVER_HEADER": "Authorization: Bearer " + token + "\nX-Tenant: a\n\nHost: orders.internal\n"}
	got := callWith(t, "", env, "held")
	require.Equal(t, inspect.ExitOK, got.code, got.err)
	got = callWith(t, "", env, "held", "--server-header", "X-Tenant: a")
	require.Equal(t, inspect.ExitError, got.code, "flags count before the variable")
	env["IDEM_REDIS"] = "redis://127.0.0.1:1"
	require.Equal(t, inspect.ExitUsage, callWith(t, "", env, "held").code)
	require.Equal(t, inspect.ExitOK, callWith(t, "", env, append([]string{"held", "--server", p.flags[1]}, "--server-header", "Authorization: Bearer "+token, "--server-header", "X-Tenant: a", "--server-header", "Host: orders.internal")...).code)
}

// A service is trusted by the roots of the system, or by those that are named.
func TestServerByHTTPS(t *testing.T) {
	t.Parallel()
	p := serverPlace(t, console.Options{Authorize: isAda})
	fill(t, p)
	screens := httptest.NewTLSServer(forwardTo(p.flags[1]))
	t.Cleanup(screens.Close)
	screens.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	args := []string{"held", "--server", screens.URL, "--server-header", "Authorization: Bearer " + token}
	got := call(t, args...)
	require.Equal(t, inspect.ExitUnreachable, got.code)
	require.Contains(t, got.err, "--ca-file")
	roots := filepath.Join(t.TempDir(), "roots.pem")
	require.NoError(t, os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: screens.Certificate().Raw}), 0o600))
	got = call(t, append(args, "--ca-file", roots)...)
	require.Equal(t, inspect.ExitOK, got.code, got.err)
	require.Contains(t, got.out, "POST /payouts")
}

// forwardTo hands requests on to the console at a URL, and its answers back.
func forwardTo(to string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { forward(w, r, to) }
}

func forward(w http.ResponseWriter, r *http.Request, to string) {
	out, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), r.Method, to+r.URL.String(), r.Body)
	if err != nil {
		panic(err)
	}
	out.Header = r.Header.Clone()
	got, err := http.DefaultTransport.RoundTrip(out)
	if err != nil {
		panic(err)
	}
	defer func() { _ = got.Body.Close() }()
	maps.Copy(w.Header(), got.Header)
	w.WriteHeader(got.StatusCode)
	_, _ = io.Copy(w, got.Body)
}

// A watch goes on while the service is away.
func TestServerIsWatched(t *testing.T) {
	t.Parallel()
	p := serverPlace(t, console.Options{Authorize: isAda})
	s := serve(t, p.records)
	s.post("POST /payouts", "a", broken, hold)
	name := s.name("a")
	line, end := watching(t, p.flags...)
	require.Equal(t, change{Type: "change", Change: "held", Record: name, Route: "POST /payouts", State: "held", Attempt: 1}, line())
	require.Equal(t, inspect.ExitOK, p.idem(t, "resolve", name, "resume", "--seen", s.seen("a"), "--reason", "x").code)
	require.Equal(t, change{Type: "change", Change: "settled", Record: name, Route: "POST /payouts", State: "released", Attempt: 1}, line())
	require.Equal(t, inspect.ExitOK, end())

	line, end = watching(t, "--server", "http://127.0.0.1:1/")
	away := line()
	require.Equal(t, "store-away", away.Change)
	require.Contains(t, away.Error, "the service cannot be reached")
	require.Equal(t, inspect.ExitOK, end())
}

// Of many records, each is listed and counted once, however many a service gives at a time.
func TestServerHasMany(t *testing.T) {
	t.Parallel()
	p := serverPlace(t, console.Options{Authorize: isAda})
	s := serve(t, p.records)
	var want []string
	for key := range strings.SplitSeq("abcdefg", "") {
		s.post("POST /payouts", key, broken, hold)
		want = append(want, s.name(key))
	}
	got := p.idem(t, "held", "-o", "json", "--limit", "5000")
	require.Equal(t, inspect.ExitOK, got.code, got.err)
	require.Equal(t, len(want), strings.Count(got.out, `"type":"record"`))
	require.NotContains(t, got.out, `"cursor"`)
	got = p.idem(t, "held", "-o", "json", "--limit", "3")
	require.Equal(t, 3, strings.Count(got.out, `"type":"record"`))
	require.Contains(t, got.out, `"cursor"`)
	require.True(t, slices.ContainsFunc(want, func(name string) bool { return strings.Contains(got.out, name) }))
}

// What only a service can show: a recorded answer, and what its resolver says.
func TestServerShowsMore(t *testing.T) {
	t.Parallel()
	p, _ := redisPlace(t)
	var closed error
	s := serve(t, p.records, append(sealed(t), idempotency.WithRoute("POST /payouts"), idempotency.WithResolver(
		func(context.Context, idempotency.RecordInfo) (idempotency.Resolution, error) {
			return idempotency.Resolution{Outcome: idempotency.Final, Status: 201, Body: []byte("{}"), Decision: idempotency.Decision{Reason: "the bank has it"}}, closed
		}))...)
	through := placeOf(t, p, s.guard, console.Options{Authorize: isAda})
	s.post("POST /payouts", "held", broken)
	s.post("POST /payouts", "made", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Location", "/payouts/1")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "{\r\n \"id\": \"\x1b[2J\"\n}\n")
	})
	for format, extension := range map[string]string{asTable: ".txt", asJSON: ".json"} {
		told := through.idem(t, s.named([]string{"why", "name:held", "-o", format})...).exits(t, inspect.ExitOK)
		requireGolden(t, "why-resolver"+extension, stable(told.out))
		for name, args := range map[string][]string{"why-answer": {"why", "name:made", "--answer"}, "why-ask": {"why", "name:held", "--ask"}} {
			got := through.idem(t, append(s.named(args), "-o", format)...)
			require.Equal(t, inspect.ExitOK, got.code, got.err)
			requireGolden(t, name+extension, stable(got.out))
			got = p.idem(t, s.named(args)...)
			require.Equal(t, inspect.ExitUsage, got.code)
			require.Contains(t, got.err, "needs --server")
		}
	}
	require.NotContains(t, through.idem(t, s.named([]string{"why", "name:held", "--no-ask"})...).out, "resolver")
	require.True(t, strings.HasPrefix(s.seen("held"), "held/"))
	require.Equal(t, inspect.ExitUsage, through.idem(t, s.named([]string{"why", "name:made", "--ask", "--answer"})...).code)
	blind := placeOf(t, p, s.guard, console.Options{Authorize: func(*http.Request) (console.Actor, error) { return console.Actor{}, nil }})
	for _, flag := range []string{"--answer", "--ask"} {
		got := blind.idem(t, s.named([]string{"why", "name:made", flag})...)
		require.Equal(t, inspect.ExitError, got.code)
		require.Contains(t, got.err, "you may")
	}
	require.NotContains(t, blind.idem(t, s.named([]string{"why", "name:held"})...).exits(t, inspect.ExitOK).out, "resolver")
	closed = errors.New("the bank is closed")
	require.Regexp(t, `(?m)^The resolver says now: unknown: it could not be asked: .*the bank is closed`, through.idem(t, s.named([]string{"why", "name:held"})...).exits(t, inspect.ExitOK).out)
}
