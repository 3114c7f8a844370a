package idempotency

// What operators do with the records of a RedisStore, and its Check of the servers.

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/idempotency/internal/redisproto"
)

// Get implements [Inspector].
func (s *RedisStore) Get(ctx context.Context, key string) (Record, error) {
	r, _, err := s.look(ctx, s.prefix+key)
	return r, err
}

// look reads a record without its answer, and its header even if the rest cannot be read.
func (s *RedisStore) look(ctx context.Context, name string) (r Record, header string, err error) {
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

// GetAnswer implements [Inspector]. It goes past the scripts, which would copy the answer.
func (s *RedisStore) GetAnswer(ctx context.Context, key string) (Record, error) {
	ttl, fields, err := s.fields(ctx, s.prefix+key)
	if err != nil {
		return Record{}, err
	}
	if len(fields) == 0 {
		return Record{}, ErrNotFound
	}
	r, err := redisproto.ParseRecord(ttl, fields)
	if err != nil {
		return Record{}, redisError(err)
	}
	return redisRecord(r), nil
}

// fields reads a whole record and its expiry. There are no fields if there is no record.
func (s *RedisStore) fields(ctx context.Context, name string) (time.Duration, map[string]string, error) {
	tx := s.client.TxPipeline()
	ttl, fields := tx.PTTL(ctx, name), tx.HGetAll(ctx, name)
	if _, err := tx.Exec(ctx); err != nil {
		return 0, nil, s.failure(ctx, err)
	}
	return ttl.Val(), fields.Val(), nil
}

// List implements [Inspector]. It leaves out answers and steps. In a Cluster it lists one
// master after another.
func (s *RedisStore) List(ctx context.Context, visit func(key string, r Record) bool) error {
	return s.scan(ctx, redisLiteral(s.prefix)+"*", func(name string, ttl time.Duration, header, note, label string) bool {
		r, err := redisproto.ParseSummary(ttl, header, note, label)
		return err != nil || visit(strings.TrimPrefix(name, s.prefix), redisRecord(r))
	})
}

// redisLiteral quotes a string for use in a pattern.
func redisLiteral(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}

// scan visits the records of all masters until visit returns false. It reads a record with
// two commands, and the record may change between them. In a survey that does not matter.
func (s *RedisStore) scan(
	ctx context.Context, pattern string, visit func(name string, ttl time.Duration, header, note, label string) bool,
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
			pipe := s.client.Pipeline() // unlike the pipeline of a master, it follows a slot that is moving
			for i, name := range names {
				// Not HGET, for which a hash without a header is an error of the client library.
				headers[i], ttls[i] = pipe.HMGet(ctx, name, redisproto.FieldHeader, redisproto.FieldNote, redisproto.FieldLabel), pipe.PTTL(ctx, name)
			}
			// A key that is not a hash fails only its own command.
			if _, err := pipe.Exec(ctx); err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") {
				return s.failure(ctx, err)
			}
			for i, name := range names {
				var fields [3]string
				for j, v := range headers[i].Val() {
					fields[j], _ = v.(string)
				}
				if !visit(name, ttls[i].Val(), fields[0], fields[1], fields[2]) {
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

// Resolve implements [Inspector].
func (s *RedisStore) Resolve(ctx context.Context, key string, seen Seen, settled Settlement) error {
	name := s.prefix + key
	attempt := seen.Attempt
	if seen.State != StateHeld {
		attempt = 0 // which no record has
	}
	c := settled.Completion
	if c == nil { // Not durable: when a failover forgets it, the key stays held.
		return s.update(ctx, redisproto.ResolveReleased(name, attempt, s.channel, settled.Undone), false, ErrChanged)
	}
	a, err := redisAnswer(*c)
	if err != nil {
		return err
	}
	return s.update(ctx, redisproto.ResolveCompleted(name, attempt, s.channel, a), true, ErrChanged)
}

// Forget implements [Inspector].
func (s *RedisStore) Forget(ctx context.Context, key string, seen Seen) error {
	name := s.prefix + key
	call := redisproto.Forget(name, seen.Attempt, byte(seen.State))
	if seen.State == StateCorrupt {
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
// why they cannot: a version below 6.2, or a maxmemory-policy other than noeviction. Call
// it at start-up.
func (s *RedisStore) Check(ctx context.Context) error {
	masters, err := s.masters(ctx)
	if err != nil {
		return s.failure(ctx, err)
	}
	var faults []error
	for _, master := range masters {
		info, err := master.Info(ctx, "server").Result()
		if err == nil {
			faults = append(faults, redisError(redisproto.CheckVersion(info)))
			info, err = master.Info(ctx, "memory").Result()
		}
		if err != nil {
			faults = append(faults, s.failure(ctx, err))
			continue
		}
		faults = append(faults, redisError(redisproto.CheckPolicy(info)))
	}
	return errors.Join(faults...)
}
