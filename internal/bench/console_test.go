package bench_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/console"
	"example.com/idempotency/internal/pgserver"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/store"
	"example.com/idempotency/stores/pgstore"
)

var records = flag.Int("records", 0, "among how many records the console is measured; by default 100,000 where a Redis is required, and 1,000")

// What the first page of held keys, and a page of the console, may take among a million records. They do not walk, so it is as much
// among fewer: a walk over 100,000 takes longer.
const (
	heldLimit = 50 * time.Millisecond
	pageLimit = 100 * time.Millisecond
)

// heldKeys are on ten routes.
const heldKeys = 1000

// TestConsoleAmongMany prints how long the console takes for its pages, with a thousand keys that are held.
func TestConsoleAmongMany(t *testing.T) {
	if *records == 0 {
		*records = 1000
		if os.Getenv("REDIS_REQUIRED") != "" {
			*records = 100_000
		}
	}
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	pool, err := pgxpool.New(t.Context(), pgserver.Start(t, "fsync=off").DSN)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	require.NoError(t, pgstore.Migrate(t.Context(), pool))
	postgres, err := pgstore.New(t.Context(), pool)
	require.NoError(t, err)
	t.Cleanup(postgres.Close)

	var out strings.Builder
	fmt.Fprintf(&out, "%d records, %d of them held\n\n| page | Redis | PostgreSQL |\n|---|---:|---:|\n", *records, heldKeys)
	inRedis := consoleTimes(t, idempotency.NewRedisStore(client), func(name string) {
		copies := redis.NewScript(`for i = 1, tonumber(ARGV[1]) do redis.call('COPY', KEYS[1], KEYS[1] .. ARGV[2] .. i) end return 1`)
		const batch = 1000 // a server that is busy for longer answers nobody
		for n := 0; n < *records; n += batch {
			require.NoError(t, copies.Run(t.Context(), client, []string{"idem:" + name}, batch, fmt.Sprint(n, "-")).Err())
		}
	})
	inPostgres := consoleTimes(t, postgres, func(name string) {
		const columns = "version, state, attempt, owner, fingerprint, hold, hold_ends, watched, marks, lease, retention, since, touched, expires, label, notes, sealed_key, steps, status, answer"
		_, err := pool.Exec(t.Context(), "INSERT INTO idempotency_records (key, "+columns+") SELECT key || n, "+columns+
			" FROM idempotency_records, generate_series(1, $2::int) n WHERE key = $1", name, *records)
		require.NoError(t, err)
		_, err = pool.Exec(t.Context(), "ANALYZE idempotency_records")
		require.NoError(t, err)
	})
	for i, page := range inRedis {
		fmt.Fprintf(&out, "| %s | %v | %v |\n", page.name, page.took, inPostgres[i].took)
		require.Less(t, max(page.least, inPostgres[i].least), page.limit, page.name)
	}
	t.Log(out.String())
}

// A page took so long, as the median, and at least so long: when nothing else took the processor, which is what has a limit.
type page struct {
	name               string
	took, least, limit time.Duration
}

// consoleTimes looks at a store with held keys and copies of a completed record.
func consoleTimes(t *testing.T, st store.Store, fill func(name string)) []page {
	t.Helper()
	guard, err := idempotency.New(st, idempotency.SharedScope, idempotency.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	post := func(route, key string, status int, opts ...idempotency.Option) string {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader("{}"))
		r.Header.Set("Idempotency-Key", key)
		guard.With(append(opts, idempotency.WithRoute(route))...).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
		})).ServeHTTP(httptest.NewRecorder(), r)
		info, err := guard.Lookup(t.Context(), idempotency.Key{Scope: store.Shared, Value: key})
		require.NoError(t, err)
		return info.Record
	}
	fill(post("POST /orders", "order", http.StatusCreated))
	held := make([]string, heldKeys)
	for n := range held {
		held[n] = post(fmt.Sprint("POST /payouts/", n%10), fmt.Sprint("payout-", n), http.StatusInternalServerError, idempotency.WithRecovery(idempotency.Hold))
	}
	h, err := console.New(guard, console.Options{Authorize: func(*http.Request) (console.Actor, error) {
		return console.Actor{Name: "ada", Decide: true}, nil
	}})
	require.NoError(t, err)
	pages := []page{timed("first 50 held, of the store", heldLimit, func() {
		page, err := st.(store.Lister).List(context.Background(), store.Query{Holding: true, States: []store.State{store.Held}, Limit: 50})
		require.NoError(t, err)
		require.Len(t, page.Entries, 50)
	})}
	for _, p := range [][2]string{
		{"Now", "/"},
		{"Now, of one route", "/?route=POST+/payouts/7"},
		{"One key", "/records/" + held[0]},
		{"Several keys: those of a route", "/group?" + groupIn(t, h)},
		{"Store", "/store"},
	} {
		pages = append(pages, timed(p[0], pageLimit, func() {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, p[1], http.NoBody))
			require.Equal(t, http.StatusOK, w.Code, p[0])
		}))
	}
	return pages
}

// groupIn returns what names the first group of the first page.
func groupIn(t *testing.T, h http.Handler) string {
	t.Helper()
	r, w := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody), httptest.NewRecorder()
	r.Header.Set("Accept", "application/json")
	h.ServeHTTP(w, r)
	var now struct {
		Groups []struct{ Route, Minute string }
	}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &now))
	return url.Values{"route": {now.Groups[0].Route}, "minute": {now.Groups[0].Minute}}.Encode()
}

// timed calls f 21 times.
func timed(name string, limit time.Duration, f func()) page {
	times := make([]time.Duration, 21)
	for i := range times {
		start := time.Now()
		f()
		times[i] = time.Since(start)
	}
	return page{name, median(times).Round(10 * time.Microsecond), slices.Min(times), limit}
}
