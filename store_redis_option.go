package idempotency

import (
	"errors"
	"time"
)

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

// errTooFewReplicas is what [WithReplicas] is about.
var errTooFewReplicas = errors.New("idempotency: redis: too few replicas have confirmed the record")
