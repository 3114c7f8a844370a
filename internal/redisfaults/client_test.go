package redisfaults

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/store"
)

// goroutine returns the ID of the goroutine that calls it.
func goroutine() string {
	stack := make([]byte, 64)
	return string(bytes.Fields(stack[:runtime.Stack(stack, false)])[1])
}

// senders are the goroutines that have sent scripts over the connections of a client.
type senders struct {
	mu  sync.Mutex
	ids []string
}

func (s *senders) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	return &sender{c, s}, err
}

// take returns the goroutines since the last call.
func (s *senders) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := s.ids
	s.ids = nil
	return ids
}

type sender struct {
	net.Conn
	to *senders
}

func (s *sender) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("evalsha")) {
		s.to.mu.Lock()
		s.to.ids = append(s.to.ids, goroutine())
		s.to.mu.Unlock()
	}
	return s.Conn.Write(b)
}

type (
	wrapped       struct{ *redis.Client }
	noCredentials struct{}
	noLimit       struct{}
)

func (noCredentials) Subscribe(auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
	return nil, nil, errors.New("no credentials")
}

func (noLimit) Allow() error       { return nil }
func (noLimit) ReportResult(error) {}

// A store calls a client without goroutines if each call returns by its deadline. Otherwise the
// guard must be able to give a call up.
func TestRedisCallsWithoutGoroutine(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	cluster := redistest.StartCluster(t, 3, false)
	failover := redistest.StartFailover(t)
	simple := func(change func(*redis.Options)) func(*senders) redis.UniversalClient {
		return func(s *senders) redis.UniversalClient {
			o := &redis.Options{Addr: server.Addr, Dialer: s.dial}
			change(o)
			return redis.NewClient(o)
		}
	}
	hooked := func(obeys bool) func(*senders) redis.UniversalClient {
		return func(s *senders) redis.UniversalClient {
			client := simple(func(o *redis.Options) { o.ContextTimeoutEnabled = obeys })(s)
			client.AddHook(hook(new(notes).hook))
			return client
		}
	}
	clustered := func(change func(*redis.ClusterOptions)) func(*senders) redis.UniversalClient {
		return func(s *senders) redis.UniversalClient {
			o := &redis.ClusterOptions{Addrs: cluster.Addrs(), Dialer: s.dial}
			change(o)
			return redis.NewClusterClient(o)
		}
	}
	for name, c := range map[string]struct {
		client func(*senders) redis.UniversalClient
		direct bool
	}{
		"default":          {simple(func(*redis.Options) {}), true},
		"obeys":            {simple(func(o *redis.Options) { o.ContextTimeoutEnabled = true }), true},
		"obeys, hook":      {hooked(true), true},
		"no timeouts":      {simple(func(o *redis.Options) { o.ReadTimeout, o.WriteTimeout = -1, -1 }), true},
		"no deadlines":     {simple(func(o *redis.Options) { o.ReadTimeout, o.WriteTimeout = -2, -2 }), true},
		"no pipeline pool": {simple(func(o *redis.Options) { o.PipelinePoolSize = -1 }), true},
		"RESP2":            {simple(func(o *redis.Options) { o.Protocol = 2 }), true},
		"failover": {func(s *senders) redis.UniversalClient {
			return redis.NewFailoverClient(&redis.FailoverOptions{
				MasterName: redistest.MasterName, SentinelAddrs: failover.Addrs(), Dialer: s.dial,
			})
		}, true},
		"Cluster, obeys": {clustered(func(o *redis.ClusterOptions) { o.ContextTimeoutEnabled = true }), true},

		"obeys, but sets no deadlines": {simple(func(o *redis.Options) { o.ContextTimeoutEnabled, o.WriteTimeout = true, -2 }), true},
		"hook":                         {hooked(false), true},
		"OnConnect":                    {simple(func(o *redis.Options) { o.OnConnect = func(context.Context, *redis.Conn) error { return nil } }), true},
		"Limiter":                      {simple(func(o *redis.Options) { o.Limiter = noLimit{} }), true},
		"CredentialsProvider": {simple(func(o *redis.Options) {
			o.CredentialsProvider = func() (string, string) { return "", "" }
		}), true},
		"CredentialsProviderContext": {simple(func(o *redis.Options) {
			o.CredentialsProviderContext = func(context.Context) (string, string, error) { return "", "", nil }
		}), true},
		"client-side cache": {simple(func(o *redis.Options) { o.ClientSideCacheConfig = new(redis.ClientSideCacheConfig) }), true},

		"Cluster": {clustered(func(*redis.ClusterOptions) {}), false},
		"Cluster, obeys, but sets no deadlines": {clustered(func(o *redis.ClusterOptions) {
			o.ContextTimeoutEnabled, o.ReadTimeout = true, -2
		}), false},
		"another type": {func(s *senders) redis.UniversalClient {
			client, _ := simple(func(*redis.Options) {})(s).(*redis.Client)
			return wrapped{client}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var sent senders
			client := c.client(&sent)
			t.Cleanup(func() { _ = client.Close() })
			st := guardtest.RedisStore(t, client)
			require.Equal(t, c.direct, st.ObeysContext())
			h := guardtest.NewGuard(t, st).Handler(guardtest.Answering(0, "done"))
			for range 5 {
				r, w := httptest.NewRequest(http.MethodPost, "/", nil), httptest.NewRecorder()
				r.Header.Set("Idempotency-Key", guardtest.RedisKey())
				h.ServeHTTP(w, r)
				require.Equal(t, http.StatusOK, w.Code, w.Body)
				scripts := sent.take()
				require.GreaterOrEqual(t, len(scripts), 2)
				for _, id := range scripts {
					require.Equal(t, c.direct, id == goroutine(), "sent by the goroutine of the request")
				}
			}
		})
	}
	o := &redis.Options{Addr: server.Addr, StreamingCredentialsProvider: noCredentials{}}
	require.False(t, guardtest.RedisStore(t, newClient(t, o)).ObeysContext())
}

// storeCalls are the calls of a store, by their names.
func storeCalls(s *idempotency.RedisStore, key string, c store.Claim) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Claim": func(ctx context.Context) error { _, err := s.Claim(ctx, key, c); return err },
		"Renew": func(ctx context.Context) error { return s.Renew(ctx, key, c.Owner) },
		"Complete": func(ctx context.Context) error {
			return s.Complete(ctx, key, c.Owner, store.Completion{TTL: time.Hour})
		},
		"large": func(ctx context.Context) error {
			return s.Complete(ctx, key, c.Owner, store.Completion{Answer: guardtest.LargeAnswer, TTL: time.Hour})
		},
		"Release":   func(ctx context.Context) error { return s.Release(ctx, key, c.Owner, store.Release{}) },
		"Hold":      func(ctx context.Context) error { return s.Hold(ctx, key, c.Owner, nil) },
		"Get":       func(ctx context.Context) error { _, err := s.Get(ctx, key); return err },
		"GetAnswer": func(ctx context.Context) error { _, err := s.GetAnswer(ctx, key); return err },
		"List":      func(ctx context.Context) error { _, err := s.List(ctx, store.Query{}); return err },
		"Watch":     func(ctx context.Context) error { _, _, err := s.Watch(ctx, key); return err },
	}
}

// requireDeadlines fails the test unless each call ends with its context, although nothing else
// would end it.
func requireDeadlines(t *testing.T, s *idempotency.RedisStore) {
	t.Helper()
	require.True(t, s.ObeysContext())
	for name, call := range storeCalls(s, guardtest.RedisKey(), guardtest.RedisClaim()) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		require.ErrorIs(t, call(ctx), context.DeadlineExceeded, name)
		cancel()
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, call(cancelled), context.Canceled, name)
	}
}

// Clients that wait for hours if a context does not end them.
func patientClients(change func(*redis.Options)) map[string]*redis.Options {
	clients := map[string]*redis.Options{
		"default":      {ReadTimeout: time.Hour, WriteTimeout: time.Hour},
		"no timeouts":  {ReadTimeout: -1, WriteTimeout: -1},
		"no deadlines": {ReadTimeout: -2, WriteTimeout: -2},
		"obeys":        {ReadTimeout: time.Hour, WriteTimeout: time.Hour, ContextTimeoutEnabled: true},
		"one try":      {ReadTimeout: time.Hour, WriteTimeout: time.Hour, MaxRetries: -1},
	}
	for _, o := range clients {
		o.DialTimeout, o.PoolTimeout = time.Hour, time.Hour
		change(o)
	}
	return clients
}

// A server that does not answer costs no more time than the caller allows.
func TestRedisDeadline(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for name, o := range patientClients(func(o *redis.Options) { o.Addr = server.Addr }) {
		t.Run(name, func(t *testing.T) {
			s := guardtest.RedisStore(t, newClient(t, o))
			claimed(t, s, guardtest.RedisKey(), guardtest.RedisClaim())
			server.Pause(t)
			defer server.Resume(t)
			requireDeadlines(t, s)
		})
	}
}

// A dialer that does not come back costs no more time than the caller allows.
func TestRedisHungDial(t *testing.T) {
	t.Parallel()
	for name, o := range patientClients(func(o *redis.Options) { o.DialerRetries = 1 }) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			goOn := make(chan struct{})
			o.Dialer = func(context.Context, string, string) (net.Conn, error) {
				<-goOn
				return nil, guardtest.ErrDown
			}
			s := guardtest.RedisStore(t, newClient(t, o))
			defer close(goOn)
			requireDeadlines(t, s)
		})
	}
}

// A function of the client's options that does not come back costs no more time than the caller
// allows. One that panics has failed, and ends no process.
func TestRedisHungFunctions(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for name, set := range map[string]func(o *redis.Options, f func()){
		"OnConnect": func(o *redis.Options, f func()) {
			o.OnConnect = func(_ context.Context, conn *redis.Conn) error {
				f()
				return conn.Ping(context.Background()).Err() // of a connection that may be closed
			}
		},
		"CredentialsProvider": func(o *redis.Options, f func()) {
			o.CredentialsProvider = func() (string, string) { f(); return "", "" }
		},
		"CredentialsProviderContext": func(o *redis.Options, f func()) {
			o.CredentialsProviderContext = func(context.Context) (string, string, error) { f(); return "", "", nil }
		},
	} {
		t.Run(name, func(t *testing.T) {
			goOn, calls := make(chan struct{}), atomic.Int32{}
			o := &redis.Options{Addr: server.Addr}
			set(o, func() {
				calls.Add(1)
				<-goOn
			})
			s := guardtest.RedisStore(t, newClient(t, o))
			requireDeadlines(t, s)
			close(goOn)
			claimed(t, s, guardtest.RedisKey(), guardtest.RedisClaim())
			require.Positive(t, calls.Load())

			set(o, func() { panic("so be it") })
			_, err := guardtest.RedisStore(t, newClient(t, o)).Claim(t.Context(), guardtest.RedisKey(), guardtest.RedisClaim())
			require.ErrorContains(t, err, "so be it")
		})
	}
}

// A pool without a free connection costs no more time than the caller allows.
func TestRedisExhaustedPool(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for name, o := range patientClients(func(o *redis.Options) { o.Addr, o.PoolSize, o.PipelinePoolSize = server.Addr, 1, -1 }) {
		t.Run(name, func(t *testing.T) {
			client := newClient(t, o)
			s := guardtest.RedisStore(t, client)
			busy := client.Conn()
			require.NoError(t, busy.Ping(t.Context()).Err())
			for name, call := range storeCalls(s, guardtest.RedisKey(), guardtest.RedisClaim()) {
				if name == "Watch" { // has a connection of its own
					continue
				}
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				require.ErrorIs(t, call(ctx), context.DeadlineExceeded, name)
				cancel()
			}
			require.NoError(t, busy.Close())
			_, err := s.Claim(t.Context(), guardtest.RedisKey(), guardtest.RedisClaim())
			require.NoError(t, err, "a connection is free again")
			require.EqualValues(t, 1, client.PoolStats().TotalConns, "the store has no connections of its own")
		})
	}
}

// A store changes nothing of the client that it is given, which others are using meanwhile.
func TestRedisClientIsLeftAlone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := newClient(t, &redis.Options{Addr: server.Addr, ReadTimeout: time.Minute, WriteTimeout: time.Hour})
	var users sync.WaitGroup
	for range 3 {
		users.Go(func() {
			for range 20 {
				assert.NoError(t, client.Ping(context.WithoutCancel(t.Context())).Err())
			}
		})
	}
	st := idempotency.NewRedisStore(client)
	claimed(t, st, guardtest.RedisKey(), guardtest.RedisClaim())
	users.Wait()
	o := client.Options()
	require.False(t, o.ContextTimeoutEnabled)
	require.Equal(t, []time.Duration{time.Minute, time.Hour}, []time.Duration{o.ReadTimeout, o.WriteTimeout})

	require.NoError(t, st.Close())
	require.NoError(t, client.Ping(t.Context()).Err(), "whoever has made the client closes it")
	require.NoError(t, client.Close())
	require.ErrorIs(t, st.Renew(t.Context(), "key", store.Owner{}), redis.ErrClosed)
}

// On a client that is closed, a watch fails at once, like any other call. One that has begun is woken.
func TestRedisWatchOfAClosedClient(t *testing.T) {
	t.Parallel()
	addrs := []string{redistest.Start(t).Addr}
	clients := map[string]redis.UniversalClient{
		"default": redis.NewClient(&redis.Options{Addr: addrs[0]}),
		"obeys":   guardtest.RedisClient(t, addrs...),
		"cluster": guardtest.RedisClient(t, redistest.StartCluster(t, 3, false).Addrs()...),
	}
	for name, client := range clients {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := guardtest.RedisStore(t, client)
			wake, stop, err := st.Watch(t.Context(), "key")
			require.NoError(t, err)
			defer stop()
			require.NoError(t, client.Close())
			requireWoken(t, wake)
			never := context.WithoutCancel(t.Context())
			_, _, err = st.Watch(never, "key")
			require.ErrorIs(t, err, redis.ErrClosed)
			_, _, err = guardtest.RedisStore(t, client).Watch(never, "key")
			require.ErrorIs(t, err, redis.ErrClosed)
		})
	}
}
