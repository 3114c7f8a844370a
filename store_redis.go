package idempotency

// The Redis store as programs see it: what it promises and costs, and its options.

import (
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/idempotency/internal/redisstore"
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
//     drop a live record, and the handler runs again. Check reports such a server.
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
// A claim with tags takes one round trip, too, and in a Cluster one more for all of them. A renewal takes a second one,
// and so does what keeps the record for longer than the claim has said, or ends a hold. Each tag has a sorted set,
// which ends with its last record.
//
// # Permissions
//
// The account needs the records (~idem:*), the channel (&idem:settled), and the commands
// EVAL, EVALSHA, PTTL, PEXPIRE, HGET, HMGET, HKEYS, HGETALL, HSET, HSETNX, HDEL, DEL, ZADD, ZREM,
// ZRANGE, TIME, PUBLISH, SUBSCRIBE, UNSUBSCRIBE, MULTI and EXEC. It needs ZSCORE for List, ZSCORE and ZSCAN for
// Find and for claims with tags, SCAN for a List of all records, as [Guard.Reconcile] makes, INFO for Check, Health and Usage, and WAIT for
// [WithReplicas]. The client itself sends others, such as HELLO and PING, and COMMAND and CLUSTER in a Cluster.
//
// # Methods
//
// A RedisStore is also a [store.ContextStore], a [store.Watcher], a [store.StepStore], a
// [store.Inspector], a [store.Lister], a [store.Finder], a [store.Gauge] and a [store.Comparer]: two values with one client and
// one prefix are one store. Three methods are its own:
//
//   - Check(ctx) asks the servers whether they can be trusted with records, and returns all reasons
//     why they cannot: a version below 6.2, a maxmemory-policy other than noeviction, or a server
//     that is a replica. It does not check persistence. It returns by the deadline of its context,
//     whatever the client is. Call it at start-up.
//   - Health(ctx) asks the masters what is wrong with them now, as the console shows it: what Check finds, evicted keys, and
//     no room for new ones, which is an [ErrStoreFull]. Its second result says that they cannot be asked.
//   - Close() ends the subscription of Watch, which fails from then on. It leaves the client open,
//     returns nil, and may be called more than once.
type RedisStore = redisstore.Store

var (
	_ Store              = (*RedisStore)(nil)
	_ store.ContextStore = (*RedisStore)(nil)
	_ store.Watcher      = (*RedisStore)(nil)
	_ store.StepStore    = (*RedisStore)(nil)
	_ store.Inspector    = (*RedisStore)(nil)
	_ store.Lister       = (*RedisStore)(nil)
	_ store.Finder       = (*RedisStore)(nil)
	_ store.Gauge        = (*RedisStore)(nil)
	_ store.Comparer     = (*RedisStore)(nil)
)

// NewRedisStore returns a store that keeps its records with client. The caller configures
// the client, and closes it after the Close of the store.
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
// and a type of your own are used as they are. Of their stores, only Check returns by the
// deadline in any case. A [Guard] calls them in goroutines, which it gives up at the deadline.
//
// NewRedisStore panics on a nil client and on an invalid option. It also panics on a
// [redis.Ring] and on a type that embeds one: a Ring moves keys to other servers when one fails, and
// so forgets who runs. A Ring that a type of your own hides is not seen.
// It does not talk to the server: call Check of the store at start-up.
func NewRedisStore(client redis.UniversalClient, opts ...RedisOption) *RedisStore {
	c := redisstore.Config{Prefix: "idem:"}
	for _, o := range opts {
		if o != nil {
			o.applyRedis(&c)
		}
	}
	return redisstore.New(client, c)
}

// A RedisOption changes a setting of [NewRedisStore].
type RedisOption interface{ applyRedis(c *redisstore.Config) }

type redisOption func(c *redisstore.Config)

func (o redisOption) applyRedis(c *redisstore.Config) { o(c) }

// WithPrefix puts prefix before the name of every record and of the channel of a
// [RedisStore]. The default is "idem:". Stores with the same prefix on the same database
// share their records. A prefix should not be the beginning of another one: List of the
// store with the shorter prefix shows the records of both. The prefix may be empty. Do not
// use braces in it: to a Cluster they are a hash tag, which puts every record into one slot.
func WithPrefix(prefix string) RedisOption {
	return redisOption(func(c *redisstore.Config) { c.Prefix = prefix })
}

// WithReplicas makes the calls of a [RedisStore] wait for replicas. Claim, Renew, SaveStep,
// Complete, Release and Hold, and Resolve with an answer, succeed only when n replicas have
// confirmed the record within timeout. A Release that says Unanswered, of a claim of which no caller has
// heard, waits for none: a failover that forgets it and not the claim leaves a claim that lapses, and under
// [Hold] a held key of which nothing has run.
//
// When fewer do, the call fails, although its writes stay on the master. A [Guard] gives
// up such a claim before the run begins. It repeats the calls of a run until they are
// confirmed, and tells a run that its lease is lost when no renewal was confirmed in time.
// If there are more replicas than n, a failover can promote one that has not confirmed. That of a dead master avoids it. A
// planned one of Sentinel does not, because the others go on confirming for the old master: stop the traffic before it.
// The default is 0: the master's word is enough, and a failover may forget a claim, a step
// or an answer.
//
// The timeout must be at least a millisecond, and should be well below the client's
// ReadTimeout. A call keeps a connection of the client's pool while it waits.
func WithReplicas(n int, timeout time.Duration) RedisOption {
	return redisOption(func(c *redisstore.Config) { c.Replicas, c.Patience = n, timeout })
}
