package idempotency

import (
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/idempotency/internal/watch"
)

// A RedisStore keeps records in Redis 6.2 or later, Valkey, or a service that speaks
// their protocol: one server, a master found by Sentinel, or a Cluster. Make one with
// [NewRedisStore]. Its methods may be called concurrently.
//
// # What it promises
//
// As much as the server keeps of what it acknowledged. Configure it for that:
//
//   - maxmemory-policy noeviction. Every other policy may silently drop a live record,
//     and the handler runs again. [RedisStore.Check] refuses a server with another.
//   - Persistence (appendonly yes), or a restart forgets every record. With appendfsync
//     everysec it may still forget those of the last two seconds.
//   - Replication is asynchronous: a failover forgets the records that had not reached
//     the new master. [WithReplicas] narrows that. It does not close it: no option
//     makes Redis with failover linearizable.
//
// A server that is out of memory refuses new keys with [ErrStoreFull]; records that
// are there already can be claimed, completed, released and held.
//
// # What it costs
//
// A first run takes two round trips, a replay or a conflict takes one; replaying an
// answer above 16 KiB takes two. A record is one hash with an expiry, named by the
// prefix and the key: no two keys are ever used in one command, so a Cluster spreads
// the records over all its slots.
//
// # Permissions
//
// The account needs the records (~idem:*), the channel (&idem:settled), and the
// commands EVAL, EVALSHA, PTTL, PEXPIRE, HGET, HMGET, HGETALL, HSET, HSETNX, HDEL, DEL,
// PUBLISH, SUBSCRIBE, UNSUBSCRIBE, MULTI and EXEC; WAIT for [WithReplicas], INFO for
// [RedisStore.Check], SCAN for [RedisStore.List]; besides what the client itself
// sends, such as HELLO, PING, and COMMAND and CLUSTER in a Cluster.
type RedisStore struct {
	client   redis.UniversalClient
	prefix   string
	channel  string
	replicas int
	patience time.Duration // how long to wait for them
	watch    *watch.Subscription
	reloaded atomic.Int64 // when the view of the cluster was last renewed, in Unix ms
}

var (
	_ Store        = (*RedisStore)(nil)
	_ ContextStore = (*RedisStore)(nil)
	_ Watcher      = (*RedisStore)(nil)
	_ StepStore    = (*RedisStore)(nil)
	_ Inspector    = (*RedisStore)(nil)
)

// NewRedisStore returns a store that keeps its records with client. The client stays
// the caller's to configure and to close, after [RedisStore.Close].
//
// Set ContextTimeoutEnabled in the client's options: a client without it ignores the
// deadlines of contexts and returns only when its own timeouts end. Do not share the
// client with commands that keep connections for long: while its pool is exhausted no
// run can be claimed or renewed.
//
// NewRedisStore panics on a nil client, on a [redis.Ring], which moves keys to other
// servers when one fails and so forgets who runs, and on an invalid option. It does
// not talk to the server; call [RedisStore.Check] at start-up.
func NewRedisStore(client redis.UniversalClient, opts ...RedisOption) *RedisStore {
	s := &RedisStore{client: client, prefix: "idem:"}
	for _, o := range opts {
		if o != nil {
			o.applyRedis(s)
		}
	}
	switch client.(type) {
	case nil:
		panic("idempotency: NewRedisStore: client is nil")
	case *redis.Ring:
		panic("idempotency: NewRedisStore: a Ring cannot keep records")
	}
	if s.replicas < 0 || (s.replicas > 0 && s.patience < time.Millisecond) {
		panic("idempotency: WithReplicas: needs a count that is not negative and a timeout of at least 1ms")
	}
	// One channel for all records: who waits listens once, not with two more round
	// trips for each key. Only records that somebody waits for are announced, so there
	// is little to overhear, and a Cluster passes every message to all nodes anyway.
	s.channel = s.prefix + "settled"
	s.watch = watch.NewSubscription(s.listen)
	return s
}

// ObeysContext implements [ContextStore]. It reports whether the client was made with
// ContextTimeoutEnabled.
func (s *RedisStore) ObeysContext() bool {
	switch c := s.client.(type) {
	case *redis.Client:
		return c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		return c.Options().ContextTimeoutEnabled
	}
	return false
}

// Close ends the subscription that [RedisStore.Watch] shares; Watch fails from then
// on. It leaves the client open and may be called more than once.
func (s *RedisStore) Close() error {
	s.watch.Close()
	return nil
}

// A RedisOption changes a setting of [NewRedisStore].
type RedisOption interface{ applyRedis(*RedisStore) }

type redisOption func(*RedisStore)

func (o redisOption) applyRedis(s *RedisStore) { o(s) }

// WithPrefix puts prefix before the name of every record and channel of a
// [RedisStore]. The default is "idem:". Stores with the same prefix on the same
// database share their records. One prefix should not be the beginning of another: List
// of the store with the shorter one shows the records of both. The prefix may be empty;
// braces in it are a hash tag to a Cluster and would put every record into one slot.
func WithPrefix(prefix string) RedisOption {
	return redisOption(func(s *RedisStore) { s.prefix = prefix })
}

// WithReplicas makes Claim, Renew, SaveStep, Complete and Hold of a [RedisStore], and Resolve
// with an answer, succeed only when n replicas have confirmed the record within timeout. When
// fewer do, they fail, and what they wrote stays on the master: a [Guard] gives such a claim
// up, and repeats what belongs to a run until it is confirmed. A run whose renewals are not
// is told so before its lease ends where the master's word is not known. The default is 0:
// the master's word is enough, and a failover may forget a claim, a step or an answer that
// it gave.
//
// The timeout must be positive and should be well below the client's ReadTimeout.
func WithReplicas(n int, timeout time.Duration) RedisOption {
	return redisOption(func(s *RedisStore) { s.replicas, s.patience = n, timeout })
}
