package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/idempotency/internal/pagetest"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/faultproxy"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/internal/pgserver"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/store"
)

// This file plants what the doctor is to find.

// checks calls the doctor, and returns the worst result of each check.
func checks(t *testing.T, want int, args ...string) map[string]check {
	t.Helper()
	got := call(t, append([]string{"doctor", "-o", "json"}, args...)...)
	require.Equal(t, want, got.code, got.out+got.err)
	return parse(t, got.out)
}

func parse(t *testing.T, out string) map[string]check {
	t.Helper()
	found := map[string]check{}
	rank := map[string]int{ok: 1, warn: 2, fail: 3}
	for line := range strings.Lines(out) {
		var c check
		require.NoError(t, json.Unmarshal([]byte(line), &c))
		require.Contains(t, rank, c.Result)
		require.Equal(t, c.Result == ok, c.Remedy == "", line)
		if rank[c.Result] > rank[found[c.Check].Result] {
			found[c.Check] = c
		}
	}
	return found
}

var figures = regexp.MustCompile(`[0-9][0-9.]*(µs|ms|s|[BKMG]|%)?`)

// requireWell compares what the doctor says of a store that is well, without its figures.
func requireWell(t *testing.T, name string, flags []string) {
	t.Helper()
	for format, extension := range map[string]string{asTable: ".txt", asJSON: ".json"} {
		got := call(t, append([]string{"doctor", "--timeout", "1h", "-o", format}, flags...)...).exits(t, inspect.ExitOK)
		text := regexp.MustCompile(` {2,}`).ReplaceAllString(figures.ReplaceAllString(got.out, "N"), "  ")
		requireGolden(t, "doctor-"+name+extension, text)
	}
}

// requireClock lets the clock of this machine go wrong.
func requireClock(t *testing.T, flags []string) {
	t.Helper()
	for offset, want := range map[time.Duration]string{0: ok, time.Hour: warn, -time.Hour: warn} {
		var out bytes.Buffer
		a := &app{out: &out, errOut: &out, env: func(string) string { return "" }, now: func() time.Time { return time.Now().Add(offset) }}
		require.Equal(t, inspect.ExitOK, a.execute(t.Context(), append([]string{"doctor", "--timeout", "1h", "-o", "json"}, flags...)), out.String())
		require.Equal(t, want, parse(t, out.String())["clock"].Result)
	}
}

func TestDoctorOfRedis(t *testing.T) {
	t.Parallel()
	well := redistest.Start(t, "--appendonly", "yes", "--maxmemory", "1gb")
	requireWell(t, "redis", []string{"--redis", "redis://" + well.Addr})
	server := redistest.Start(t)
	flags := []string{"--redis", "redis://" + server.Addr, "--timeout", "1h"}
	requireClock(t, flags)
	set := func(name, value string) { server.Do(t, "CONFIG", "SET", name, value) }

	found := checks(t, inspect.ExitOK, flags...)
	require.Equal(t, warn, found["persistence"].Result)
	require.Equal(t, warn, found["memory"].Result)
	require.Equal(t, ok, found["replicas"].Result)

	set("maxmemory-policy", "allkeys-lru")
	require.Equal(t, fail, checks(t, inspect.ExitUnhealthy, flags...)["server"].Result)
	used, err := strconv.Atoi(server.Info(t, "memory")["used_memory"])
	require.NoError(t, err)
	set("maxmemory", strconv.Itoa(used+300_000))
	for i := range 100 {
		server.Do(t, "SET", i, strings.Repeat("x", 10_000)) // evicts
	}
	require.Equal(t, fail, checks(t, inspect.ExitUnhealthy, flags...)["evicted"].Result)
	set("maxmemory-policy", "noeviction")
	require.Equal(t, fail, checks(t, inspect.ExitUnhealthy, flags...)["memory"].Result)
	server.Do(t, "CONFIG", "RESETSTAT")
	used, err = strconv.Atoi(server.Info(t, "memory")["used_memory"])
	require.NoError(t, err)
	set("maxmemory", strconv.Itoa(used*100/87))
	require.Equal(t, warn, checks(t, inspect.ExitOK, flags...)["memory"].Result)
	set("maxmemory", "0")

	require.Equal(t, fail, checks(t, inspect.ExitUnhealthy, append(flags, "--replicas", "1")...)["replicas"].Result)
	replica := redistest.StartReplica(t, server)
	require.Equal(t, ok, checks(t, inspect.ExitOK, append(flags, "--replicas", "1")...)["replicas"].Result)
	require.Equal(t, fail, checks(t, inspect.ExitUnhealthy, "--redis", "redis://"+replica.Addr)["server"].Result)

	serve(t, guardtest.RedisAt(t, server)).post("POST /payouts", "a", broken, hold)
	require.Equal(t, warn, checks(t, inspect.ExitOK, flags...)["held"].Result)
}

// What a server keeps for its replicas and its file is no part of what it compares with its limit.
func TestDoctorCountsMemoryAsTheServerDoes(t *testing.T) {
	for buffers, want := range map[string]string{"0": fail, "900": ok} {
		d := newDoctor(t, place{}, 0)
		d.memory(info{"used_memory": "1500", "maxmemory": "1000", "maxmemory_human": "1000B", "mem_not_counted_for_evict": buffers})
		require.Equal(t, want, d.checks(t)["memory"].Result, buffers)
	}
}

// A replica that is there and has not caught up is told.
func TestDoctorSeesALaggingReplica(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "3600") // it gets its data in an hour
	host, port, err := net.SplitHostPort(server.Addr)
	require.NoError(t, err)
	redistest.Start(t, "--replicaof", host, port)
	require.Eventually(t, func() bool { return strings.Contains(server.Info(t, "replication")["slave0"], "state=") }, time.Minute, 5*time.Millisecond)
	found := checks(t, inspect.ExitOK, "--redis", "redis://"+server.Addr, "--timeout", "1h")["replicas"]
	require.Equal(t, warn, found.Result)
	require.Equal(t, "1, one of them not in step", found.Found)
}

// A disk on which nothing can be written is a fault.
func TestDoctorSeesADiskThatIsAway(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	require.NoError(t, os.Mkdir(dir, 0o700))
	server := redistest.Start(t, "--dir", dir)
	require.NoError(t, os.RemoveAll(dir))
	server.Do(t, "BGSAVE")
	require.Eventually(t, func() bool { return server.Info(t, "persistence")["rdb_last_bgsave_status"] == "err" }, time.Minute, 5*time.Millisecond)
	require.Equal(t, fail, checks(t, inspect.ExitUnhealthy, "--redis", "redis://"+server.Addr, "--timeout", "1h")["persistence"].Result)
}

// The account of docs/how-to/redis.md can do all but SCAN, and one that lacks a command is found out.
func TestDoctorOfAnAccount(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	if server.Before(t, "7.0") {
		t.Skip("this server has no ACL DRYRUN")
	}
	page := pagetest.File(t, "../../docs/how-to/redis.md")
	var rights []any
	for word := range strings.FieldsSeq(regexp.MustCompile(`ACL SETUSER .*`).FindString(string(page))) {
		rights = append(rights, word)
	}
	server.Do(t, rights...)
	url := "redis://" + server.Addr
	unlisted := checks(t, inspect.ExitOK, "--redis", url, "--account", "idempotency")["rights"]
	require.Equal(t, warn, unlisted.Result)
	require.Equal(t, "idempotency may not SCAN: Guard.Reconcile sees no record outside of the index, and idem stats and idem watch fail", unlisted.Found)
	server.Do(t, "ACL", "SETUSER", "idempotency", "+scan")
	require.Equal(t, ok, checks(t, inspect.ExitOK, "--redis", url, "--account", "idempotency")["rights"].Result)
	asService := "redis://idempotency:PASSWORD@" + server.Addr
	for _, right := range rights {
		if command, isCommand := strings.CutPrefix(right.(string), "+"); isCommand {
			server.Do(t, "ACL", "SETUSER", "idempotency", "-"+command)
			code := inspect.ExitUnhealthy
			if slices.Contains([]string{"ping", "subscribe", "unsubscribe", "hsetnx"}, command) {
				code = inspect.ExitOK
			}
			lacking := checks(t, code, "--redis", url, "--account", "idempotency")["rights"]
			require.Contains(t, strings.ToLower(lacking.Found), command)
			server.Do(t, "SCRIPT", "FLUSH") // or else no script would be sent
			o, err := redis.ParseURL(asService)
			require.NoError(t, err)
			client := redis.NewClient(o)
			one, st := guardtest.RedisClaim(), idempotency.NewRedisStore(client)
			key := base64.RawURLEncoding.EncodeToString(slices.Concat(one.Owner[:], one.Owner[:]))
			_, refused := st.Claim(t.Context(), key, one)
			require.Equal(t, strings.Contains(lacking.Found, "requests with a key get 503"), refused != nil, lacking.Found)
			_, again := st.Claim(t.Context(), key, one)
			require.Equal(t, strings.Contains(lacking.Found, "503") && !strings.Contains(lacking.Found, "routes with") && !strings.Contains(lacking.Found, "large"), again != nil, lacking.Found)
			one.Hold = true
			_, refused = st.Claim(t.Context(), base64.RawURLEncoding.EncodeToString(slices.Concat(one.Owner[:], make([]byte, 16))), one)
			require.Equal(t, strings.Contains(lacking.Found, "requests with a key get 503") || strings.Contains(lacking.Found, "routes with Hold"), refused != nil, lacking.Found)
			require.NoError(t, client.Close())
			server.Do(t, "ACL", "SETUSER", "idempotency", right)
		}
	}
	require.Equal(t, fail, checks(t, inspect.ExitUnhealthy, "--redis", url, "--account", "idempotency", "--prefix", "pay:")["rights"].Result)
	require.Equal(t, fail, checks(t, inspect.ExitUnhealthy, "--redis", url, "--account", "idempotency", "--replicas", "1")["rights"].Result)

	require.Equal(t, warn, checks(t, inspect.ExitOK, "--redis", asService)["rights"].Result, "it may not ask")
	require.Equal(t, "nobody is not there: requests with a key get 503", checks(t, inspect.ExitUnhealthy, "--redis", url, "--account", "nobody")["rights"].Found)
	server.Do(t, "ACL", "SETUSER", "idempotency", "off")
	require.Equal(t, "idempotency is off: requests with a key get 503", checks(t, inspect.ExitUnhealthy, "--redis", url, "--account", "idempotency")["rights"].Found)
}

// Of a Cluster, the doctor asks each node, also for what only the client of a Cluster sends.
func TestDoctorOfAnAccountOnACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2, true)
	if cluster.Masters[0].Before(t, "7.0") {
		t.Skip("this server has no ACL DRYRUN")
	}
	page := string(pagetest.File(t, "../../docs/how-to/redis.md"))
	create := strings.Fields(regexp.MustCompile(`ACL SETUSER .*`).FindString(page))
	nodes := append(cluster.Masters, cluster.Replicas...)
	acl := func(on *redistest.Server, words ...string) {
		args := []any{"ACL"}
		for _, word := range words {
			args = append(args, word)
		}
		on.Do(t, args...)
	}
	for _, node := range nodes {
		acl(node, append(create[1:], "+scan", "+cluster|slots", "+asking")...)
	}
	require.Eventually(t, func() bool { // the nodes have heard of the replicas
		slots := fmt.Sprint(cluster.Masters[0].Do(t, "CLUSTER", "SLOTS"))
		return !slices.ContainsFunc(nodes, func(n *redistest.Server) bool { return !strings.Contains(slots, strings.ReplaceAll(n.Addr, ":", " ")) })
	}, time.Minute, 5*time.Millisecond)
	require.Contains(t, page, "`+cluster\\|slots`")
	find := func(code int) check {
		return checks(t, code, "--redis", "redis://"+cluster.Masters[0].Addr, "--account", "idempotency", "--timeout", "1h")["rights"]
	}
	require.Equal(t, ok, find(inspect.ExitOK).Result)
	for _, node := range nodes {
		for command, c := range map[string]struct {
			code int
			says string
		}{
			"cluster|slots": {inspect.ExitUnhealthy, "CLUSTER SLOTS: the client of a Cluster finds no key"},
			"asking":        {inspect.ExitOK, "ASKING: keys in a slot that is moving get 503"},
			"zadd":          {inspect.ExitUnhealthy, "ZADD: new requests get 503 on routes with Hold, WithReference or WithFindableScope"},
		} {
			acl(node, "SETUSER", "idempotency", "-"+command)
			require.Equal(t, "idempotency on "+node.Addr+" may not "+c.says, find(c.code).Found)
			acl(node, "SETUSER", "idempotency", "+"+command)
		}
	}
	acl(nodes[1], "DELUSER", "idempotency")
	require.Equal(t, "idempotency on "+nodes[1].Addr+" is not there: requests with a key get 503", find(inspect.ExitUnhealthy).Found)
	acl(nodes[1], append(create[1:], "+scan", "+cluster|slots", "+asking")...)
	nodes[3].Kill()
	require.Equal(t, ok, find(inspect.ExitOK).Result, "a replica that is away")
}

func TestDoctorSeesASlowStore(t *testing.T) {
	t.Parallel()
	_, server := redisPlace(t)
	proxy := faultproxy.New(t, server.Addr())
	client := guardtest.RedisClient(t, proxy.Addr())
	d := &doctor{app: &app{out: new(bytes.Buffer), format: asJSON}, timeout: 40 * time.Millisecond}
	d.list, d.source = d.app.list(), &source{records: idempotency.NewRedisStore(client)}
	proxy.Delay(faultproxy.ToServer, 30*time.Millisecond)
	require.NoError(t, d.latency(t.Context()))
	require.Equal(t, 1, d.failed)
	proxy.Heal()
	d.timeout = time.Hour
	require.NoError(t, d.latency(t.Context()))
	require.Equal(t, 1, d.failed)
}

// manyHeld lists held records, page after page.
type manyHeld struct {
	records
	pages int
}

func (s *manyHeld) List(_ context.Context, q store.Query) (store.Page, error) {
	if s.pages--; s.pages == 0 {
		return store.Page{Entries: make([]store.Entry, 7)}, nil
	}
	return store.Page{Entries: make([]store.Entry, q.Limit/2), Next: "more"}, nil
}

func TestDoctorSaysWhereItStopsToCount(t *testing.T) {
	t.Parallel()
	for pages, want := range map[int]string{1: "7, the oldest for 0s", 2: "507, the oldest for 0s", 3: "1000 or more, the oldest for 0s"} {
		var out bytes.Buffer
		d := &doctor{app: &app{out: &out, format: asJSON}, source: &source{records: &manyHeld{pages: pages}}}
		d.list = d.app.list()
		require.NoError(t, d.waiting(t.Context()))
		require.Equal(t, want, parse(t, out.String())["held"].Found)
	}
}

func TestDoctorOfPostgres(t *testing.T) {
	t.Parallel()
	server := pgserver.Start(t, "fsync=on")
	pool, err := pgxpool.New(t.Context(), server.DSN)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	p := postgresPlace(t, server.DSN)
	table := p.flags[3]
	do := func(statement string) {
		_, err := pool.Exec(t.Context(), statement)
		require.NoError(t, err)
	}
	find := func(code int, by *pgserver.Server, setting string) map[string]check {
		return checks(t, code, "--timeout", "1h", "--table", table, "--postgres", by.DSN+setting)
	}
	requireWell(t, "postgres", p.flags)
	requireClock(t, p.flags)
	do("COMMENT ON TABLE " + table + " IS 'idempotency: schema 99, for programs of schema 1 or later'")
	found := find(inspect.ExitUnhealthy, server, "&default_transaction_isolation=serializable&synchronous_commit=off")
	require.Equal(t, warn, found["isolation"].Result)
	require.Equal(t, fail, found["durability"].Result)
	require.Contains(t, found["schema"].Found, "later")
	require.Equal(t, fail, find(inspect.ExitUnhealthy, server, "&default_transaction_read_only=on")["table"].Result)

	do("COMMENT ON TABLE " + table + " IS NULL")
	guardtest.Claim(t, p, "expired", store.Claim{Owner: store.Owner{1}, Lease: time.Minute, Retention: time.Hour})
	do("UPDATE " + table + " SET expires = expires - 9 * 3600000000")
	found = find(inspect.ExitOK, pgserver.StartBouncer(t, server), "&default_query_exec_mode=exec")
	require.Equal(t, warn, found["listen"].Result)
	require.Contains(t, found["schema"].Found, "not the newest")
	require.Equal(t, warn, found["sweep"].Result)
	do("ALTER TABLE " + table + " SET UNLOGGED")
	require.Contains(t, find(inspect.ExitUnhealthy, server, "")["table"].Found, "unlogged")

	unsafe := postgresPlace(t, pgserver.Shared(t).DSN)
	require.Equal(t, fail, checks(t, inspect.ExitUnhealthy, unsafe.flags...)["durability"].Result, "fsync is off")
}

// An illStore finds something wrong with itself.
type illStore struct{ records }

func (illStore) Health(context.Context) ([]error, error) {
	return []error{errors.New("pgstore: 36 of 37 connections: raise max_connections")}, nil
}

// What a store finds wrong with itself is a fault.
func TestDoctorAsksTheStore(t *testing.T) {
	t.Parallel()
	d := newDoctor(t, place{records: illStore{}}, 0)
	require.NoError(t, d.health(t.Context(), "server", "well", "the page"))
	require.Equal(t, check{"check", "server", fail, "36 of 37 connections: raise max_connections", "the page"}, d.checks(t)["server"])
}

func TestDoctorOfSQLite(t *testing.T) {
	t.Parallel()
	p := sqlitePlace(t)
	requireWell(t, "sqlite", p.flags)
	require.NoError(t, os.Chmod(p.flags[1], 0o644))
	require.Equal(t, warn, checks(t, inspect.ExitOK, p.flags...)["file"].Result)
	guardtest.Claim(t, p, "expired", store.Claim{Owner: store.Owner{1}, Lease: time.Minute, Retention: time.Hour})
	guardtest.ExecSQLite(t, p.flags[1], `UPDATE idempotency_records SET expires = expires - 9 * 3600000000`)
	require.Equal(t, warn, checks(t, inspect.ExitOK, p.flags...)["sweep"].Result)
}

// The doctor says when the store was born, that nobody has marked that, and that its mark cannot be read.
func TestDoctorOfAMark(t *testing.T) {
	t.Parallel()
	p := sqlitePlace(t)
	require.Equal(t, check{"check", "birth", warn, inspect.Unmarked, "run Guard.Reconcile in the service: it tells when the store has forgotten everything"},
		checks(t, inspect.ExitOK, p.flags...)["birth"])
	require.Contains(t, p.idem(t, "stats").out, "The store was born: "+inspect.Unmarked)

	require.NoError(t, serve(t, p.records).guard.Check(t.Context()))
	require.Regexp(t, `^store born 20.* UTC, \d+s ago$`, checks(t, inspect.ExitOK, p.flags...)["birth"].Found)

	guardtest.ExecSQLite(t, p.flags[1], "UPDATE idempotency_records SET owner = x'01' WHERE key LIKE '.birth.%'")
	unread := checks(t, inspect.ExitUnhealthy, p.flags...)["birth"]
	require.Equal(t, fail, unread.Result)
	require.Contains(t, unread.Found, "the mark of the store's birth cannot be read")
	got := p.idem(t, "stats")
	require.Equal(t, inspect.ExitError, got.code)
	require.Contains(t, got.err, "the mark of the store's birth cannot be read")
}
