package guardtest

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"example.com/idempotency"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/store"
)

// RedisAt returns a store on one server, with a client of its own.
func RedisAt(t testing.TB, server *redistest.Server, opts ...idempotency.RedisOption) *idempotency.RedisStore {
	t.Helper()
	return RedisStore(t, RedisClient(t, server.Addr), opts...)
}

// RedisClientAt is [RedisClient] for one address, with further options.
func RedisClientAt(t testing.TB, addr string, change func(*redis.Options)) redis.UniversalClient {
	t.Helper()
	o := &redis.Options{Addr: addr, ContextTimeoutEnabled: true}
	change(o)
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// LargeAnswer is so large that an [idempotency.RedisStore] does not send it through a script.
var LargeAnswer = []byte(strings.Repeat("large ", 5000))

// A RedisBackend is one or more servers below a RedisStore.
type RedisBackend struct {
	// Addrs are the addresses of its servers.
	Addrs []string
	// Advance lets the records whose names begin with prefix grow older by d.
	Advance func(t testing.TB, prefix string, d time.Duration)
}

// RedisBackends are the servers that tests of behaviour run on.
var RedisBackends = map[string]func(testing.TB) RedisBackend{
	"miniredis": func(t testing.TB) RedisBackend {
		t.Helper()
		server := miniredis.RunT(t)
		return RedisBackend{
			[]string{server.Addr()},
			func(_ testing.TB, _ string, d time.Duration) { server.FastForward(d) },
		}
	},
	"server": func(t testing.TB) RedisBackend {
		t.Helper()
		server := redistest.Start(t)
		return RedisBackend{[]string{server.Addr}, server.Advance}
	},
	"cluster": func(t testing.TB) RedisBackend {
		t.Helper()
		cluster := redistest.StartCluster(t, 3, false)
		return RedisBackend{cluster.Addrs(), cluster.Advance}
	},
}

// RedisClient returns a client that obeys the context, as the store asks for.
func RedisClient(t testing.TB, addrs ...string) redis.UniversalClient {
	t.Helper()
	client := redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: addrs, ContextTimeoutEnabled: true, IsClusterMode: len(addrs) > 1,
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// PatientRedisClient is [RedisClient] for tests that are not about time. Its calls wait for the server as
// long as [Patience], whatever deadline they have: on a busy machine, the two seconds that a guard
// gives to a call may be over before the server has had its turn. Calls still end when they are cancelled.
func PatientRedisClient(t testing.TB, addrs ...string) redis.UniversalClient {
	t.Helper()
	client := redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: addrs, ContextTimeoutEnabled: true, IsClusterMode: len(addrs) > 1,
		DialTimeout: Patience, ReadTimeout: Patience, WriteTimeout: Patience, PoolTimeout: Patience,
	})
	client.AddHook(PatientHook{})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// A PatientHook lets the commands of a client wait for [Patience] and not by their deadlines.
type PatientHook struct{}

// DialHook changes nothing.
func (PatientHook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook gives a command another deadline.
func (PatientHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		ctx, cancel := withoutHurry(ctx)
		defer cancel()
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook gives a pipeline another deadline.
func (PatientHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		ctx, cancel := withoutHurry(ctx)
		defer cancel()
		return next(ctx, cmds)
	}
}

// withoutHurry returns a context that has a later deadline and is otherwise over with ctx.
func withoutHurry(ctx context.Context) (context.Context, context.CancelFunc) {
	later, cancel := context.WithTimeout(context.WithoutCancel(ctx), Patience)
	stop := context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.Canceled) {
			cancel()
		}
	})
	return later, func() { stop(); cancel() }
}

// RedisStore returns a store that is closed when the test ends.
func RedisStore(t testing.TB, client redis.UniversalClient, opts ...idempotency.RedisOption) *idempotency.RedisStore {
	t.Helper()
	st := idempotency.NewRedisStore(client, opts...)
	t.Cleanup(func() { _ = st.Close() })
	return st
}

// OnEachRedis runs a test on all backends.
func OnEachRedis(t *testing.T, test func(t *testing.T, s *idempotency.RedisStore, b RedisBackend)) {
	t.Parallel()
	for name, start := range RedisBackends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t)
			test(t, RedisStore(t, PatientRedisClient(t, b.Addrs...)), b)
		})
	}
}

// RedisKey returns a new key in the form that stores get.
func RedisKey() string { return strings.Repeat(rand.Text(), 2)[:43] }

// RedisClaim returns the claim of a new owner.
func RedisClaim() store.Claim {
	c := store.Claim{Lease: 30 * time.Second, Retention: time.Hour}
	_, _ = rand.Read(c.Owner[:])
	return c
}

// Patience bounds the wait for something that must come. Only a test that fails waits that long.
const Patience = time.Minute
