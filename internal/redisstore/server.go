package redisstore

// How a call reaches the server: as a script by its digest, with a WAIT for the replicas, to a slot
// that may be moving.

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/idempotency/internal/redisclient"
	"example.com/idempotency/internal/redisproto"
)

// A server is what keeps the records of a store: one server, a master found by Sentinel, or a
// Cluster, and how many replicas have to confirm what is written there.
type server struct {
	client   redisclient.Client
	replicas int
	patience time.Duration // how long to wait for the replicas
	reloaded atomic.Int64  // when the view of the cluster was last renewed, in Unix ms
}

// update makes a call whose script returns a number, and returns the error that the number
// stands for. If the script has refused, that is refused.
func (s *server) update(ctx context.Context, call redisproto.Call, durable bool, refused error) error {
	_, err := s.result(ctx, call, durable, refused)
	return err
}

// result is update, and returns what the script has said.
func (s *server) result(ctx context.Context, call redisproto.Call, durable bool, refused error) (r redisproto.Result, err error) {
	cmd, confirmed, err := runScript(ctx, s, redis.NewCmd, call, durable)
	if err != nil {
		return r, err
	}
	if r, err = readResult(cmd, refused); err != nil {
		return redisproto.Result{}, err
	}
	if !confirmed {
		return redisproto.Result{}, errTooFewReplicas
	}
	return r, nil
}

// readResult reads the result of a script.
func readResult(cmd *redis.Cmd, refused error) (redisproto.Result, error) {
	if cmd.Val() == nil {
		return redisproto.Result{}, errNoResult
	}
	r, err := redisproto.ParseResult(cmd.Val())
	if err != nil {
		return r, wrap(err)
	}
	return r, resultError(r.N, refused)
}

// runScript makes a call on the server that holds the record. newCmd makes the command
// that reads the reply. A durable call waits for as many replicas as the store asks for,
// and confirmed reports whether they have what the script wrote. Other commands may go with the call, on anything but a
// Cluster.
func runScript[C redis.Cmder](
	ctx context.Context, s *server, newCmd func(context.Context, ...any) C, call redisproto.Call, durable bool, with ...redis.Cmder,
) (cmd C, confirmed bool, err error) {
	cmd = newCmd(ctx, call.ByDigest()...)
	durable = durable && s.replicas > 0
	confirmed, err = s.send(ctx, durable, call.Name(), cmd, with...)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		cmd = newCmd(ctx, call.BySource()...)
		confirmed, err = s.send(ctx, durable, call.Name(), cmd, with...)
	}
	if err != nil {
		return cmd, false, s.failure(ctx, err)
	}
	return cmd, confirmed, nil
}

// send sends one command with others behind it, and a WAIT at the end if the call is durable.
func (s *server) send(ctx context.Context, durable bool, name string, cmd redis.Cmder, with ...redis.Cmder) (confirmed bool, err error) {
	switch {
	case durable:
	case len(with) > 0:
		pipe := s.client.Pipeline()
		_ = pipe.BatchProcess(ctx, append([]redis.Cmder{cmd}, with...)...)
		_, err := pipe.Exec(ctx)
		return true, cmp.Or(cmd.Err(), unsent(err, with...))
	default:
		_ = s.client.Process(ctx, cmd)
		return true, cmd.Err()
	}
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return s.confirm(ctx, s.client.Pipeline(), cmd, with...)
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
	// The record's slot is moving or has moved. The client would follow if it had chosen
	// the server, but this pipeline is bound to one server.
	o := *master.Options()
	o.Addr, o.PoolSize, o.MinIdleConns = redisproto.DialAddr(addr), 1, 0
	next := redis.NewClient(&o)
	defer func() { _ = next.Close() }()
	pipe := next.Pipeline()
	_ = pipe.Process(ctx, redis.NewCmd(ctx, "asking")) // without effect if the slot has moved there
	return s.confirm(ctx, pipe, cmd)
}

// confirm sends a command with a WAIT behind it. Both travel in one pipeline, because WAIT
// counts the writes of its own connection. On another one it would report success although
// no replica has the record.
func (s *server) confirm(ctx context.Context, pipe redis.Pipeliner, cmd redis.Cmder, with ...redis.Cmder) (bool, error) {
	_ = pipe.Process(ctx, cmd)
	_ = pipe.BatchProcess(ctx, with...)
	wait := redis.NewIntCmd(ctx, "wait", s.replicas, s.patience.Milliseconds())
	_ = pipe.Process(ctx, wait)
	_, err := pipe.Exec(ctx)
	if err := cmd.Err(); err != nil {
		return false, err
	}
	if err := cmp.Or(wait.Err(), unsent(err, with...)); err != nil {
		return false, err
	}
	return wait.Val() >= int64(s.replicas), nil
}

// unsent returns an error of a pipeline unless it is what the server has replied to a command that went with the first one.
// If a hook has stopped the commands, or the connection was refused for a wrong password, none of them has an error,
// and none a result.
func unsent(err error, with ...redis.Cmder) error {
	if isReply(err) && slices.ContainsFunc(with, func(c redis.Cmder) bool { return c.Err() != nil }) {
		return nil
	}
	return err
}

// reloadPause is the shortest time between two renewals of a Cluster client's view.
const reloadPause = time.Second

// reloadAfter makes a Cluster client ask again which server is master of which slots, if
// err suggests that its view is out of date: there was no reply, or the server was not the
// master. By itself, the client keeps calling a dead master until it renews its view, which
// it does once a minute.
func (s *server) reloadAfter(ctx context.Context, err error) {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok || errors.Is(err, context.Canceled) {
		return
	}
	_, moved := redis.IsMovedError(err)
	if isReply(err) && !moved && !redis.IsReadOnlyError(err) && !redis.IsClusterDownError(err) {
		return
	}
	now, last := time.Now().UnixMilli(), s.reloaded.Load()
	if now-last >= reloadPause.Milliseconds() && s.reloaded.CompareAndSwap(last, now) {
		cluster.ReloadState(ctx)
	}
}

// failure turns an error of the client into one of the store.
func (s *server) failure(ctx context.Context, err error) error {
	s.reloadAfter(ctx, err)
	return failure(ctx, err)
}
