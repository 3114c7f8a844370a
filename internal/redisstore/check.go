package redisstore

// Whether the servers can be trusted with records.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/idempotency/internal/giveup"
	"example.com/idempotency/internal/redisclient"
	"example.com/idempotency/internal/redisproto"
	"example.com/idempotency/store"
)

// Check asks the servers whether they can be trusted with records. It returns all reasons
// why they cannot: a version below 6.2, a maxmemory-policy other than noeviction, or a server
// that is a replica. It does not check persistence. Call it at start-up.
//
// Of a Cluster, it also asks the replicas for version and policy, because each may become a master.
// It passes over a replica that does not tell them within a second, or half of the time that is left.
// Elsewhere it asks only the server that the client is connected to.
//
// Check returns by the deadline of its context, whatever the client is.
func (s *Store) Check(ctx context.Context) error {
	if s.obeys {
		return s.checkAll(ctx)
	}
	faults, err := givenUp(ctx, s.checkAll)
	return cmp.Or(wrap(err), faults)
}

// givenUp returns what a check has found, or an error when ctx ends before or the client panics. The
// client may not obey the context.
func givenUp(ctx context.Context, check func(context.Context) error) (faults, err error) {
	var left atomic.Int64
	return giveup.Call(ctx, &left, func(ctx context.Context) (faults, err error) { return check(ctx), nil })
}

// checkAll returns all reasons why the servers cannot be trusted.
func (s *Store) checkAll(ctx context.Context) error {
	masters, err := s.server.masters(ctx)
	if err != nil {
		return s.server.failure(ctx, err)
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
func (s *Store) checkReplicas(ctx context.Context) error {
	cluster, ok := s.server.client.(*redis.ClusterClient)
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
	server, err := info(ctx, replica, "server")
	if err != nil {
		return nil
	}
	memory, err := info(ctx, replica, "memory")
	if err != nil {
		return nil
	}
	if err := errors.Join(redisproto.CheckVersion(server), redisproto.CheckPolicy(memory)); err != nil {
		return wrap(fmt.Errorf("replica %s: %w", addrOf(replica), err))
	}
	return nil
}

// check returns all reasons why one server cannot be trusted.
func (s *Store) check(ctx context.Context, master redisclient.Client) error {
	server, err := info(ctx, master, "server")
	if err != nil {
		return s.server.failure(ctx, err)
	}
	faults := []error{wrap(redisproto.CheckVersion(server))}
	memory, err := info(ctx, master, "memory")
	if err != nil {
		return errors.Join(append(faults, s.server.failure(ctx, err))...)
	}
	faults = append(faults, wrap(redisproto.CheckPolicy(memory)))
	replication, err := info(ctx, master, "replication")
	switch {
	case err == nil:
		faults = append(faults, wrap(redisproto.CheckRole(server, replication)))
	case !isReply(err): // some services do not have the section
		faults = append(faults, s.server.failure(ctx, err))
	}
	return errors.Join(faults...)
}

// Health asks the master, or each master of a Cluster, what is wrong with it now: what Check finds; keys that it has
// evicted; and no room for new ones, which is a [store.ErrFull]. The error err says that it cannot be asked, by an account
// without INFO for example. Health returns by the deadline of its context.
func (s *Store) Health(ctx context.Context) (faults []error, err error) {
	if s.obeys {
		return s.health(ctx)
	}
	var left atomic.Int64
	return giveup.Call(ctx, &left, s.health)
}

func (s *Store) health(ctx context.Context) (faults []error, err error) {
	masters, err := s.server.masters(ctx)
	if err != nil {
		return nil, s.server.failure(ctx, err)
	}
	for _, master := range masters {
		said := map[string]string{}
		for _, section := range []string{"server", "memory", "stats", "replication"} {
			text, err := info(ctx, master, section)
			if err != nil && (!isReply(err) || section == "server" || section == "memory") { // some services do not have the others
				return nil, s.server.failure(ctx, err)
			}
			said[section] = text
		}
		for _, fault := range redisproto.Faults(said["server"], said["memory"], said["stats"], said["replication"]) {
			if len(masters) > 1 {
				fault = fmt.Errorf("%s: %w", addrOf(master), fault)
			}
			faults = append(faults, wrap(fault))
		}
	}
	return faults, nil
}

// Usage implements [store.Gauge]: the memory of the master, or of each master of a Cluster, and its keys, whosever they are. It
// needs INFO, and returns by the deadline of its context.
func (s *Store) Usage(ctx context.Context) ([]store.Figure, error) {
	if s.obeys {
		return s.usage(ctx)
	}
	var left atomic.Int64
	return giveup.Call(ctx, &left, s.usage)
}

func (s *Store) usage(ctx context.Context) (all []store.Figure, err error) {
	masters, err := s.server.masters(ctx)
	if err != nil {
		return nil, s.server.failure(ctx, err)
	}
	for _, master := range masters {
		memory, err := info(ctx, master, "memory")
		if err != nil {
			return nil, s.server.failure(ctx, err)
		}
		keys, err := info(ctx, master, "keyspace")
		if err != nil {
			return nil, s.server.failure(ctx, err)
		}
		for _, figure := range redisproto.Usage(memory, keys) {
			if len(masters) > 1 {
				figure.Name += " of " + addrOf(master)
			}
			all = append(all, figure)
		}
	}
	return all, nil
}

// Forms implements [store.Gauge].
func (s *Store) Forms() []store.Form {
	return []store.Form{store.FormOf("record", redisproto.HeaderVersion)}
}

func info(ctx context.Context, master redisclient.Client, section string) (string, error) {
	cmd := redis.NewStringCmd(ctx, "info", section)
	_ = master.Process(ctx, cmd)
	return cmd.Result()
}
