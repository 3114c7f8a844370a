package idempotency

// What operators do with the records of a RedisStore, and its Check of the servers.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/idempotency/internal/giveup"
	"example.com/idempotency/internal/redisproto"
	"example.com/idempotency/store"
)

// Get implements [store.Inspector].
func (s *RedisStore) Get(ctx context.Context, key string) (store.Record, error) {
	r, _, err := s.look(ctx, s.prefix+key)
	return r, err
}

// look reads a record without its answer, and its header even if the rest cannot be read.
func (s *RedisStore) look(ctx context.Context, name string) (r store.Record, header string, err error) {
	cmd, _, err := runScript(ctx, s, redis.NewStringSliceCmd, redisproto.Get(name), false)
	if err != nil {
		return r, "", err
	}
	found, header, err := redisproto.ParseGet(cmd.Val())
	if errors.Is(err, redisproto.ErrAbsent) {
		return r, "", ErrNotFound
	}
	return redisRecord(found), header, redisError(err)
}

// GetAnswer implements [store.Inspector]. It goes past the scripts, which would copy the answer.
func (s *RedisStore) GetAnswer(ctx context.Context, key string) (store.Record, error) {
	ttl, fields, err := s.fields(ctx, s.prefix+key)
	if err != nil {
		return store.Record{}, err
	}
	if len(fields) == 0 {
		return store.Record{}, ErrNotFound
	}
	r, err := redisproto.ParseRecord(ttl, fields)
	if err != nil {
		return store.Record{}, redisError(err)
	}
	return redisRecord(r), nil
}

// fields reads a whole record and its expiry. There are no fields if there is no record.
func (s *RedisStore) fields(ctx context.Context, name string) (time.Duration, map[string]string, error) {
	tx := s.client.TxPipeline()
	ttl, fields := tx.PTTL(ctx, name), tx.HGetAll(ctx, name)
	_, err := tx.Exec(ctx)
	if err = cmp.Or(err, ttl.Err(), fields.Err()); err == nil && fields.Val() == nil {
		err = errNoResult
	}
	switch {
	case err == nil:
		return ttl.Val(), fields.Val(), nil
	case !redis.IsOOMError(ttl.Err()):
		return 0, nil, s.failure(ctx, err)
	}
	// The server is out of memory and queues no command.
	cmd, _, err := runScript(ctx, s, redis.NewSliceCmd, redisproto.Whole(name), false)
	if err != nil {
		return 0, nil, err
	}
	left, found, err := redisproto.ParseWhole(cmd.Val())
	return left, found, redisError(err)
}

// masters returns the servers that records are on, those of a Cluster in the order of their
// addresses.
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
	slices.SortFunc(masters, func(a, b redis.UniversalClient) int { return cmp.Compare(redisAddr(a), redisAddr(b)) })
	return masters, err
}

// redisAddr returns the address of a master of a Cluster, or nothing for any other server.
func redisAddr(master redis.UniversalClient) string {
	if c, ok := master.(*redis.Client); ok {
		return c.Options().Addr
	}
	return ""
}

// Resolve implements [store.Inspector].
func (s *RedisStore) Resolve(ctx context.Context, key string, seen store.Seen, settled store.Settlement) error {
	name := s.prefix + key
	if seen.State != store.Held {
		seen.Attempt = 0 // which no record has
	}
	c := settled.Completion
	if c == nil { // Not durable: when a failover forgets it, the key stays held.
		return s.update(ctx, redisproto.ResolveReleased(name, seen.Owner, seen.Attempt, s.channel, settled.Undone), false, ErrChanged)
	}
	a, err := redisAnswer(*c)
	if err != nil {
		return err
	}
	return s.update(ctx, redisproto.ResolveCompleted(name, seen.Owner, seen.Attempt, s.channel, a), true, ErrChanged)
}

// Forget implements [store.Inspector].
func (s *RedisStore) Forget(ctx context.Context, key string, seen store.Seen) error {
	name := s.prefix + key
	call := redisproto.Forget(name, seen.Owner, seen.Attempt, byte(seen.State))
	if seen.State == store.Corrupt {
		// The script knows only headers. Whether a record can be read is found out here.
		_, header, err := s.look(ctx, name)
		switch {
		case err == nil:
			return ErrChanged
		case errors.Is(err, ErrNotFound):
			return nil
		case !errors.Is(err, ErrCorrupt):
			return err
		}
		call = redisproto.ForgetUnread(name, header)
	}
	return s.update(ctx, call, false, ErrChanged)
}

// Check asks the servers whether they can be trusted with records. It returns all reasons
// why they cannot: a version below 6.2, a maxmemory-policy other than noeviction, or a server
// that is a replica. It does not check persistence. Call it at start-up.
//
// Of a Cluster, it also asks the replicas for version and policy, because each may become a master.
// It passes over a replica that does not tell them within a second, or half of the time that is left.
// Elsewhere it asks only the server that the client is connected to.
//
// Check returns by the deadline of its context, whatever the client is.
func (s *RedisStore) Check(ctx context.Context) error {
	if s.obeys {
		return s.checkAll(ctx)
	}
	faults, err := givenUp(ctx, s.checkAll)
	return cmp.Or(redisError(err), faults)
}

// givenUp returns what a check has found, or an error when ctx ends before. The client may not obey
// the context.
func givenUp(ctx context.Context, check func(context.Context) error) (faults, err error) {
	var left atomic.Int64
	return giveup.Call(ctx, &left, calm(func(ctx context.Context) (error, error) { return check(ctx), nil }))
}

// checkAll returns all reasons why the servers cannot be trusted.
func (s *RedisStore) checkAll(ctx context.Context) error {
	masters, err := s.masters(ctx)
	if err != nil {
		return s.failure(ctx, err)
	}
	var faults []error
	for _, master := range masters {
		faults = append(faults, s.check(ctx, master))
	}
	return errors.Join(append(faults, s.checkReplicas(ctx))...)
}

// replicaPatience is how long Check waits for replicas. Its verdict does not depend on those that
// are away.
const replicaPatience = time.Second

// checkReplicas returns what the replicas of a Cluster say against themselves.
func (s *RedisStore) checkReplicas(ctx context.Context) error {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return nil
	}
	patience := replicaPatience
	if end, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(end)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var mu sync.Mutex
	var faults []error
	_, _ = givenUp(ctx, func(ctx context.Context) error {
		return cluster.ForEachSlave(ctx, func(ctx context.Context, replica *redis.Client) error {
			err := checkReplica(ctx, replica)
			mu.Lock()
			defer mu.Unlock()
			faults = append(faults, err)
			return nil
		})
	})
	mu.Lock()
	defer mu.Unlock()
	return errors.Join(faults...)
}

// checkReplica returns why a replica could not be trusted if it became the master, as far as it
// tells.
func checkReplica(ctx context.Context, replica *redis.Client) error {
	server, err := redisInfo(ctx, replica, "server")
	if err != nil {
		return nil
	}
	memory, err := redisInfo(ctx, replica, "memory")
	if err != nil {
		return nil
	}
	if err := errors.Join(redisproto.CheckVersion(server), redisproto.CheckPolicy(memory)); err != nil {
		return redisError(fmt.Errorf("replica %s: %w", redisAddr(replica), err))
	}
	return nil
}

// check returns all reasons why one server cannot be trusted.
func (s *RedisStore) check(ctx context.Context, master redis.UniversalClient) error {
	server, err := redisInfo(ctx, master, "server")
	if err != nil {
		return s.failure(ctx, err)
	}
	faults := []error{redisError(redisproto.CheckVersion(server))}
	memory, err := redisInfo(ctx, master, "memory")
	if err != nil {
		return errors.Join(append(faults, s.failure(ctx, err))...)
	}
	faults = append(faults, redisError(redisproto.CheckPolicy(memory)))
	replication, err := redisInfo(ctx, master, "replication")
	var reply redis.Error
	switch {
	case err == nil:
		faults = append(faults, redisError(redisproto.CheckRole(server, replication)))
	case !errors.As(err, &reply): // some services do not have the section
		faults = append(faults, s.failure(ctx, err))
	}
	return errors.Join(faults...)
}

func redisInfo(ctx context.Context, master redis.UniversalClient, section string) (string, error) {
	cmd := redis.NewStringCmd(ctx, "info", section)
	_ = master.Process(ctx, cmd)
	return cmd.Result()
}
