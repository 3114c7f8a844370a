package idempotency

// The Redis store, its promises, and its options. The calls of a run are in
// store_redis_claim.go, and the way to the server is in store_redis_call.go.

import (
	"context"
	"errors"
	"net"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/idempotency/internal/redisclient"
	"example.com/idempotency/internal/watch"
	"example.com/idempotency/store"
)

// A RedisStore keeps records in Redis 6.2 or later, Valkey, or a service that speaks
// their protocol: one server, a master found by Sentinel, or a Cluster. Make one with
// [NewRedisStore]. Its methods may be called concurrently.
//
// # What it promises
//
// The store keeps a record for as long as the server keeps what it has acknowledged.
// Configure the server for that:
//
//   - Set maxmemory-policy to noeviction. With any other policy the server may silently
//     drop a live record, and the handler runs again. [RedisStore.Check] reports such a
//     server.
//   - Turn persistence on (appendonly yes), or a restart forgets every record. With
//     appendfsync everysec it may still forget the last two seconds.
//   - Replication is asynchronous: a failover forgets the records that had not reached
//     the new master. [WithReplicas] makes that window smaller but does not close it. No
//     option makes Redis with failover linearizable.
//
// A server that is out of memory begins no run: claims of new keys, and of keys without an answer,
// fail with [ErrStoreFull]. Runs that have begun can be renewed, completed, released and held, and
// answers are replayed.
//
// # What it costs
//
// A first run takes two round trips, or three if its claim says Hold: it is entered in the index
// of a [store.Lister]. A replay or a conflict takes one, and the replay of an
// answer above 16 KiB takes two. A record is one hash with an expiry, named by the prefix
// and the key. No command uses two keys, so a Cluster spreads the records over all its
// slots. The index is one sorted set, in a slot of its own. No call waits for replicas to have its
// entries: a failover may forget one, and then only a list of all records shows the record.
//
// # Permissions
//
// The account needs the records (~idem:*), the channel (&idem:settled), and the commands
// EVAL, EVALSHA, PTTL, PEXPIRE, HGET, HMGET, HKEYS, HGETALL, HSET, HSETNX, HDEL, DEL, ZADD, ZREM,
// ZRANGE, TIME, PUBLISH, SUBSCRIBE, UNSUBSCRIBE, MULTI and EXEC. It needs WAIT for
// [WithReplicas], INFO for [RedisStore.Check], and SCAN and ZSCORE for [RedisStore.List]. The client itself sends others, such
// as HELLO and PING, and COMMAND and CLUSTER in a Cluster.
type RedisStore struct {
	client   redis.UniversalClient
	obeys    bool // whether client returns by the deadlines of contexts
	prefix   string
	channel  string
	replicas int
	patience time.Duration // how long to wait for the replicas
	watch    *watch.Subscription
	settled  settledClaims
	reloaded atomic.Int64 // when the view of the cluster was last renewed, in Unix ms
}

var (
	_ Store              = (*RedisStore)(nil)
	_ store.ContextStore = (*RedisStore)(nil)
	_ store.Watcher      = (*RedisStore)(nil)
	_ store.StepStore    = (*RedisStore)(nil)
	_ store.Inspector    = (*RedisStore)(nil)
	_ store.Lister       = (*RedisStore)(nil)
)

// NewRedisStore returns a store that keeps its records with client. The caller configures
// the client, and closes it after [RedisStore.Close].
//
// Do not share the client with commands that keep connections for long: while its pool is
// exhausted, no run can be claimed or renewed.
//
// # Deadlines
//
// Each call of the store returns by the deadline of its context, whatever the server does, but for the
// clients that are named below. A client does so by itself only if ContextTimeoutEnabled is set in its options. Then the store calls client,
// with all its hooks, also those that are added later.
//
// Without it, the store makes a copy of a [redis.Client] that obeys deadlines and shares the
// connections of client, which it leaves as it is. Commands go through the hooks that client has at the
// first call of the store, and then to the copy. Hooks that are added later do not see them, and no
// hook sees the commands with which the copy sets a connection up. OnConnect and providers of
// credentials are given up at the deadline, and go on in a goroutine. A hook must return by the
// deadline of its context, and Limiter at once. A hook that gives the next one a context which does not
// come from its own makes every call fail.
//
// A [redis.ClusterClient] without ContextTimeoutEnabled, a client with a StreamingCredentialsProvider
// and a type of your own are used as they are. Of their stores, only [RedisStore.Check] returns by the
// deadline in any case. A [Guard] calls them in goroutines, which it gives up at the deadline.
//
// NewRedisStore panics on a nil client and on an invalid option. It also panics on a
// [redis.Ring] and on a type that embeds one: a Ring moves keys to other servers when one fails, and
// so forgets who runs. A Ring that a type of your own hides is not seen.
// It does not talk to the server: call [RedisStore.Check] at start-up.
func NewRedisStore(client redis.UniversalClient, opts ...RedisOption) *RedisStore {
	s := &RedisStore{prefix: "idem:"}
	for _, o := range opts {
		if o != nil {
			o.applyRedis(s)
		}
	}
	if v := reflect.ValueOf(client); client == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		panic("idempotency: NewRedisStore: client is nil")
	}
	// A type that embeds a Ring has its methods.
	if _, ok := client.(interface{ Options() *redis.RingOptions }); ok {
		panic("idempotency: NewRedisStore: a Ring cannot keep records")
	}
	if s.replicas < 0 || (s.replicas > 0 && s.patience < time.Millisecond) {
		panic("idempotency: WithReplicas: needs a count that is not negative and a timeout of at least 1ms")
	}
	s.client, s.obeys = redisclient.Obedient(client)
	// There is one channel for all records, so that a process subscribes once, and not
	// with two round trips for each key. The messages for others are few, because only
	// records that somebody waits for are announced, and a Cluster passes every message
	// to all its nodes anyway.
	s.channel = s.prefix + "settled"
	s.watch = watch.NewSubscription(s.listen)
	return s
}

// ObeysContext implements [store.ContextStore]. It reports whether the client obeys the deadlines of
// contexts, or the store has a copy of it that does. See [NewRedisStore].
func (s *RedisStore) ObeysContext() bool { return s.obeys }

// Close ends the subscription that all calls of [RedisStore.Watch] share. Watch fails from
// then on. Close leaves the client open and may be called more than once.
func (s *RedisStore) Close() error {
	s.watch.Close()
	return nil
}

// A RedisOption changes a setting of [NewRedisStore].
type RedisOption interface{ applyRedis(*RedisStore) }

type redisOption func(*RedisStore)

func (o redisOption) applyRedis(s *RedisStore) { o(s) }

// WithPrefix puts prefix before the name of every record and of the channel of a
// [RedisStore]. The default is "idem:". Stores with the same prefix on the same database
// share their records. A prefix should not be the beginning of another one: List of the
// store with the shorter prefix shows the records of both. The prefix may be empty. Do not
// use braces in it: to a Cluster they are a hash tag, which puts every record into one slot.
func WithPrefix(prefix string) RedisOption {
	return redisOption(func(s *RedisStore) { s.prefix = prefix })
}

// WithReplicas makes the calls of a [RedisStore] wait for replicas. Claim, Renew, SaveStep,
// Complete, Release and Hold, and Resolve with an answer, succeed only when n replicas have
// confirmed the record within timeout. A Release that says Unanswered waits for none.
//
// When fewer do, the call fails, although its writes stay on the master. A [Guard] gives
// up such a claim before the run begins. It repeats the calls of a run until they are
// confirmed, and tells a run that its lease is lost when no renewal was confirmed in time.
// The default is 0: the master's word is enough, and a failover may forget a claim, a step
// or an answer.
//
// The timeout must be at least a millisecond, and should be well below the client's
// ReadTimeout. A call keeps a connection of the client's pool while it waits.
func WithReplicas(n int, timeout time.Duration) RedisOption {
	return redisOption(func(s *RedisStore) { s.replicas, s.patience = n, timeout })
}

const (
	// redisQuiet is how long the subscription may be silent before the server is asked
	// for a sign of life. After as long again the connection is given up: one that a
	// firewall has forgotten never fails by itself.
	redisQuiet = 5 * time.Second
	// redisPause and redisMaxPause are the first and the longest pause before the store
	// subscribes again.
	redisPause, redisMaxPause = 50 * time.Millisecond, 2 * time.Second
)

// Watch implements [store.Watcher]. All watches of a store share one connection.
func (s *RedisStore) Watch(ctx context.Context, key string) (<-chan struct{}, func(), error) {
	settled, stop, err := s.watch.Watch(ctx, s.prefix+key)
	if errors.Is(err, watch.ErrClosed) {
		err = redisError(err)
	}
	return settled, stop, err
}

// listen keeps the channel subscribed until nobody has waited for a while, or until the
// server refuses.
func (s *RedisStore) listen(ctx context.Context) error {
	pause := redisPause
	for heard := false; ; {
		err := s.receive(ctx, func() { heard, pause = true, redisPause })
		if err == nil || ctx.Err() != nil {
			return err
		}
		var reply redis.Error
		if !heard && errors.As(err, &reply) || errors.Is(err, redis.ErrClosed) {
			return s.failure(ctx, err) // the account may not listen, for example, or never will again
		}
		s.reloadAfter(ctx, err)
		s.watch.Lost()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
			pause = min(2*pause, redisMaxPause)
		}
	}
}

// receive listens on one connection. It returns nil when nobody has waited for a while.
func (s *RedisStore) receive(ctx context.Context, heard func()) error {
	sub := s.client.Subscribe(ctx, s.channel)
	hangUp := sync.OnceFunc(func() { _ = sub.Close() })
	defer hangUp()
	defer context.AfterFunc(ctx, hangUp)() // nothing else ends a read
	for quiet := false; ; {
		message, err := sub.ReceiveTimeout(ctx, redisQuiet)
		switch message := message.(type) {
		case *redis.Subscription:
			heard()
			s.watch.Confirmed()
		case *redis.Message:
			s.watch.Wake(message.Payload)
		}
		if s.watch.Retire() {
			return nil
		}
		var timeout net.Error
		switch {
		case err == nil:
			quiet = false
		case quiet || !errors.As(err, &timeout) || !timeout.Timeout():
			return err
		default:
			quiet = true
			if err := sub.Ping(ctx); err != nil {
				return err
			}
		}
	}
}
