package main

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/store"
)

// midMinute calls the program with a clock by which records of the last 50 seconds are of one minute.
func (p place) midMinute(t *testing.T, args ...string) result {
	t.Helper()
	var out, errOut bytes.Buffer
	a := &app{out: &out, errOut: &errOut, env: func(string) string { return "" }, now: func() time.Time { return time.Date(2026, 11, 27, 3, 12, 50, 0, time.UTC) }}
	code := a.execute(t.Context(), append(p.fit(args), p.flags...))
	return result{args, code, out.String(), errOut.String()}
}

// All that one cause may have is decided at once, and nothing else.
func TestResolveAlike(t *testing.T) {
	t.Parallel()
	for name, make := range places {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := make(t)
			s := serve(t, p.records)
			s.post("POST /orders", "order-1", broken, hold)
			s.post("POST /payouts", "payout-1", afterStep("ledger"), hold)
			s.post("POST /payouts", "payout-2", broken, hold)
			s.post("POST /payouts", "payout-3", broken, hold)
			s.post("POST /payouts", "payout-4", created, hold)
			about := func(word string, more ...string) result {
				args := append([]string{"resolve", "name:payout-2", word, "--seen", "seen:payout-2", "--reason", "the bank was away", "--actor", "ada"}, more...)
				return p.midMinute(t, s.named(args)...)
			}
			for format, extension := range map[string]string{asTable: ".txt", asJSON: ".json"} {
				got := about("resume", "--expect", "2", "-o", format)
				require.Equal(t, inspect.ExitChanged, got.code, got.err)
				requireGolden(t, "resolve-alike-count"+extension, stable(got.out+got.err))
				got = about("not-executed", "--expect", "3", "--dry-run", "-o", format)
				require.Equal(t, inspect.ExitError, got.code, got.err)
				requireGolden(t, "resolve-alike"+extension, stable(got.out+got.err))
			}
			got := p.midMinute(t, s.named([]string{"resolve", "name:payout-2", "resume", "--seen", "seen:payout-3", "--reason", "x", "--expect", "3"})...)
			require.Equal(t, inspect.ExitChanged, got.code, "what was seen is not there")
			require.Equal(t, inspect.ExitChanged, about("resume", "--expect", "0").code)
			for _, key := range []string{"payout-1", "payout-2", "payout-3"} {
				require.True(t, strings.HasPrefix(s.seen(key), "held/1/"))
			}

			require.Equal(t, inspect.ExitError, p.midMinute(t, s.named([]string{"resolve", "name:payout-4", "resume", "--seen", "seen:payout-4", "--reason", "x", "--expect", "3"})...).code,
				"what is not held is not among them")

			got = about("not-executed", "--expect", "3")
			require.Equal(t, inspect.ExitError, got.code, got.err)
			require.Contains(t, got.out, "Left alone: "+s.name("payout-1"))
			require.Contains(t, got.err, "left 1 of 3 keys alone")
			for key, state := range map[string]string{"order-1": "held", "payout-1": "held", "payout-2": "released", "payout-3": "released"} {
				require.True(t, strings.HasPrefix(s.seen(key), state), key)
			}
			require.Equal(t, http.StatusCreated, s.post("POST /payouts", "payout-3", created, hold).Code)
		})
	}
}

// All that one cause may have is forgotten at once, and nothing else.
func TestForgetAlike(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"sqlite", "server"} {
		p := places[name](t)
		s := serve(t, p.records)
		for _, key := range []string{"payout-1", "payout-2"} {
			s.post("POST /payouts", key, afterStep("ledger"), hold)
		}
		s.post("POST /payouts", "payout-3", created, hold)
		forget := func(key string, more ...string) result {
			return p.midMinute(t, s.named(append([]string{"forget", "name:" + key, "--seen", "seen:" + key, "--reason", "a test", "--actor", "ada"}, more...))...)
		}
		forget("payout-1", "--expect", "3").exits(t, inspect.ExitChanged)
		got := forget("payout-3", "--expect", "2").exits(t, inspect.ExitError)
		require.Contains(t, got.err, "--expect is about keys that are held, and "+s.name("payout-3")+" is completed. Nothing was changed")
		require.Contains(t, forget("payout-1", "--expect", "2", "--dry-run").exits(t, inspect.ExitOK).out, "Dry run")
		require.Equal(t, "held", s.look("payout-2").State.String())
		forget("payout-1", "--expect", "2").exits(t, inspect.ExitOK)
		require.Equal(t, http.StatusCreated, s.post("POST /payouts", "payout-2", created, hold).Code)
		require.Equal(t, "completed", s.look("payout-3").State.String())
	}
}

// A minute is that of the clock of whoever calls, less the age.
func TestAlikeIsOfOneMinute(t *testing.T) {
	t.Parallel()
	p, server := redisPlace(t)
	s := serve(t, p.records)
	s.post("POST /payouts", "before", broken, hold)
	server.FastForward(time.Minute)
	s.post("POST /payouts", "a", broken, hold)
	s.post("POST /payouts", "b", broken, hold)
	for key, n := range map[string]string{"before": "1", "a": "2"} {
		got := p.midMinute(t, s.named([]string{"resolve", "name:" + key, "resume", "--dry-run", "--reason", "x", "--expect", n})...)
		require.Equal(t, inspect.ExitOK, got.code, got.err)
		require.Contains(t, got.out, s.name(key))
	}
}

// A store that goes away ends a decision about several.
func TestAlikeWithoutAStore(t *testing.T) {
	t.Parallel()
	p, server := redisPlace(t)
	s := serve(t, p.records)
	s.post("POST /payouts", "a", broken, hold)
	a, d := &app{out: new(bytes.Buffer), now: time.Now}, &source{records: p.records, target: target{ttl: time.Hour}}
	story, err := d.Why(t.Context(), s.name("a"))
	require.NoError(t, err)
	o := inspect.Order{Record: s.name("a"), Word: "resume"}
	require.NoError(t, o.Seen.UnmarshalText([]byte(s.seen("a"))))
	server.SetError("LOADING")
	err = a.decideAlike(t.Context(), d, story.Record, o, 1)
	require.Equal(t, inspect.ExitUnreachable, codeOf(err), "%v", err)
	require.NotErrorIs(t, err, store.ErrChanged)
}
