package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.com/idempotency/internal/guardtest"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/store"
)

// This file decides, and looks at what clients get from then on.

func TestFinalIsWhatEveryRetryGets(t *testing.T) {
	t.Parallel()
	for store, make := range places {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			p := make(t)
			s := serve(t, p.records)
			s.post("POST /payouts", "payout-1", broken, hold)
			args := s.named([]string{
				"resolve", "name:payout-1", "final", "--seen", "seen:payout-1", "--unsealed", "--reason", "the bank has it",
				"--status", "201", "--header", "Location: /payouts/1", "--body", `{"id":1}`,
			})
			for range 2 { // the reply of the first may have been lost
				p.idem(t, args...).exits(t, inspect.ExitOK)
			}
			answer := s.post("POST /payouts", "payout-1", broken, hold)
			require.Equal(t, http.StatusCreated, answer.Code)
			require.Equal(t, `{"id":1}`, answer.Body.String())
			require.Equal(t, "/payouts/1", answer.Header().Get("Location"))
		})
	}
}

func TestAnswerOfAFileIsWhatCurlPrints(t *testing.T) {
	t.Parallel()
	const printed = "HTTP/2 201 \r\nLocation: /payouts/1\r\nTransfer-Encoding: chunked\r\n\r\n{\"id\":1}\n"
	file := filepath.Join(t.TempDir(), "answer")
	require.NoError(t, os.WriteFile(file, []byte(printed), 0o600))
	for key, where := range map[string]string{"in-a-file": file, "on-the-input": "-"} {
		p, _ := redisPlace(t)
		s := serve(t, p.records)
		s.post("POST /payouts", key, broken, hold)
		args := s.named([]string{"resolve", "name:" + key, "final", "--seen", "seen:" + key, "--unsealed", "--reason", "x", "--answer", where})
		callWith(t, printed, nil, append(args, p.flags...)...).exits(t, inspect.ExitOK)
		answer := s.post("POST /payouts", key, broken, hold)
		require.Equal(t, http.StatusCreated, answer.Code)
		require.Equal(t, "{\"id\":1}\n", answer.Body.String())
	}
}

// What curl prints may be something else than the answer that a client of the service would have got.
func TestAnswerOfAFileThatIsNotTheAnswer(t *testing.T) {
	t.Parallel()
	const whole = "HTTP/1.0 201 Created\r\nContent-Length: 8\r\n\r\n{\"id\":7}"
	p, _ := redisPlace(t)
	s := serve(t, p.records)
	s.post("POST /payouts", "a", broken, hold)
	args := s.named([]string{"resolve", "name:a", "final", "--seen", "seen:a", "--unsealed", "--reason", "x", "--answer", "-"})
	resolve := func(printed string, more ...string) result {
		return callWith(t, printed, nil, append(append(args, more...), p.flags...)...)
	}
	for printed, says := range map[string]string{
		"HTTP/1.1 200 Connection established\r\n\r\n" + whole:                             `another head, "HTTP/1.0 201 Created"`,
		"HTTP/1.1 302 Found\r\nLocation: /7\r\nContent-Length: 0\r\n\r\n" + whole:         "leave -L out",
		"HTTP/1.1 302 Found\r\nLocation: /7\r\n\r\n\r\nHTTP/2 201 \r\n\r\n{}":             `another head, "HTTP/2 201"`,
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/3 201 \r\n\r\n{}":                              "delete a head of 1xx",
		"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy" + whole:                      "the body has 55 bytes", // --retry
		"HTTP/1.1 201 Created\r\nContent-Length: 8\r\n\r\n":                               "the body has 0 bytes",
		"HTTP/2 201 \r\ncontent-length: 8\r\n\r\n{\"id\":7}\n":                            "the body has 9 bytes",
		"HTTP/2 201 \r\ncontent-encoding: br\r\ncontent-length: 8\r\n\r\n{\"id\":7}":      "without --compressed",
		"HTTP/2 201 \r\ncontent-encoding: gzip\r\n\r\n\xff\xd8 a picture":                 "without --compressed",
		"HTTP/1.1 201 \r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n":         "without --raw",
		"HTTP/1.1 200 Connection established\r\nServer: proxy\r\n\r\n\nHTTP/2 500 \n\nno": "--suppress-connect-headers",
	} {
		for _, more := range [][]string{nil, {"--dry-run"}} {
			got := resolve(printed, more...)
			require.Equal(t, inspect.ExitUsage, got.code, "%q: %s", printed, got.out)
			require.Contains(t, got.err, says, "%q", printed)
		}
	}
	got := resolve("HTTP/1.1 200 OK\r\n\r\n" + strings.Repeat("a", mostAnswer))
	require.Equal(t, inspect.ExitUsage, got.code)
	require.Contains(t, got.err, "larger than")
	got = p.idem(t, append(slices.Clone(args[:len(args)-2]), "--status", "201", "--header", "Content-Encoding: gzip", "--body", "abc")...).exits(t, inspect.ExitUsage)
	require.Contains(t, got.err, "the body is not in it")
	require.Equal(t, args[4], s.seen("a"), "nothing was written")

	for printed, says := range map[string]string{
		whole: "status 201, text/plain; charset=utf-8, 8 bytes",
		"HTTP/3 201 \r\ncontent-encoding: gzip\r\ncontent-type: a/b\r\n\r\n\x1f\x8b\b\x00": "status 201, a/b, 4 bytes",
		"HTTP/2 201 \r\ncontent-encoding: identity\r\n\r\n{}":                              "status 201, text/plain; charset=utf-8, 2 bytes",
		"HTTP/2 303 \r\ncontent-encoding: gzip\r\nlocation: /7\r\n\r\n":                    "status 303, no Content-Type, 0 bytes",
		"HTTP/1.1 200 OK\nContent-Length: 16\n\nsee HTTP/1.1 200":                          "status 200, text/plain; charset=utf-8, 16 bytes",
	} {
		got := resolve(printed, "--dry-run")
		require.Equal(t, inspect.ExitOK, got.code, got.err)
		require.Contains(t, got.out, "The answer: "+says+"\n")
	}
	require.Equal(t, inspect.ExitOK, resolve(whole).code)
	answer := s.post("POST /payouts", "a", broken, hold)
	require.Equal(t, http.StatusCreated, answer.Code)
	require.Equal(t, "text/plain; charset=utf-8", answer.Header().Get("Content-Type"), "as it was told")
	require.Equal(t, `{"id":7}`, answer.Body.String())
}

func TestTheOthersLetTheNextRequestRun(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		word, key string
		before    http.HandlerFunc
		more      []string
	}{
		{"not-executed", "a", broken, nil},
		{"resume", "b", afterStep("ledger"), nil},
		{"resume", "c", inDoubt("charge"), []string{"--not-done", "charge"}},
	} {
		p, _ := redisPlace(t)
		s := serve(t, p.records)
		s.post("POST /payouts", c.key, c.before, hold)
		args := s.named([]string{"resolve", "name:" + c.key, c.word, "--seen", "seen:" + c.key, "--reason", "x"})
		p.idem(t, append(args, c.more...)...).exits(t, inspect.ExitOK)
		require.Equal(t, http.StatusCreated, s.post("POST /payouts", c.key, created, hold).Code)
	}
}

func TestForgottenKeyRunsAsTheFirst(t *testing.T) {
	t.Parallel()
	p, server := redisPlace(t)
	s := serve(t, p.records)
	s.post("POST /payouts", "a", broken, hold)
	name := s.name("a")
	p.idem(t, "forget", name, "--seen", s.seen("a"), "--reason", "a test").exits(t, inspect.ExitOK)
	require.False(t, server.Exists("idem:"+name))
	require.Equal(t, inspect.ExitNotFound, p.idem(t, "why", name).code)
}

// A record that cannot be read can only be forgotten.
func TestCorruptRecord(t *testing.T) {
	t.Parallel()
	p, server := redisPlace(t)
	s := serve(t, p.records)
	s.post("POST /payouts", "a", created)
	name := s.name("a")
	server.HSet("idem:"+name, "m", server.HGet("idem:"+name, "m")[:9])
	for _, command := range []string{"why", "resolve"} {
		args := []string{command, name}
		if command == "resolve" {
			args = append(args, "resume", "--dry-run", "--reason", "x")
		}
		got := p.idem(t, args...)
		requireGolden(t, command+"-corrupt.txt", got.out+got.err)
	}
	const seen = "corrupt/0/00000000000000000000000000000000"
	require.Equal(t, inspect.ExitChanged, p.idem(t, "forget", name, "--seen", "held/1/00000000000000000000000000000001", "--reason", "x").code)
	require.Equal(t, inspect.ExitOK, p.idem(t, "forget", name, "--seen", seen, "--reason", "x", "--dry-run").code)
	require.True(t, server.Exists("idem:"+name))
	require.Equal(t, inspect.ExitOK, p.idem(t, "forget", name, "--seen", seen, "--reason", "x").code)
	require.False(t, server.Exists("idem:"+name))
}

// A held record that nobody can read is not settled: who looks for held keys is told of it, in every store.
func TestHeldRecordThatCannotBeRead(t *testing.T) {
	t.Parallel()
	damage := map[string]func(t *testing.T, p place, name string){
		"redis": func(t *testing.T, p place, name string) {
			opts, err := redis.ParseURL(p.flags[1])
			require.NoError(t, err)
			client := redis.NewClient(opts)
			defer client.Close()
			require.NoError(t, client.HSet(t.Context(), "idem:"+name, "m", "damaged").Err())
			require.NoError(t, client.ZAdd(t.Context(), "idem:holding index", redis.Z{Score: 1, Member: "foreign"}).Err())
		},
		"sqlite": func(t *testing.T, p place, name string) {
			guardtest.ExecSQLite(t, p.flags[1], "UPDATE idempotency_records SET marks = marks + 4611686018427387904 WHERE key = ?", name)
		},
		"postgres": func(t *testing.T, p place, name string) {
			conn, err := pgx.Connect(t.Context(), p.flags[1])
			require.NoError(t, err)
			defer conn.Close(context.Background())
			_, err = conn.Exec(t.Context(), "UPDATE "+p.flags[3]+" SET marks = marks + 4611686018427387904 WHERE key = $1", name)
			require.NoError(t, err)
		},
	}
	for name, harm := range damage {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := places[name](t)
			told := make(chan event.Event, 10)
			s := serve(t, p.records, idempotency.WithObserver(func(_ context.Context, e event.Event) {
				if e.Kind == event.Corrupt {
					told <- e
				}
			}))
			s.post("POST /payouts", "a", broken, hold)
			record := s.name("a")
			harm(t, p, record)
			got := p.idem(t, "held")
			require.Contains(t, got.out, record, got.err)
			require.Contains(t, got.out, "corrupt")
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- s.guard.Reconcile(ctx, time.Hour) }()
			require.Equal(t, record, (<-told).Record)
			stop()
			require.NoError(t, <-done)
		})
	}
}

// Whatever is decided with --dry-run, the store is the same afterwards, byte by byte.
func TestDryRunTouchesNothing(t *testing.T) {
	t.Parallel()
	p, server := redisPlace(t)
	s := fill(t, p)
	before := server.Dump()
	for _, key := range []string{"payout-1", "order-77", "charge-5", "order-78", "order-79", "order-80", "order-81"} {
		name := s.name(key)
		p.idem(t, "why", name)
		p.idem(t, "resolve", name, "final", "--unsealed", "--status", "200", "--reason", "x", "--dry-run")
		p.idem(t, "resolve", name, "resume", "--reason", "x", "--dry-run", "--not-done", "charge")
		p.idem(t, "resolve", name, "not-executed", "--reason", "x", "--dry-run")
		p.idem(t, "forget", name, "--reason", "x", "--dry-run")
		require.Equal(t, before, server.Dump(), key)
	}
}

// A decision about what was there is refused when something else is there, also with --dry-run.
func TestChangedMeanwhile(t *testing.T) {
	t.Parallel()
	for store, make := range places {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			p := make(t)
			s := serve(t, p.records)
			s.post("POST /payouts", "a", broken, hold)
			name, seen := s.name("a"), s.seen("a")
			require.Equal(t, inspect.ExitOK, p.idem(t, "resolve", name, "resume", "--seen", seen, "--reason", "another").code)
			s.post("POST /payouts", "a", broken, hold)
			now := s.seen("a")
			require.NotEqual(t, seen, now)
			for _, more := range [][]string{nil, {"--dry-run"}} {
				for _, decide := range [][]string{
					{"resolve", name, "final", "--status", "200", "--unsealed"}, {"resolve", name, "resume"}, {"resolve", name, "not-executed"}, {"forget", name},
				} {
					got := p.idem(t, append(append(decide, "--seen", seen, "--reason", "x"), more...)...).exits(t, inspect.ExitChanged)
					require.Contains(t, got.err, now)
				}
			}
			require.Equal(t, now, s.seen("a"))
		})
	}
}

// A service with a sealer could not read an answer from here, so it is refused wherever the record shows that.
func TestSealedRoute(t *testing.T) {
	t.Parallel()
	sealer, err := idempotency.NewSealer(bytes.Repeat([]byte{7}, 32))
	require.NoError(t, err)
	for _, c := range []struct {
		key    string
		before http.HandlerFunc
		kept   bool
	}{{"kept", broken, true}, {"step", afterStep("ledger"), false}} {
		p, _ := redisPlace(t)
		s := serve(t, p.records, idempotency.WithSealer(sealer), idempotency.WithKeptKeys(c.kept), hold)
		s.post("POST /payouts", c.key, c.before)
		name, seen := s.name(c.key), s.seen(c.key)
		got := p.idem(t, "resolve", name, "final", "--seen", seen, "--reason", "x", "--status", "201", "--unsealed").exits(t, inspect.ExitError)
		require.Contains(t, got.err, "the route seals")
		require.Equal(t, seen, s.seen(c.key))
		want := inspect.ExitOK // nothing of it has to be read
		if !c.kept {
			want = inspect.ExitError
		}
		require.Equal(t, want, p.idem(t, "resolve", name, "resume", "--seen", seen, "--reason", "x").code)
	}
}

// One name of a record in 64 begins like a flag.
func TestRecordThatBeginsLikeAFlag(t *testing.T) {
	t.Parallel()
	p := sqlitePlace(t)
	s := serve(t, p.records)
	key := ""
	for n := 0; !strings.HasPrefix(intent.Key{Scope: "alice", Value: key}.Name(), "-"); n++ {
		key = fmt.Sprint("payout-", n)
	}
	s.post("POST /payouts", key, broken, hold)
	name := s.name(key)
	require.True(t, strings.HasPrefix(name, "-"))
	got := p.idem(t, "why", name)
	require.Zero(t, got.code, got.err)
	require.Contains(t, got.out, "idem resolve "+name)
	got = p.idem(t, "resolve", name, "resume", "--reason", "x", "--seen", s.seen(key))
	require.Zero(t, got.code, got.err)
	require.Zero(t, p.idem(t, "forget", name, "--reason", "x", "--seen", s.seen(key)).code)
}

// A store that has made the decision may be gone before it says so.
func TestDecisionWithoutAReply(t *testing.T) {
	t.Parallel()
	o := inspect.Order{Record: "A7sryahtLZVJFr2ZL90kAYV1hkC1HOn3KDNnU1b0YbA", Word: "resume"}
	o.Resolution.Decision = idempotency.Decision{Actor: "ada", Reason: "the bank says so"}
	for _, err := range []error{context.DeadlineExceeded, io.EOF, timeout(t)} {
		got := undecided(o.Told(), "held", err)
		require.Equal(t, inspect.ExitUnreachable, codeOf(got), "%v", err)
		require.ErrorContains(t, got, "resume of "+o.Record+" by ada (the bank says so) may have been recorded all the same")
	}
	require.Equal(t, store.ErrChanged, undecided(o.Told(), "held", store.ErrChanged))
	o.DryRun = true
	require.Equal(t, io.EOF, undecided(o.Told(), "held", io.EOF))
}

// hanging is a store that does not answer.
type hanging struct{ *idempotency.MemoryStore }

func (hanging) Get(ctx context.Context, _ string) (store.Record, error) {
	<-ctx.Done()
	return store.Record{}, context.Cause(ctx)
}

// timeout is how the library says that a store does not answer.
func timeout(t *testing.T) (err error) {
	synctest.Test(t, func(t *testing.T) {
		g, newErr := guard(hanging{idempotency.NewMemoryStore()})
		require.NoError(t, newErr)
		_, err = g.Lookup(t.Context(), idempotency.Key{Scope: "s", Value: "k"})
	})
	return err
}
