package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/internal/faultproxy"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/store"
)

// watching starts idem watch, and returns how to read its next line, and how to end it.
func watching(t *testing.T, flags ...string) (line func() change, end func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	read, out := io.Pipe()
	t.Cleanup(func() { cancel(); _ = read.Close() })
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, append([]string{"watch", "--every", "5ms", "-o", "json"}, flags...), nil, out, out, func(string) string { return "" })
		_ = out.Close()
	}()
	lines := bufio.NewReader(read)
	line = func() (c change) {
		text, err := lines.ReadBytes('\n')
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, &c), string(text))
		require.NotEmpty(t, c.Time)
		c.Time = ""
		return c
	}
	return line, func() int { cancel(); _ = read.Close(); return <-code }
}

// watched is what a watch prints while a key is held, settled, held again and forgotten, and the store goes away.
func watched(t *testing.T, format string) string {
	t.Helper()
	p, server := redisPlace(t)
	s := serve(t, p.records)
	var out bytes.Buffer
	a := &app{out: &out, format: format, now: func() time.Time { return time.Date(2026, 11, 27, 3, 12, 9, 0, time.UTC) }}
	w := &watcher{app: a, desk: &source{records: p.records, target: target{ttl: keepAnswer}}, lapsed: true, known: map[string]change{}}
	look := func() { w.look(t.Context()) }
	s.post("POST /payouts", "a", broken, hold)
	look()
	look()
	require.Equal(t, inspect.ExitOK, p.idem(t, "resolve", s.name("a"), "resume", "--seen", s.seen("a"), "--reason", "x").code)
	look()
	s.post("POST /payouts", "a", broken, hold)
	look()
	require.Equal(t, inspect.ExitOK, p.idem(t, "forget", s.name("a"), "--seen", s.seen("a"), "--reason", "x").code)
	look()
	server.SetError("LOADING Redis is loading the dataset in memory")
	look()
	server.SetError("")
	look()
	return out.String()
}

func TestWatchIsPrinted(t *testing.T) {
	t.Parallel()
	requireGolden(t, "watch.txt", watched(t, asTable))
	requireGolden(t, "watch.json", watched(t, asJSON))
}

func TestWatchTellsEachChangeOnce(t *testing.T) {
	t.Parallel()
	p, _ := redisPlace(t)
	s := serve(t, p.records)
	s.post("POST /payouts", "a", broken, hold)
	name := s.name("a")
	line, end := watching(t, p.flags...)
	require.Equal(t, change{Type: "change", Change: "held", Record: name, Route: "POST /payouts", State: "held", Attempt: 1}, line())
	require.Equal(t, inspect.ExitOK, p.idem(t, "resolve", name, "resume", "--seen", s.seen("a"), "--reason", "x").code)
	require.Equal(t, change{Type: "change", Change: "settled", Record: name, Route: "POST /payouts", State: "released", Attempt: 1}, line())
	s.post("POST /payouts", "a", broken, hold)
	require.Equal(t, change{Type: "change", Change: "held", Record: name, Route: "POST /payouts", State: "held", Attempt: 2}, line())
	require.Equal(t, inspect.ExitOK, p.idem(t, "forget", name, "--seen", s.seen("a"), "--reason", "x").code)
	require.Equal(t, change{Type: "change", Change: "settled", Record: name, State: "gone"}, line())

	lapsing := intent.Key{Scope: "alice", Value: "b"}.Name()
	guardtest.Claim(t, p, lapsing, store.Claim{Owner: store.Owner{1}, Lease: time.Millisecond, Retention: time.Hour, Label: "b"})
	p.pass()
	require.Equal(t, change{Type: "change", Change: "lapsed", Record: lapsing, Route: "b", State: "lapsed", Attempt: 1}, line())
	require.Equal(t, inspect.ExitOK, end())
}

func TestWatchOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	p, server := redisPlace(t)
	serve(t, p.records).post("POST /payouts", "a", broken, hold)
	proxy := faultproxy.New(t, server.Addr())
	line, end := watching(t, "--redis", "redis://"+proxy.Addr(), "--lapsed=false")
	require.Equal(t, "held", line().Change)
	proxy.Refuse()
	away := line()
	require.Equal(t, "store-away", away.Change)
	require.NotEmpty(t, away.Error)
	proxy.Heal()
	require.Equal(t, "store-back", line().Change)
	require.Equal(t, inspect.ExitOK, end())
}
