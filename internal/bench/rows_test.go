package bench_test

import (
	"context"
	"crypto/sha256"
	"net/http"
	"net/url"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	fiberidempotency "github.com/gofiber/fiber/v3/middleware/idempotency"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"example.com/idempotency"
	"example.com/idempotency/internal/faultproxy"
	"example.com/idempotency/internal/load"
	"example.com/idempotency/internal/pgserver"
	"example.com/idempotency/stores/pgstore"
)

// batchSize is the number of requests between two new stores: it bounds what first runs
// keep.
func batchSize(work load.Work) int { return min(1000, 32<<20/len(work.Out)) }

// memoryRows are the requests to a handler of this process, protected by nothing, by the
// memory store, and by the least that any protection must do: to hash the body.
func memoryRows(work load.Work) []*row {
	bare := &row{name: "bare handler", size: batchSize(work), workers: 1}
	bare.prepare = each(work, func() http.Handler { return work }, keyless)
	floor := &row{name: "bare handler and SHA-256 of the body", size: batchSize(work), workers: 1, bare: bare}
	floor.prepare = each(work, func() http.Handler { return hashing(work) }, keyless)
	fresh := func() http.Handler { return guarded(idempotency.NewMemoryStore(), work) }
	rows := []*row{
		bare, floor,
		{name: "no key", floor: bare, prepare: each(work, fresh, keyless)},
		{name: "first run", floor: floor, prepare: each(work, fresh, firstRun)},
		{name: "replay", floor: floor, prepare: each(work, fresh, replay)},
		{name: "other payload, 409", floor: floor, prepare: each(work, fresh, otherPayload)},
	}
	for _, r := range rows[2:] {
		r.size, r.workers, r.bare = batchSize(work), 1, bare
	}
	return rows
}

// tightRows are the same requests against those to the tight reference.
func tightRows(work load.Work, pooled bool) []*row {
	var rows []*row
	for _, k := range []struct {
		name string
		send request
	}{{"first run", firstRun}, {"replay", replay}, {"other payload, 409", otherPayload}} {
		reference := &row{name: "tight: " + k.name}
		reference.prepare = each(work, func() http.Handler { return newTight(work, pooled) }, k.send)
		mine := &row{name: k.name, floor: reference}
		mine.prepare = each(work, func() http.Handler { return guarded(idempotency.NewMemoryStore(), work) }, k.send)
		rows = append(rows, reference, mine)
	}
	for _, r := range rows {
		// A new store is no more than a small part of so many requests.
		r.size, r.workers = min(10_000, 32<<20/len(work.Out)), 1
	}
	return rows
}

// parallelRows are the same requests by one worker and by two that share a store.
func parallelRows(work load.Work) []*row {
	var rows []*row
	for _, r := range memoryRows(work)[3:5] {
		one := &row{name: r.name + ", one core", size: batchSize(work), workers: 1, prepare: r.prepare}
		two := &row{name: r.name + ", two cores", size: batchSize(work), workers: 2, prepare: r.prepare, floor: one}
		rows = append(rows, one, two)
	}
	return rows
}

// A request is one of a kind, with a key that is new or with one that h has answered. It
// tells whether it was answered as it must be.
type request func(c *load.Caller, h http.Handler, fresh, answered string) bool

func keyless(c *load.Caller, h http.Handler, _, _ string) bool {
	return c.Send(h, "") == http.StatusCreated
}

func firstRun(c *load.Caller, h http.Handler, fresh, _ string) bool {
	return c.Send(h, fresh) == http.StatusCreated
}

func replay(c *load.Caller, h http.Handler, _, answered string) bool {
	return c.Send(h, answered) == http.StatusCreated
}

func otherPayload(c *load.Caller, h http.Handler, _, answered string) bool {
	c.Request.URL.RawQuery = "other"
	return c.Send(h, answered) == http.StatusConflict
}

// each prepares workers that share a handler and have a caller and fresh keys each.
func each(work load.Work, handler func() http.Handler, send request) func(int, int) []func(int) bool {
	return func(workers, n int) []func(int) bool {
		h := handler()
		calls := make([]func(int) bool, workers)
		for w := range calls {
			c, keys, answered := load.NewCaller(work), load.Keys(n), load.Key()
			calls[w] = func(i int) bool { return send(c, h, keys[i], answered) }
			c.Send(h, answered)
			send(c, h, load.Key(), answered) // warm
		}
		return calls
	}
}

// guarded is what a user writes.
func guarded(s idempotency.Store, h http.Handler, opts ...idempotency.Option) http.Handler {
	g, err := idempotency.New(s, idempotency.SharedScope, opts...)
	if err != nil {
		panic(err)
	}
	return g.Handler(h)
}

// hashing is the floor: no protection that compares payloads can do less.
func hashing(work load.Work) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hashed = sha256.Sum256(work.In)
		work.ServeHTTP(w, r)
	})
}

var hashed [sha256.Size]byte

// liveRows are requests to a memory store that has many records, against the same
// requests to one that has a thousand. What differs is the caches of the processor.
func liveRows(work load.Work, live int) []*row {
	few, many := liveStore(work, 1000), liveStore(work, live)
	var rows []*row
	for _, r := range []*row{
		{name: "replay", prepare: few.replays},
		{name: "replay, " + strconv.Itoa(live) + " live keys", prepare: many.replays},
		{name: "first run", prepare: few.firstRuns},
		{name: "first run, " + strconv.Itoa(live) + " live keys", prepare: many.firstRuns},
	} {
		r.size, r.workers = batchSize(work), 1
		rows = append(rows, r)
	}
	rows[1].floor, rows[3].floor = rows[0], rows[2]
	return rows
}

// A liveRecords is a store that has records already, which are made when they are needed
// for the first time.
type liveRecords struct {
	work load.Work
	n    int

	full  bool
	kept  http.Handler
	churn http.Handler // on the same store; its records are gone as soon as more come
	sent  int
}

func liveStore(work load.Work, n int) *liveRecords {
	store := idempotency.NewMemoryStore(idempotency.WithMaxEntries(2*n + 1000))
	g, err := idempotency.New(store, idempotency.SharedScope)
	if err != nil {
		panic(err)
	}
	return &liveRecords{
		work: work, n: n,
		kept: g.Handler(work), churn: g.With(idempotency.WithTTL(time.Millisecond)).Handler(work),
	}
}

func (s *liveRecords) fill(c *load.Caller) {
	if s.full {
		return
	}
	s.full = true
	for i := range s.n {
		c.Send(s.kept, liveKey(i))
	}
	runtime.GC()
}

func (s *liveRecords) replays(_, n int) []func(int) bool {
	c := load.NewCaller(s.work)
	s.fill(c)
	s.sent += n
	from := s.sent
	return []func(int) bool{func(i int) bool {
		// All over the store: the next record is not the next in memory.
		status := c.Send(s.kept, liveKey((from+i)*7919%s.n))
		return status == http.StatusCreated && c.Answer.Header().Get("Idempotent-Replayed") != ""
	}}
}

func (s *liveRecords) firstRuns(_, n int) []func(int) bool {
	c, keys := load.NewCaller(s.work), load.Keys(n)
	s.fill(c)
	return []func(int) bool{func(i int) bool {
		return c.Send(s.churn, keys[i]) == http.StatusCreated && c.Answer.Header().Get("Idempotent-Replayed") == ""
	}}
}

// liveKey makes a key when it is sent: one that comes from a network is in the caches too.
func liveKey(i int) string { return "live-" + strconv.Itoa(i) }

// The requests of one kind between two of another.
const redisBatch = 100

// redisRows are requests that are protected by a store on a Redis server, and what the
// network alone costs: a first run is two round trips, a replay one. The client has the options
// that one has by default, and in the last two rows ContextTimeoutEnabled.
func redisRows(work load.Work, client, obedient *redis.Client) []*row {
	ctx := context.Background()
	guard := func(client *redis.Client) func() http.Handler {
		store := idempotency.NewRedisStore(client)
		return func() http.Handler { return guarded(store, work) }
	}
	ping := func(times int) func(int, int) []func(int) bool {
		return func(int, int) []func(int) bool {
			return []func(int) bool{func(int) bool {
				ok := true
				for range times {
					ok = client.Ping(ctx).Err() == nil && ok
				}
				return ok
			}}
		}
	}
	one := &row{name: "PING", prepare: ping(1)}
	two := &row{name: "PING, twice", prepare: ping(2)}
	rows := []*row{
		one, two,
		{name: "first run", floor: two, prepare: each(work, guard(client), firstRun)},
		{name: "replay", floor: one, prepare: each(work, guard(client), replay)},
		{name: "first run, `ContextTimeoutEnabled`", floor: two, prepare: each(work, guard(obedient), firstRun)},
		{name: "replay, `ContextTimeoutEnabled`", floor: one, prepare: each(work, guard(obedient), replay)},
	}
	for _, r := range rows {
		r.size, r.each, r.bare = redisBatch, true, one
	}
	one.bare, two.bare = nil, nil
	return rows
}

// postgresBatch are the requests of one kind between two of another.
const postgresBatch = 10

// A shop keeps its orders in PostgreSQL. Each request inserts one.
type shop struct{ work load.Work }

// postgresRows are requests that insert a row in a transaction: without protection, with a record of
// its own, and with a record in the same transaction. Each round trip takes longer by the delay.
func postgresRows(t testing.TB, server *pgserver.Server, work load.Work, delay time.Duration) []*row {
	ctx := context.Background()
	dsn := server.DSN
	if delay > 0 {
		behind, err := url.Parse(dsn)
		require.NoError(t, err)
		proxy := faultproxy.New(t, behind.Host)
		proxy.Delay(faultproxy.ToServer, delay)
		behind.Host = proxy.Addr()
		dsn = behind.String()
	}
	pool, err := pgxpool.New(ctx, dsn+"&pool_max_conns=48") // enough for a crowd, of which each holds one
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	_, err = pool.Exec(ctx, "CREATE TABLE IF NOT EXISTS orders (id int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body bytea NOT NULL)")
	require.NoError(t, err)
	require.NoError(t, pgstore.Migrate(ctx, pool))
	store := func(opts ...pgstore.Option) *pgstore.Store {
		s, err := pgstore.New(ctx, pool, opts...)
		require.NoError(t, err)
		t.Cleanup(s.Close)
		return s
	}
	usual, async, whole := store(), store(pgstore.WithAsyncClaims()), store(pgstore.WithOneCommit(""))
	s := shop{work}
	inTx := func(ctx context.Context, opts pgx.TxOptions, f func(pgx.Tx) error) error {
		return pgx.BeginTxFunc(ctx, pool, opts, f)
	}
	plain := func() http.Handler { return s.handler(inTx) }
	separate := func() http.Handler { return guarded(usual, s.handler(inTx)) }
	joined := func(store *pgstore.Store) func() http.Handler {
		return func() http.Handler { return guarded(store, s.handler(store.InTx), idempotency.WithTransaction(true)) }
	}
	alone := &row{name: "transaction", prepare: each(work, plain, served(keyless))}
	apart := &row{name: "record of its own", floor: alone, prepare: each(work, separate, served(firstRun))}
	rows := []*row{
		alone, apart,
		{name: "joined", floor: alone, prepare: each(work, joined(usual), served(firstRun))},
		{name: "joined, against a record of its own", floor: apart, prepare: each(work, joined(usual), served(firstRun))},
		{name: "joined, asynchronous claim", floor: alone, prepare: each(work, joined(async), served(firstRun))},
		{name: "joined, one commit", floor: alone, prepare: each(work, joined(whole), served(firstRun))},
		{name: "replay", floor: alone, prepare: each(work, joined(usual), served(replay))},
	}
	for _, r := range rows {
		r.size, r.each, r.bare = postgresBatch, true, alone
	}
	alone.bare = nil
	return rows
}

// served sends a request whose context ends with it, as those of a server do: the driver watches such a context.
func served(send request) request {
	return func(c *load.Caller, h http.Handler, fresh, answered string) bool {
		was := c.Request
		defer func() { c.Request = was }()
		ctx, cancel := context.WithCancel(was.Context())
		defer cancel()
		c.Request = was.WithContext(ctx)
		return send(c, h, fresh, answered)
	}
}

// handler inserts an order in a transaction, and answers when it is committed or will be.
func (s shop) handler(transact func(context.Context, pgx.TxOptions, func(pgx.Tx) error) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := transact(r.Context(), pgx.TxOptions{}, func(tx pgx.Tx) error {
			_, err := tx.Exec(r.Context(), "INSERT INTO orders (body) VALUES ($1)", s.work.In)
			return err
		})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		s.work.ServeHTTP(w, r)
	})
}

// A fiberCaller is what a caller is, for the server that Fiber is made for.
type fiberCaller struct {
	work load.Work
	ctx  fasthttp.RequestCtx
}

func (c *fiberCaller) send(h fasthttp.RequestHandler, key string) int {
	r := &c.ctx.Request
	r.Reset()
	r.Header.SetMethod(http.MethodPost)
	r.SetRequestURI("http://bench.test/charges")
	r.Header.SetContentType("application/json")
	if key != "" {
		r.Header.Set("X-Idempotency-Key", key)
	}
	r.SetBodyRaw(c.work.In)
	c.ctx.Response.Reset()
	h(&c.ctx)
	return c.ctx.Response.StatusCode()
}

// fiberRows are the requests that Fiber's own middleware protects, in its default
// configuration with its memory store, against its own bare handler; and the same requests with this
// package, against those.
func fiberRows(work load.Work) []*row {
	app := func(protection ...any) fasthttp.RequestHandler {
		app := fiber.New(fiber.Config{BodyLimit: 4 << 20})
		if len(protection) > 0 {
			app.Use(protection...)
		}
		app.Post("/charges", func(c fiber.Ctx) error {
			c.Set("Content-Type", "application/json")
			return c.Status(http.StatusCreated).Send(work.Out)
		})
		return app.Handler()
	}
	prepare := func(handler func() fasthttp.RequestHandler, replay, keyed bool) func(int, int) []func(int) bool {
		return func(workers, n int) []func(int) bool {
			h := handler()
			calls := make([]func(int) bool, workers)
			for w := range calls {
				c, keys := &fiberCaller{work: work}, load.Keys(n)
				c.send(h, load.Key())
				if replay {
					c.send(h, keys[0])
				}
				calls[w] = func(i int) bool {
					key := keys[i]
					switch {
					case !keyed:
						key = ""
					case replay:
						key = keys[0]
					}
					return c.send(h, key) == http.StatusCreated
				}
			}
			return calls
		}
	}
	bareApp := func() fasthttp.RequestHandler { return app() }
	protected := func() fasthttp.RequestHandler { return app(fiberidempotency.New()) }
	bare := &row{name: "bare handler", prepare: prepare(bareApp, false, false)}
	first := &row{name: "first run", floor: bare, bare: bare, prepare: prepare(protected, false, true)}
	again := &row{name: "replay", floor: bare, bare: bare, prepare: prepare(protected, true, true)}
	here := func() http.Handler { return guarded(idempotency.NewMemoryStore(), work) }
	rows := []*row{
		bare,
		{name: "no key", floor: bare, bare: bare, prepare: prepare(protected, false, false)},
		first,
		again,
		{name: "first run with this package, on net/http", floor: first, prepare: each(work, here, firstRun)},
		{name: "replay with this package, on net/http", floor: again, prepare: each(work, here, replay)},
	}
	for _, r := range rows {
		r.size, r.workers = batchSize(work), 1
	}
	return rows
}
