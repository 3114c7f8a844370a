package main

import (
	"bytes"
	"context"
	"flag"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/console"
	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/pgserver"
	"example.com/idempotency/store"
	"example.com/idempotency/stores/pgstore"
	"example.com/idempotency/stores/sqlitestore"
)

// This file has stores with records in every state, and calls the program on them.

var write = flag.Bool("write", false, "write the golden files and the schema")

// TestMain is also the program, for a page that runs it: under its name.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "idem" {
		main()
	}
	logging.Disable()
	os.Exit(pgserver.Main(m))
}

// A result is what a call of the program leaves.
type result struct {
	args     []string
	code     int
	out, err string
}

// exits checks the code that the program exits with.
func (r result) exits(t *testing.T, code int) result {
	t.Helper()
	require.Equal(t, code, r.code, "%v: %s%s", r.args, r.out, r.err)
	return r
}

// A place is a store with its flags.
type place struct {
	records
	flags []string
	pass  func() // makes a lease of a millisecond end
}

// idem calls the program on the store, or on the service: without what only a store is told.
func (p place) idem(t *testing.T, args ...string) result {
	t.Helper()
	return call(t, append(p.fit(args), p.flags...)...)
}

func (p place) fit(args []string) []string {
	if p.flags[0] == "--server" {
		if n := slices.Index(args, "--actor"); n >= 0 {
			args = slices.Delete(slices.Clone(args), n, n+2)
		}
	}
	return args
}

func call(t *testing.T, args ...string) result {
	t.Helper()
	return callWith(t, "", nil, args...)
}

func callWith(t *testing.T, in string, env map[string]string, args ...string) result {
	t.Helper()
	var out, errOut bytes.Buffer
	code := run(t.Context(), args, strings.NewReader(in), &out, &errOut, func(name string) string { return env[name] })
	return result{args, code, out.String(), errOut.String()}
}

func redisPlace(t *testing.T) (place, *miniredis.Miniredis) {
	t.Helper()
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	return place{idempotency.NewRedisStore(client), []string{"--redis", "redis://" + server.Addr()}, func() { server.FastForward(2 * time.Millisecond) }}, server
}

func sqlitePlace(t *testing.T) place {
	t.Helper()
	file := filepath.Join(t.TempDir(), "orders.db")
	st, err := sqlitestore.Open(t.Context(), file)
	require.NoError(t, err)
	t.Cleanup(func() { _ = st.Close() })
	return place{st, []string{"--sqlite", file}, func() {}}
}

// postgresPlace is a table of its own, named after the test.
func postgresPlace(t *testing.T, dsn string) place {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	name := pgstore.WithTable(strings.ToLower(regexp.MustCompile(`\W`).ReplaceAllString(t.Name(), "_")))
	table := strings.ToLower(regexp.MustCompile(`\W`).ReplaceAllString(t.Name(), "_"))
	require.NoError(t, pgstore.Migrate(t.Context(), pool, name))
	st, err := pgstore.New(t.Context(), pool, name)
	require.NoError(t, err)
	t.Cleanup(st.Close)
	return place{st, []string{"--postgres", dsn, "--table", table}, func() {}}
}

// places are the stores that every command is tried on.
var places = map[string]func(t *testing.T) place{
	"redis":    func(t *testing.T) place { p, _ := redisPlace(t); return p },
	"sqlite":   sqlitePlace,
	"postgres": func(t *testing.T) place { return postgresPlace(t, pgserver.Shared(t).DSN) },
	"server":   func(t *testing.T) place { return serverPlace(t, console.Options{Authorize: isAda}) },
}

// isAda lets in whoever has the token, as ada.
func isAda(r *http.Request) (console.Actor, error) {
	if r.Header.Get("Authorization") != "Bearer "+token {
		return console.Actor{}, idempotency.ErrUnauthenticated
	}
	return console.Actor{Name: "ada", Decide: true, ReadAnswers: true}, nil
}

const token = "s3cret-t0ken"

// serverPlace is a service with a console, behind a socket.
func serverPlace(t *testing.T, o console.Options) place {
	t.Helper()
	p, _ := redisPlace(t)
	g, err := idempotency.New(p.records, idempotency.SharedScope, idempotency.WithTTL(keepAnswer), idempotency.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	return placeOf(t, p, g, o)
}

// placeOf is a place, looked at through the console of a guard.
func placeOf(t *testing.T, p place, g *idempotency.Guard, o console.Options) place {
	t.Helper()
	screens, err := console.New(g, o)
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("/console/", http.StripPrefix("/console", screens))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	p.flags = []string{"--server", server.URL + "/console", "--server-header", "Authorization: Bearer " + token}
	return p
}

// A service is what has made the records: a guard on a store.
type service struct {
	t     *testing.T
	guard *idempotency.Guard
}

// Times that are not near a whole hour, so that what is printed of them does not depend on the moment.
const (
	serviceTTL = 36*time.Hour + 30*time.Minute
	longLease  = 90*time.Minute + 30*time.Second
)

func serve(t *testing.T, st store.Store, opts ...idempotency.Option) *service {
	t.Helper()
	guard, err := idempotency.New(st, func(r *http.Request) (string, error) { return r.Header.Get("Tenant"), nil },
		append([]idempotency.Option{idempotency.WithTTL(serviceTTL), idempotency.WithLogger(slog.New(slog.DiscardHandler))}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = guard.Shutdown(context.Background()) })
	return &service{t, guard}
}

// post sends a request with a key to a handler of a route.
func (s *service) post(route, key string, h http.HandlerFunc, opts ...idempotency.Option) *httptest.ResponseRecorder {
	s.t.Helper()
	r := httptest.NewRequestWithContext(s.t.Context(), http.MethodPost, "/", strings.NewReader("{}"))
	r.Header.Set("Idempotency-Key", key)
	r.Header.Set("Tenant", "alice")
	w := httptest.NewRecorder()
	s.guard.With(append(opts, idempotency.WithRoute(route))...).Handler(h).ServeHTTP(w, r)
	return w
}

func (s *service) look(key string) idempotency.RecordInfo {
	s.t.Helper()
	info, err := s.guard.Lookup(s.t.Context(), idempotency.Key{Scope: "alice", Value: key})
	require.NoError(s.t, err)
	return info
}

// name is the name of the record of a key.
func (s *service) name(key string) string { return s.look(key).Record }

func (s *service) seen(key string) string { return s.look(key).Seen().String() }

// How handlers end.
func created(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }

var broken, afterStep, inDoubt = guardtest.Broken, guardtest.AfterStep, guardtest.InDoubt

var hold = idempotency.WithRecovery(idempotency.Hold)

// fill makes a record in every state, those that are held in this order.
func fill(t *testing.T, p place) *service {
	t.Helper()
	s := serve(t, p.records, idempotency.WithFindableScope(true), idempotency.WithReference(func(r *http.Request, _ []byte) string {
		number, _ := strings.CutPrefix(r.Header.Get("Idempotency-Key"), "order-")
		return number
	}))
	_, err := s.guard.Hook().Engine().LookForBirth(t.Context())
	require.NoError(t, err)
	s.post("POST /payouts", "payout-1", broken, hold)
	s.post("POST /orders", "order-77", afterStep("ledger"), hold, idempotency.WithRetention(60*time.Hour))
	s.post("POST /charges", "charge-5", inDoubt("charge"))
	s.post("POST /charges", "charge-5", inDoubt("charge")) // finds the mark
	s.post("POST /orders", "order-78", created)
	s.post("POST /orders", "order-79", broken)
	for key, lease := range map[string]time.Duration{"order-80": longLease, "order-81": time.Millisecond} {
		name := idempotency.Key{Scope: "alice", Value: key}
		_, err := p.Claim(t.Context(), intent.Key(name).Name(), store.Claim{
			Owner: store.Owner{1}, Lease: lease, Retention: 2 * longLease, Label: "POST /orders",
		})
		require.NoError(t, err)
	}
	p.pass()
	require.Eventually(t, func() bool {
		info, err := s.guard.Lookup(t.Context(), idempotency.Key{Scope: "alice", Value: "order-81"})
		return err == nil && info.Lease <= 0
	}, time.Minute, time.Millisecond)
	return s
}

// changing are the parts of an output that differ from call to call.
var changing = []struct {
	of *regexp.Regexp
	to string
}{
	{regexp.MustCompile(`/[0-9a-f]{32}`), "/0123456789abcdef0123456789abcdef"},
	{regexp.MustCompile(`("id":"|Done, decision |\()[0-9a-f]{32}`), "${1}00112233445566778899aabbccddeeff"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d UTC, \d+s`), "2026-11-03 14:30 UTC, 24d"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`), "2026-11-27T03:12:09Z"},
	{regexp.MustCompile(`\b\d{1,2}s( {2,3}|\b)`), "0s   "}, // as wide as the column of ages
	{regexp.MustCompile(`("(?:age|oldest)_seconds"):\d+`), "$1:0"},
	{regexp.MustCompile(`("(?:ends_in|lease)_seconds"):\d+`), "$1:3600"},
	{regexp.MustCompile(`(--cursor )\S+`), "${1}CURSOR"},
	{regexp.MustCompile(`("cursor"):"[^"]+"`), `$1:"CURSOR"`},
}

func stable(text string) string {
	for _, c := range changing {
		text = c.of.ReplaceAllString(text, c.to)
	}
	return text
}

// requireGolden compares an output with a file of testdata.
func requireGolden(t *testing.T, name, got string) {
	t.Helper()
	guardtest.RequireGolden(t, filepath.Join("testdata", name), got, *write)
}
