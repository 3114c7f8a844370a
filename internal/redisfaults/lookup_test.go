package redisfaults

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/store"
)

// countedConn counts what is read from a connection.
type countedConn struct {
	net.Conn
	read *atomic.Int64
}

func (c countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.read.Add(int64(n))
	return n, err
}

// A lookup tells of an answer without moving it. The test counts the bytes on the wire.
func TestLookupMovesNoAnswers(t *testing.T) {
	t.Parallel()
	const lookups, most = 50, 1 << 10
	server := redistest.Start(t)
	for name, opts := range map[string][]idempotency.Option{
		"plain": nil, "sealed": {idempotency.WithSealer(guardtest.NewSealer(t, 1))},
	} {
		t.Run(name, func(t *testing.T) {
			var read atomic.Int64
			client := guardtest.RedisClientAt(t, server.Addr, func(o *redis.Options) {
				o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
					c, err := new(net.Dialer).DialContext(ctx, network, addr)
					return countedConn{c, &read}, err
				}
			})
			st := guardtest.RedisStore(t, client, idempotency.WithPrefix(name+":"))
			guard := guardtest.NewGuard(t, st, opts...)
			body := strings.Repeat("x", 1<<20-1<<10)
			mux := http.NewServeMux()
			mux.Handle("/keys", guard.LookupHandler())
			mux.Handle("/", guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusCreated)
				_, _ = w.Write([]byte(body))
			})))
			s := guardtest.ServeRecorder(t, mux)
			require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)

			read.Store(0)
			for range lookups {
				got := s.Do(t, guardtest.Call{Method: http.MethodGet, Path: "/keys", Key: "k", NoBody: true})
				require.Equal(t, http.StatusOK, got.Status)
				require.Contains(t, got.Body, `"status":201`)
			}
			require.Less(t, read.Load(), int64(lookups*most))
			info, err := guard.Lookup(t.Context(), guardtest.HeldKey)
			require.NoError(t, err)
			require.Equal(t, http.StatusCreated, info.Status)
			require.Greater(t, info.Size, int64(len(body)))

			read.Store(0)
			for _, e := range guardtest.List(t, st, store.Query{}) {
				require.Equal(t, http.StatusCreated, e.Record.Status)
				require.Equal(t, info.Size, e.Record.Size)
			}
			require.Less(t, read.Load(), int64(most))

			read.Store(0)
			got := s.Do(t, guardtest.Call{Key: "k"})
			require.True(t, got.Replayed())
			require.Len(t, got.Body, len(body))
			require.Greater(t, read.Load(), int64(len(body)), "the counter counts nothing")
		})
	}
}

// What is recorded by hand is found again by a call that is repeated, although a sealer makes
// other bytes of it each time.
func TestRepeatedResolutionReadsTheAnswer(t *testing.T) {
	guardtest.OnEachRedis(t, func(t *testing.T, st *idempotency.RedisStore, _ guardtest.RedisBackend) {
		guard := guardtest.NewGuard(t, st, idempotency.WithRecovery(idempotency.Hold), idempotency.WithSealer(guardtest.NewSealer(t, 1)))
		s := guardtest.ServeRecorder(t, guard.Handler(guardtest.FailsFirst()))
		require.Equal(t, http.StatusInternalServerError, s.Do(t, guardtest.Call{Key: "k"}).Status)
		seen := guardtest.Seen(t, guard)
		decided := idempotency.Resolution{Outcome: idempotency.Final, Status: http.StatusAccepted, Body: guardtest.LargeAnswer}
		for range 3 {
			require.NoError(t, guard.Resolve(t.Context(), guardtest.HeldKey, seen, decided))
		}
		decided.Body = []byte("another")
		require.ErrorIs(t, guard.Resolve(t.Context(), guardtest.HeldKey, seen, decided), idempotency.ErrChanged)
		info, err := guard.Lookup(t.Context(), guardtest.HeldKey)
		require.NoError(t, err)
		require.Equal(t, http.StatusAccepted, info.Status)
	})
}

// The result of a function has a size and no status.
func TestLookupOfAFunction(t *testing.T) {
	guardtest.OnEachRedis(t, func(t *testing.T, st *idempotency.RedisStore, _ guardtest.RedisBackend) {
		guard := guardtest.NewGuard(t, st)
		_, _, err := idempotency.Do(t.Context(), guard, guardtest.HeldKey, func(context.Context) (string, error) { return "done", nil })
		require.NoError(t, err)
		info, err := guard.Lookup(t.Context(), guardtest.HeldKey)
		require.NoError(t, err)
		require.Equal(t, store.Completed, info.State)
		require.Zero(t, info.Status)
		require.Positive(t, info.Size)
	})
}
