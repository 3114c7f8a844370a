package redisstore_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/redisstore"
	"example.com/idempotency/store"
)

// A counter counts the commands of a client.
type counter struct{ commands atomic.Int64 }

func (*counter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.commands.Add(1)
		return next(ctx, cmd)
	}
}

func (c *counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.commands.Add(int64(len(cmds)))
		return next(ctx, cmds)
	}
}

// listed returns a store with 60 records, the first cursors of three queries, and a counter of the
// commands that List sends.
func listed(t testing.TB) (s *redisstore.Store, queries []store.Query, sent *counter) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr(), ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	s = redisstore.New(client, redisstore.Config{Prefix: "idem:"})
	for range 60 {
		c := guardtest.RedisClaim()
		c.Hold, c.Label = true, "POST /charges"
		guardtest.Claim(t, s, guardtest.RedisKey(), c)
	}
	queries = []store.Query{{Limit: 5}, {Limit: 5, Holding: true}, {Limit: 5, Label: "POST /charges"}}
	for i := range queries {
		page, err := s.List(t.Context(), queries[i])
		require.NoError(t, err)
		require.NotEmpty(t, page.Next)
		queries[i].Cursor = page.Next
	}
	sent = &counter{}
	client.AddHook(sent)
	return s, queries, sent
}

// A cursor that the store has not made for the query, or that would cost the server much, is refused
// before anything is sent.
func TestRedisRefusesForgedCursors(t *testing.T) {
	s, queries, sent := listed(t)
	for _, q := range queries {
		mark, _, _ := strings.Cut(q.Cursor, ".")
		var forged []store.Query
		for _, text := range []string{
			" ", ".", mark, mark + ".", mark + ".0", mark + ".0.", mark + ".0.0.", mark + ".0.0 ", mark + ".0.0  key",
			mark + ".-1.0", mark + ".0.-1", mark + ".1.0", mark + ".1.7 key", mark + ".2.0 key", mark + ".00.0", mark + ".0.00",
			mark + ".0.18446744073709551616", q.Cursor + "1", "x" + q.Cursor, " " + q.Cursor, q.Cursor + " ", q.Cursor + "\n",
			mark + ".0.0 " + "ключ", mark + ".0.0" + strings.Repeat(" key", 10_001), mark + ".0.0" + strings.Repeat(" ", 1<<20),
		} {
			other := q
			other.Cursor = text
			forged = append(forged, other)
		}
		for _, change := range []func(*store.Query){
			func(q *store.Query) { q.Holding = !q.Holding },
			func(q *store.Query) { q.Label += "s" },
			func(q *store.Query) { q.States = []store.State{store.Held} },
		} {
			other := q
			change(&other)
			forged = append(forged, other)
		}
		for _, q := range forged {
			page, err := s.List(t.Context(), q)
			require.ErrorIs(t, err, store.ErrBadCursor, "%+.200v", q)
			require.Empty(t, page)
		}
		require.Zero(t, sent.commands.Load())

		q.Limit, q.OlderThan = 1, 1 // neither changes where a page begins
		_, err := s.List(t.Context(), q)
		require.NoError(t, err)
		sent.commands.Store(0)
	}
}

// A call looks at a bounded number of records, however many keys a cursor has.
func TestRedisReadsTheKeysOfACursorBitByBit(t *testing.T) {
	s, queries, sent := listed(t)
	q := queries[0]
	q.Cursor = redisstore.LastCursor(s, &q, slices.Repeat([]string{"key"}, 10_000))
	calls := 0
	for ; q.Cursor != ""; calls++ {
		page, err := s.List(t.Context(), q)
		require.NoError(t, err)
		require.Empty(t, page.Entries)
		require.LessOrEqual(t, sent.commands.Swap(0), int64(8_000))
		q.Cursor = page.Next
	}
	require.Equal(t, 3, calls)
}

// A server that returns everything at once, whatever it is asked for, would make a cursor of everything.
func TestRedisCursorHasABound(t *testing.T) {
	server := miniredis.RunT(t) // returns all names for one SCAN
	for i := range 10_001 {
		server.HSet(fmt.Sprint("idem:", i), "x", "y")
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	_, err := redisstore.New(client, redisstore.Config{Prefix: "idem:"}).List(t.Context(), store.Query{})
	require.ErrorContains(t, err, "10001 names for a SCAN of 100")
}

// Whatever a cursor says, List refuses it or sends a bounded number of commands.
func FuzzRedisCursor(f *testing.F) {
	s, queries, sent := listed(f)
	f.Add(uint8(0), uint16(0), uint16(1000), "x.0.-1")
	f.Add(uint8(1), uint16(2), uint16(5), ".7.")
	f.Add(uint8(2), uint16(40), uint16(40), " key")
	// The cursor of a query gets the text in the place of what is between from and to.
	f.Fuzz(func(t *testing.T, query uint8, from, to uint16, text string) {
		q := queries[int(query)%len(queries)]
		made := q.Cursor
		end := min(int(to), len(q.Cursor))
		start := min(int(from), end)
		q.Cursor = q.Cursor[:start] + text + q.Cursor[end:]
		sent.commands.Store(0)
		_, err := s.List(t.Context(), q)
		if err != nil {
			require.ErrorIs(t, err, store.ErrBadCursor, "%q", q.Cursor)
			require.Zero(t, sent.commands.Load(), "%q", q.Cursor)
			return
		}
		require.LessOrEqual(t, sent.commands.Load(), int64(8_000))
		if q.Cursor != "" {
			require.Equal(t, made, q.Cursor)
		}
	})
}
