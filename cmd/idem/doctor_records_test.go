package main

import (
	"bytes"
	"database/sql"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/internal/pgserver"
	"example.com/idempotency/internal/redisproto"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/store"
)

// This file plants records for the doctor.

// A run that lasts is found in each store, by when it began and not by its last renewal.
func TestDoctorSeesARunThatLasts(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"redis", "sqlite", "postgres"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := places[name](t)
			s := serve(t, p.records)
			running, end := make(chan bool), make(chan bool)
			done := make(chan bool)
			go func() {
				s.post("POST /payouts", "lasts", func(http.ResponseWriter, *http.Request) { close(running); <-end }, hold)
				close(done)
			}()
			defer func() {
				close(end)
				<-done
			}()
			<-running
			for later, want := range map[time.Duration]string{0: ok, 20 * time.Minute: warn} {
				d := newDoctor(t, p, later)
				require.NoError(t, d.runs(t.Context()))
				got := d.checks(t)["runs"]
				require.Equal(t, want, got.Result, got.Found)
				require.Contains(t, got.Found, "1 in flight on routes that hold, the oldest for ")
			}
			if name == "sqlite" {
				for flag, want := range map[string]string{"--longest-run=1h": ok, "--longest-run=1ns": warn} {
					require.Equal(t, want, checks(t, inspect.ExitOK, append(p.flags, flag)...)["runs"].Result)
				}
			}
		})
	}
}

// Records that nobody can read, and those of a newer version, are found in each store.
func TestDoctorReadsRecords(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	inRedis := place{records: guardtest.RedisAt(t, server), flags: []string{"--redis", "redis://" + server.Addr, "--timeout", "1h"}}
	name := serve(t, inRedis.records).made("a")
	require.Equal(t, ok, checks(t, inspect.ExitOK, inRedis.flags...)["records"].Result)
	server.Do(t, "SET", "idem:"+name, "not a record")
	require.Equal(t, "1 of 1 cannot be read", checks(t, inspect.ExitUnhealthy, inRedis.flags...)["records"].Found)

	inFile := sqlitePlace(t)
	serve(t, inFile.records).made("a")
	require.Equal(t, "1 read", checks(t, inspect.ExitOK, inFile.flags...)["records"].Found)
	file, err := sql.Open("sqlite", inFile.flags[1])
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	_, err = file.ExecContext(t.Context(), "UPDATE idempotency_records SET state = 'later'")
	require.NoError(t, err)
	got := checks(t, inspect.ExitOK, inFile.flags...)["records"]
	require.Equal(t, []string{warn, "1 of 1 have the form of a newer version"}, []string{got.Result, got.Found})
}

// The forms of records are told with those that this program reads, in each store.
func TestDoctorTellsForms(t *testing.T) {
	t.Parallel()
	notes := inspect.FormsOf(nil)[slices.IndexFunc(inspect.FormsOf(nil), func(f inspect.Form) bool { return f.Name == "note" })]
	const sqlOf = "UPDATE %s SET marks = marks + 256, answer = NULL"
	server := redistest.Start(t)
	for name, c := range map[string]struct {
		at      func(t *testing.T) place
		form    string
		rewrite func(t *testing.T, p place, name string)
	}{
		"redis": {func(t *testing.T) place {
			return place{records: guardtest.RedisAt(t, server), flags: []string{"--redis", "redis://" + server.Addr}}
		}, "record", func(t *testing.T, _ place, name string) {
			server.Do(t, "HSET", "idem:"+name, redisproto.FieldHeader, "\x02 and more")
		}},
		"sqlite": {sqlitePlace, "row", func(t *testing.T, p place, _ string) {
			guardtest.ExecSQLite(t, p.flags[1], fmt.Sprintf(sqlOf, "idempotency_records"))
		}},
		"postgres": {func(t *testing.T) place { return postgresPlace(t, pgserver.Start(t, "fsync=on").DSN) }, "row", func(t *testing.T, p place, _ string) {
			pool, err := pgxpool.New(t.Context(), p.flags[1])
			require.NoError(t, err)
			defer pool.Close()
			_, err = pool.Exec(t.Context(), fmt.Sprintf(sqlOf, p.flags[3]))
			require.NoError(t, err)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := c.at(t)
			flags := append(p.flags, "--timeout", "1h")
			require.Contains(t, checks(t, inspect.ExitOK, flags...)["forms"].Found, "none; this idem reads "+c.form+" 1, ")
			s := serve(t, p.records)
			name := s.made("a")
			got := checks(t, inspect.ExitOK, flags...)["forms"]
			require.Equal(t, ok, got.Result)
			require.Contains(t, got.Found, c.form+" 1, answer 1, note "+inspect.Versions(notes.Writes)+", fingerprint 1; this idem reads "+c.form+" 1, ")
			require.Contains(t, got.Found, "answer 1, step 1, sealed 1, note "+inspect.Versions(notes.Reads)+", decision 1, fingerprint 1–6")
			c.rewrite(t, p, name)
			got = checks(t, inspect.ExitOK, flags...)["forms"]
			require.Equal(t, warn, got.Result)
			require.Contains(t, got.Found, c.form+" 2; not read here: "+c.form+" 2 in 1 records; this idem reads ")
		})
	}
}

// made makes a record with an answer, and returns its name.
func (s *service) made(key string) string {
	s.post("POST /orders", key, created)
	return s.name(key)
}

// A prefix that is the beginning of another one is found, and none of what a store itself keeps below its prefix is taken for it.
func TestDoctorSeesPrefixesThatOverlap(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := guardtest.RedisClient(t, server.Addr)
	flags := []string{"--redis", "redis://" + server.Addr, "--timeout", "1h"}
	fill(t, place{records: idempotency.NewRedisStore(client), pass: func() {}})
	require.Equal(t, ok, checks(t, inspect.ExitOK, flags...)["prefix"].Result)
	serve(t, idempotency.NewRedisStore(client, idempotency.WithPrefix("idem:eu:"))).post("POST /orders", "a", created)
	for prefix, want := range map[string]string{
		"idem:": `"idem:" has records of "idem:eu:" below it`, "idem:eu:": `"idem:eu:" is itself below "idem:", which has records`,
		"idem:e": `"idem:e" has records of "idem:eu:" below it, and "idem:e" is itself below "idem:", which has records`,
		"pay:":   "", "idem": `"idem" has records of "idem:" below it`, "": `"" has records of "idem:" below it`,
	} {
		got, result := checks(t, inspect.ExitOK, append(flags, "--prefix", prefix)...)["prefix"], warn
		if want == "" {
			result, want = ok, "it begins no other prefix, and no other begins it"
		}
		require.Equal(t, []string{result, want}, []string{got.Result, got.Found})
	}

	// The mark of a store tells of it where none of its records is among those that were looked at.
	server.Do(t, "FLUSHALL")
	require.NoError(t, serve(t, idempotency.NewRedisStore(client, idempotency.WithPrefix("p:"))).guard.Check(t.Context()))
	require.Equal(t, `"p:eu:" is itself below "p:", which has records`, checks(t, inspect.ExitOK, append(flags, "--prefix", "p:eu:")...)["prefix"].Found)
}

// Where a prefix has no records, people are told which have: a service may have another one than the default.
func TestHeldUnderAnotherPrefix(t *testing.T) {
	t.Parallel()
	p, _ := redisPlace(t)
	fill(t, p)
	serve(t, guardtest.RedisStore(t, guardtest.RedisClient(t, strings.TrimPrefix(p.flags[1], "redis://")), idempotency.WithPrefix("used:"))).post("POST /orders", "a", created)
	for name, args := range map[string][]string{
		"held-prefix.txt": {"pay:", "-o", asTable}, "held-prefix.json": {"pay:", "-o", asJSON}, "held-prefix-used.txt": {"used:"},
	} {
		got := p.idem(t, append([]string{"held", "--prefix"}, args...)...).exits(t, inspect.ExitOK)
		requireGolden(t, name, got.out+got.err)
	}
}

// Dead rows that vacuum has not removed are found.
func TestDoctorSeesBloat(t *testing.T) {
	t.Parallel()
	p := postgresPlace(t, pgserver.Start(t, "autovacuum=off", "fsync=on").DSN)
	pool, err := pgxpool.New(t.Context(), p.flags[1])
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	guardtest.Claim(t, p, "one", store.Claim{Owner: store.Owner{1}, Lease: time.Minute, Retention: time.Hour})
	const columns = "version, state, attempt, owner, fingerprint, hold, hold_ends, watched, marks, lease, retention, since, touched, expires, label, notes, sealed_key, steps, status, answer"
	for _, statement := range []string{
		"INSERT INTO " + p.flags[3] + " (key, " + columns + ") SELECT key || n, " + columns + " FROM " + p.flags[3] + ", generate_series(1, 11000) n",
		"DELETE FROM " + p.flags[3] + " WHERE key <> 'one'",
	} {
		_, err := pool.Exec(t.Context(), statement)
		require.NoError(t, err)
	}
	flags := append(p.flags, "--timeout", "1h")
	require.Eventually(t, func() bool { // the server counts a second later
		return checks(t, inspect.ExitOK, flags...)["bloat"].Result == warn
	}, time.Minute, 100*time.Millisecond)
}

// A planted doctor keeps what it says.
type planted struct {
	doctor
	out bytes.Buffer
}

// checks returns what the doctor has said.
func (d *planted) checks(t *testing.T) map[string]check {
	t.Helper()
	return parse(t, d.out.String())
}

// newDoctor returns a doctor of a place, by whose clock it is later.
func newDoctor(t *testing.T, p place, later time.Duration) *planted {
	t.Helper()
	d := &planted{}
	d.longest = 10 * time.Minute
	d.app = &app{out: &d.out, format: asJSON, now: func() time.Time { return time.Now().Add(later) }}
	d.list, d.source = d.app.list(), &source{records: p.records}
	return d
}
