package redisstore

// How a record is read without a claim.

import (
	"cmp"
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/idempotency/internal/redisproto"
	"example.com/idempotency/store"
)

// completionOf returns a completion as it is recorded.
func completionOf(c store.Completion) (redisproto.Answer, error) {
	ttl, err := redisproto.RoundTTL(c.TTL)
	return redisproto.Answer{Status: c.Status, Bytes: c.Answer, TTL: ttl}, wrap(err)
}

// look reads a record without its answer, and its header even if the rest cannot be read.
func (s *server) look(ctx context.Context, name string) (r store.Record, header string, err error) {
	cmd, _, err := runScript(ctx, s, redis.NewStringSliceCmd, redisproto.Get(name), false)
	if err != nil {
		return r, "", err
	}
	found, header, err := redisproto.ParseGet(cmd.Val())
	return found.Record, header, wrap(err)
}

// fields reads a whole record and its expiry. There are no fields if there is no record.
func (s *server) fields(ctx context.Context, name string) (time.Duration, map[string]string, error) {
	tx := s.client.TxPipeline()
	ttl, fields := tx.PTTL(ctx, name), tx.HGetAll(ctx, name)
	_, err := tx.Exec(ctx)
	if err = cmp.Or(err, ttl.Err(), fields.Err()); err == nil && fields.Val() == nil {
		err = errNoResult
	}
	switch {
	case err == nil:
		return ttl.Val(), fields.Val(), nil
	case !redis.IsOOMError(ttl.Err()) && !redis.IsOOMError(fields.Err()):
		return 0, nil, s.failure(ctx, err)
	}
	// The server is out of memory and queues no command. It may have come to that between the two.
	cmd, _, err := runScript(ctx, s, redis.NewSliceCmd, redisproto.Whole(name), false)
	if err != nil {
		return 0, nil, err
	}
	left, found, err := redisproto.ParseWhole(cmd.Val())
	return left, found, wrap(err)
}

// field reads one field from the master. A Cluster client may send plain reads to a
// replica, where the field may not have arrived yet. It never sends a transaction there.
func (s *server) field(ctx context.Context, name, field string) ([]byte, error) {
	tx := s.client.TxPipeline()
	get := tx.HGet(ctx, name, field)
	_, err := tx.Exec(ctx)
	switch {
	case err == nil && get.Err() == nil && get.Val() == "": // no answer that has a field of its own is empty
		return nil, errNoResult
	case err == nil:
		return get.Bytes()
	case !redis.IsOOMError(get.Err()):
		return nil, err
	}
	_, fields, err := s.fields(ctx, name) // which knows what to do about that
	value, ok := fields[field]
	if err == nil && !ok {
		err = redis.Nil
	}
	return []byte(value), err
}
