package console

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/store"
)

// This file asks the screens how the store does.

// requireHealth demands that both screens say so.
func (b *browser) requireHealth(health, says string) {
	b.t.Helper()
	for _, target := range []string{"/", "/store"} {
		got := b.json().get(target).Body.String()
		require.Contains(b.t, got, `"health":"`+health+`"`)
		require.Contains(b.t, got, says)
	}
}

// A Redis that refuses every new key, or forgets some, is not called well.
func TestHealthOfRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := serveOn(t, guardtest.RedisStore(t, guardtest.PatientRedisClient(t, server.Addr)))
	b, clock := s.as(viewer), time.Unix(0, 0)
	b.h.(*console).now = func() time.Time { return clock }
	set := func(name, value string) { server.Do(t, "CONFIG", "SET", name, value); clock = clock.Add(askedEach) }

	b.requireHealth("well", "The store is well.")
	for _, part := range []string{"of the 2000 ms that the guard waits for it", "<dt>memory</dt><dd>", "<dt>keys of any kind</dt><dd>", "<dt>record</dt><dd>writes 1, reads 1"} {
		require.Contains(t, b.get("/store").Body.String(), part)
	}
	set("maxmemory", "100mb")
	require.Contains(t, b.get("/store").Body.String(), " MiB of 100.0 MiB</dd>")
	server.Do(t, "SET", "cached", "value")
	set("maxmemory", "1")
	require.Equal(t, http.StatusServiceUnavailable, s.post("POST /payouts", "a", created).Code)
	b.requireHealth("unwell", "The store is not well: store is full: ")
	set("maxmemory-policy", "allkeys-lru")
	b.requireHealth("unwell", "the server may evict live records")
	set("maxmemory", "0")
	set("maxmemory-policy", "noeviction")
	b.requireHealth("unwell", "The store is not well: keys that the server has evicted: 1;")
	server.Do(t, "CONFIG", "RESETSTAT")
	server.Do(t, "ACL", "SETUSER", "default", "-info")
	b.requireHealth("unwell", "The store is not well")
	clock = clock.Add(askedEach)
	b.requireHealth("unknown", "The store answers, and does not say how it does: NOPERM")
	require.Contains(t, b.get("/store").Body.String(), "The store does not tell: NOPERM")
	server.Kill()
	for _, target := range []string{"/", "/store"} {
		require.Contains(t, b.get(target).Body.String(), "The store does not answer: ")
	}
}

// A busyStore does not come to say how it does.
type busyStore struct {
	*idempotency.MemoryStore
	asked int
}

func (s *busyStore) Health(ctx context.Context) ([]error, error) {
	s.asked++
	<-ctx.Done()
	return nil, ctx.Err()
}

// The screens do not wait long for what the store says of itself, and do not ask again at once.
func TestHealthIsAskedSeldomAndNotForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, began := &busyStore{MemoryStore: idempotency.NewMemoryStore()}, time.Now()
		serveOn(t, st).as(viewer).requireHealth("unknown", "The store answers, and does not say how it does: context deadline exceeded.")
		require.Equal(t, askedFor, time.Since(began))
		require.Equal(t, 1, st.asked)
	})
}

// A deafStore ignores its context, and panics if that is asked of it. It tells of a fault without a name, unless it is deaf.
type deafStore struct {
	*idempotency.MemoryStore
	panics, hears bool
	until         chan struct{}
}

func (*deafStore) ObeysContext() bool { return false }

func (s *deafStore) wait() {
	if s.panics {
		panic("a nil map in the store")
	}
	if !s.hears {
		<-s.until
	}
}

func (s *deafStore) Health(context.Context) ([]error, error) { s.wait(); return []error{nil}, nil }

func (s *deafStore) Usage(ctx context.Context) ([]store.Figure, error) {
	s.wait()
	return s.MemoryStore.Usage(ctx)
}

func (s *deafStore) List(ctx context.Context, q store.Query) (store.Page, error) {
	s.wait()
	return s.MemoryStore.List(ctx, q)
}

// A store that ignores its context holds up no screen for longer than the store is waited for, and one that panics cuts none off.
func TestStoreThatIgnoresItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &deafStore{MemoryStore: idempotency.NewMemoryStore(), until: make(chan struct{})}
		b := serveOn(t, st).as(viewer)
		for n := range 2 * mostLeft {
			began := time.Now()
			require.Equal(t, http.StatusServiceUnavailable, b.get("/").Code)
			require.LessOrEqual(t, time.Since(began), patience+askedFor)
			require.LessOrEqual(t, b.h.(*console).told.gate.left.Load(), int64(mostLeft), "after %d requests", n)
		}
		close(st.until)
		synctest.Wait()
		b.requireHealth("unwell", "The store is not well: it does not say why.")

		st.panics = true
		time.Sleep(askedEach) // of the bubble
		require.Equal(t, http.StatusServiceUnavailable, b.get("/store").Code)
	})
}

// What a store tells of its size comes with the time at which it was asked.
func TestStoreTellsWhenItWasAsked(t *testing.T) {
	s := serve(t)
	b, clock := s.as(viewer).json(), time.Unix(1_800_000_000, 0)
	b.h.(*console).now = func() time.Time { return clock }
	look := func() (counted string, u inspect.Usage, records int64) {
		var p inspect.Store
		require.NoError(t, json.Unmarshal(b.get("/store").Body.Bytes(), &p))
		return p.Counted, *p.Usage, p.Usage.Figures[0].Used
	}
	counted, asked, records := look()
	require.Equal(t, []any{"2027-01-15T08:00:00Z", "2027-01-15T08:00:00Z", int64(0)}, []any{counted, asked.At, records})
	s.post("POST /orders", "a", created)
	clock = clock.Add(askedEach - time.Second)
	counted, asked, records = look()
	require.Equal(t, []any{"2027-01-15T08:00:04Z", "2027-01-15T08:00:00Z", int64(0)}, []any{counted, asked.At, records})
	clock = clock.Add(time.Second)
	_, asked, records = look()
	require.Equal(t, []any{"2027-01-15T08:00:05Z", int64(1)}, []any{asked.At, records})
}

// Of a store that cannot be asked, and of one that is behind, the screens say what they know.
func TestHealthOfAStoreThatCannotBeAsked(t *testing.T) {
	m := idempotency.NewMemoryStore()
	mute := serveOn(t, struct {
		store.Store
		store.Inspector
		store.Lister
	}{m, m, m}).as(viewer)
	mute.requireHealth("unknown", "The store answers.")
	require.NotContains(t, mute.json().get("/store").Body.String(), `"usage"`)
	require.NotContains(t, mute.get("/store").Body.String(), "How full it is")
	require.Equal(t, "The store is well. Claims that had no reply and may still arrive: 2. They are given back then, and nothing has run under them.",
		health{word: "well"}.sentence(&idempotency.Stats{GivingBack: 2}))
	require.Equal(t, "The store answers. It is behind with this process: 1 ended runs that are not recorded yet, 3 calls that it has not returned from.",
		health{word: "well"}.sentence(&idempotency.Stats{Pending: 1, Abandoned: 3}))
}
