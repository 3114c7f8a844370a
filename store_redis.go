package idempotency

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
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
	watch    redisWatch
	reloaded atomic.Int64 // when the view of the cluster was last renewed, in Unix ms
}

var (
	_ Store        = (*RedisStore)(nil)
	_ ContextStore = (*RedisStore)(nil)
	_ StepStore    = (*RedisStore)(nil)
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
	s.watch.listen = s.listen
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
	s.watch.close()
	return nil
}

// redisDetach is the size above which an answer goes past the scripts: Redis copies and
// hashes every string that enters or leaves one. On loopback that is even with the cost
// of a transaction, and of a second command for a replay, at 12 to 16 KiB; at 1 MiB it
// is three times as much.
const redisDetach = 16 << 10

// Claim implements [Store].
func (s *RedisStore) Claim(ctx context.Context, key string, c Claim) (Record, error) {
	name := s.prefix + key
	h, err := newRedisHeader(c)
	if err != nil {
		return Record{}, err
	}
	watch := "0"
	if c.Watch {
		watch = "1"
	}
	for range 3 {
		cmd, confirmed, err := runScript(ctx, s, redis.NewStringSliceCmd, claimScript, true, name,
			h.encode(), h.lifetime.Milliseconds(), watch)
		if err != nil {
			return Record{}, err
		}
		r, detached, err := h.parseClaim(cmd.Val())
		switch {
		case err != nil:
			return Record{}, err
		case r.Mine && !confirmed:
			// It is left in place: a run that has happened, and whose record was lost, gets
			// it back so that its answer can be recorded. Whoever has not begun gives it up.
			return Record{}, errTooFewReplicas
		case detached == "":
			return r, nil
		}
		answer, err := s.field(ctx, name, detached)
		if err == nil {
			r.Answer = answer
			return r, nil
		}
		if !errors.Is(err, redis.Nil) {
			return Record{}, s.failure(ctx, err)
		}
		// The record has expired since the claim: ask again.
	}
	return Record{}, fmt.Errorf("%w: redis: answer is missing", ErrCorrupt)
}

// field reads one field from the master. A transaction never goes to a replica, where
// a Cluster client may send plain reads and the field may not have arrived yet.
func (s *RedisStore) field(ctx context.Context, name, field string) ([]byte, error) {
	tx := s.client.TxPipeline()
	get := tx.HGet(ctx, name, field)
	_, err := tx.Exec(ctx)
	if err != nil {
		return nil, err
	}
	return get.Bytes()
}

// Complete implements [Store].
func (s *RedisStore) Complete(ctx context.Context, key string, o Owner, c Completion) error {
	ttl, err := redisTTL(c.TTL)
	if err != nil {
		return err
	}
	if len(c.Answer) > redisDetach && s.replicas == 0 {
		discarded, err := s.completeDetached(ctx, key, o, c.Answer, ttl)
		if !discarded {
			return err
		}
	}
	return o.redisResult(s.number(ctx, settleScript, true, key,
		o[:], int(StateCompleted), s.channel, ttl.Milliseconds(), redisLifetime(ttl), c.Answer))
}

// completeDetached is Complete for a large answer, which goes past the scripts into a
// field of its owner. It is one round trip and one atomic step. A server that is out
// of memory discards it as a whole: no write that it lets through can come before the
// HSETNX.
func (s *RedisStore) completeDetached(
	ctx context.Context, key string, o Owner, answer []byte, ttl time.Duration,
) (discarded bool, err error) {
	name := s.prefix + key
	tx := s.client.TxPipeline()
	// HSETNX, because repeating the call must not change a completed record.
	tx.HSetNX(ctx, name, "r:"+string(o[:]), answer)
	// EVAL, because a script that the server does not know would leave the field there.
	flip := redis.NewIntCmd(ctx, "eval", settleScript.source, "1", name,
		o[:], int(StateCompleted), s.channel, ttl.Milliseconds(), redisLifetime(ttl), "", "1")
	_ = tx.Process(ctx, flip)
	_, err = tx.Exec(ctx)
	if redis.IsExecAbortError(err) || redis.IsOOMError(err) {
		return true, err
	}
	if err != nil {
		return false, s.failure(ctx, err)
	}
	return false, o.redisResult(flip.Val(), true, nil)
}

// number runs a script that returns a number; see runScript.
func (s *RedisStore) number(
	ctx context.Context, script redisScript, durable bool, key string, args ...any,
) (n int64, confirmed bool, err error) {
	cmd, confirmed, err := runScript(ctx, s, redis.NewIntCmd, script, durable, s.prefix+key, args...)
	return cmd.Val(), confirmed, err
}

// runScript executes a script on the server that holds the record of that name. newCmd makes
// the command that reads the reply. With durable, confirmed tells whether as many
// replicas as the store asks for have what the script wrote.
func runScript[C redis.Cmder](
	ctx context.Context, s *RedisStore, newCmd func(context.Context, ...any) C,
	script redisScript, durable bool, name string, args ...any,
) (cmd C, confirmed bool, err error) {
	line := make([]any, 0, 4+len(args))
	line = append(append(line, "evalsha", script.argument, "1", name), args...)
	cmd = newCmd(ctx, line...)
	durable = durable && s.replicas > 0
	confirmed, err = s.send(ctx, cmd, durable, name)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		line[0], line[1] = "eval", script.source
		cmd = newCmd(ctx, line...)
		confirmed, err = s.send(ctx, cmd, durable, name)
	}
	if err != nil {
		return cmd, false, s.failure(ctx, err)
	}
	return cmd, confirmed, nil
}

// send sends one command, and with durable a WAIT behind it.
func (s *RedisStore) send(ctx context.Context, cmd redis.Cmder, durable bool, name string) (confirmed bool, err error) {
	if !durable {
		_ = s.client.Process(ctx, cmd)
		return true, cmd.Err()
	}
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return s.confirm(ctx, s.client.Pipeline(), cmd)
	}
	master, err := cluster.MasterForKey(ctx, name) // WAIT has no key to follow
	if err != nil {
		return false, err
	}
	confirmed, err = s.confirm(ctx, master.Pipeline(), cmd)
	addr, moving := redis.IsAskError(err)
	if !moving {
		if addr, moving = redis.IsMovedError(err); !moving {
			return confirmed, err
		}
		s.reloadAfter(ctx, err)
	}
	// The record's slot is moving, or has moved. The client follows by itself where it
	// chooses the server, and this pipeline was for one.
	o := *master.Options()
	o.Addr, o.PoolSize, o.MinIdleConns = redisAddr(addr), 1, 0
	next := redis.NewClient(&o)
	defer func() { _ = next.Close() }()
	pipe := next.Pipeline()
	_ = pipe.Process(ctx, redis.NewCmd(ctx, "asking")) // without effect where the slot belongs
	return s.confirm(ctx, pipe, cmd)
}

// confirm sends a command with a WAIT behind it. WAIT speaks of the writes of its own
// connection: elsewhere it says that all is well although nothing has arrived. So both
// travel in one pipeline.
func (s *RedisStore) confirm(ctx context.Context, pipe redis.Pipeliner, cmd redis.Cmder) (bool, error) {
	_ = pipe.Process(ctx, cmd)
	wait := redis.NewIntCmd(ctx, "wait", s.replicas, s.patience.Milliseconds())
	_ = pipe.Process(ctx, wait)
	_, err := pipe.Exec(ctx)
	if err := cmd.Err(); err != nil {
		return false, err
	}
	if err != nil { // that of WAIT, or of a hook, which leaves the commands without a result
		return false, err
	}
	return wait.Val() >= int64(s.replicas), nil
}

// failure turns an error of the client into one of the store.
func (s *RedisStore) failure(ctx context.Context, err error) error {
	s.reloadAfter(ctx, err)
	var reply redis.Error
	if errors.As(err, &reply) {
		switch text := reply.Error(); {
		case strings.Contains(text, "WRONGTYPE"):
			return fmt.Errorf("%w: redis: not a hash", ErrCorrupt)
		case strings.Contains(text, "OOM command not allowed"):
			return fmt.Errorf("%w: redis: %w", ErrStoreFull, err)
		}
	}
	// A client that obeys the context reports the deadline as a timeout of the network.
	if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("idempotency: redis: %w: %w", context.DeadlineExceeded, err)
	}
	return fmt.Errorf("idempotency: redis: %w", err)
}

// redisReload is how often a store asks a Cluster client at most to renew its view.
const redisReload = time.Second

// reloadAfter makes a Cluster client ask again who is master of what when err suggests
// that its view is out of date: there was no reply, or one of a server that is not
// master. By itself the client turns to a dead master until its regular look, up to a
// minute later.
func (s *RedisStore) reloadAfter(ctx context.Context, err error) {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok || errors.Is(err, context.Canceled) {
		return
	}
	var reply redis.Error
	_, moved := redis.IsMovedError(err)
	if errors.As(err, &reply) && !moved && !redis.IsReadOnlyError(err) && !redis.IsClusterDownError(err) {
		return
	}
	now, last := time.Now().UnixMilli(), s.reloaded.Load()
	if now-last >= redisReload.Milliseconds() && s.reloaded.CompareAndSwap(last, now) {
		cluster.ReloadState(ctx)
	}
}

// Watch implements [Watcher]. All watches of a store share one connection.
func (s *RedisStore) Watch(ctx context.Context, key string) (<-chan struct{}, func(), error) {
	return s.watch.add(ctx, s.prefix+key)
}

// listen keeps the channel subscribed for the registry of watches.
func (s *RedisStore) listen(ctx context.Context) error {
	pause := redisPause
	for heard := false; ; {
		err := s.receive(ctx, func() { heard, pause = true, redisPause })
		if err == nil || ctx.Err() != nil {
			return err
		}
		var reply redis.Error
		if !heard && errors.As(err, &reply) {
			return s.failure(ctx, err) // the account may not listen, for example
		}
		s.reloadAfter(ctx, err)
		s.watch.lost()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
			pause = min(2*pause, redisMaxPause)
		}
	}
}

// receive listens on one connection. It returns nil when nobody waits any more.
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
			s.watch.confirmed()
		case *redis.Message:
			s.watch.settled(message.Payload)
		}
		if s.watch.retire() {
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

// fields reads a whole record and its expiry. Both are empty when there is none.
func (s *RedisStore) fields(ctx context.Context, name string) (time.Duration, map[string]string, error) {
	tx := s.client.TxPipeline()
	ttl, fields := tx.PTTL(ctx, name), tx.HGetAll(ctx, name)
	if _, err := tx.Exec(ctx); err != nil {
		return 0, nil, s.failure(ctx, err)
	}
	return ttl.Val(), fields.Val(), nil
}

// scan visits the records of all masters, until visit returns false. What it tells of
// a record is read by two commands, between which the record may change: a moment
// earlier or later makes no difference to a survey.
func (s *RedisStore) scan(
	ctx context.Context, pattern string, visit func(name string, ttl time.Duration, header, origin string) bool,
) error {
	masters, err := s.masters(ctx)
	if err != nil {
		return s.failure(ctx, err)
	}
	for _, master := range masters {
		for cursor := uint64(0); ; {
			var names []string
			if names, cursor, err = master.Scan(ctx, cursor, pattern, 500).Result(); err != nil {
				return s.failure(ctx, err)
			}
			headers, ttls := make([]*redis.SliceCmd, len(names)), make([]*redis.DurationCmd, len(names))
			pipe := s.client.Pipeline() // follows a slot that is moving, unlike that of a master
			for i, name := range names {
				headers[i], ttls[i] = pipe.HMGet(ctx, name, "m", "o"), pipe.PTTL(ctx, name)
			}
			// What is not a hash fails its command only.
			if _, err := pipe.Exec(ctx); err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") {
				return s.failure(ctx, err)
			}
			for i, name := range names {
				var header, origin string
				if v := headers[i].Val(); len(v) == 2 {
					header, _ = v[0].(string)
					origin, _ = v[1].(string)
				}
				if !visit(name, ttls[i].Val(), header, origin) {
					return nil
				}
			}
			if cursor == 0 {
				break
			}
		}
	}
	return nil
}

// masters returns the servers that records are on.
func (s *RedisStore) masters(ctx context.Context) ([]redis.UniversalClient, error) {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return []redis.UniversalClient{s.client}, nil
	}
	var mu sync.Mutex
	var masters []redis.UniversalClient
	err := cluster.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		masters = append(masters, master)
		return nil
	})
	return masters, err
}

// Check asks the servers whether they can be trusted with records, and returns all
// reasons why not: a version below 6.2, or a maxmemory-policy other than noeviction.
// Call it at start-up.
func (s *RedisStore) Check(ctx context.Context) error {
	masters, err := s.masters(ctx)
	if err != nil {
		return s.failure(ctx, err)
	}
	var faults []error
	for _, master := range masters {
		info, err := master.Info(ctx, "server").Result()
		if err == nil {
			faults = append(faults, checkRedisVersion(info))
			info, err = master.Info(ctx, "memory").Result()
		}
		if err != nil {
			faults = append(faults, s.failure(ctx, err))
			continue
		}
		faults = append(faults, checkRedisPolicy(info))
	}
	return errors.Join(faults...)
}
