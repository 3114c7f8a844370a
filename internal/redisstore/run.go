package redisstore

// The calls of a run: Claim, and those of the owner of the claim. A call is durable if a
// failover that forgets it would let a run or a step happen twice. It then waits for the
// replicas that the store asks for.

import (
	"cmp"
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"example.com/idempotency/internal/redisproto"
	"example.com/idempotency/store"
)

// detachedSize is the size above which an answer goes past the scripts, because Redis
// copies and hashes every string that enters or leaves one. On loopback, that costs as
// much as a transaction (and a second command for a replay) at 12 to 16 KiB, and three
// times as much at 1 MiB.
const detachedSize = 16 << 10

// Claim implements [store.Store].
func (s *Store) Claim(ctx context.Context, key string, c store.Claim) (store.Record, error) {
	name := s.prefix + key
	h, err := redisproto.NewClaim(c)
	if err != nil {
		return store.Record{}, wrap(err)
	}
	for range 3 {
		call := h.Claim(name, c.Watch, c.Note, c.Label, c.SealedKey, c.Tags)
		entries := s.tags.entriesOf(ctx, key, h.Kept(), c.Tags)
		cmd, confirmed, err := runScript(ctx, s.server, redis.NewStringSliceCmd, call, true, entries...)
		if err != nil {
			return store.Record{}, err
		}
		r, detached, err := h.ParseClaim(cmd.Val())
		switch {
		case err != nil:
			return store.Record{}, wrap(err)
		case r.Mine && !confirmed:
			// The claim stays in place. A run that has happened, and whose record was lost,
			// gets it back this way and can record its answer. A run that has not begun
			// releases it.
			return store.Record{}, errTooFewReplicas
		case detached == "":
			if r.Mine && r.Notes == nil && len(c.Note) > 0 { // a new record
				r.Notes = store.AppendNote(nil, c.Note)
			}
			err := s.index.enterFor(ctx, key, c, r)
			switch {
			case err != nil:
			case r.Mine:
				err = s.tags.entered(ctx, key, h.Kept(), c.Tags, entries)
			case r.Found:
				s.tags.prolong(ctx, key)
			}
			if err != nil {
				return store.Record{}, err
			}
			return r.Record, nil
		}
		r.Answer, err = s.server.field(ctx, name, detached)
		if err == nil {
			return r.Record, nil
		}
		if !errors.Is(err, redis.Nil) {
			return store.Record{}, s.server.failure(ctx, err)
		}
		// The record has expired since the claim: ask again.
	}
	return store.Record{}, redisproto.ErrMissingAnswer
}

// change makes a call that changes the record of a key, and returns the number of its result.
func (s *Store) change(ctx context.Context, key string, call redisproto.Call, durable bool, refused error) (int64, error) {
	result, err := s.server.result(ctx, call, durable, refused)
	s.tags.follow(ctx, key, result)
	return result.N, err
}

// asOwner makes a call of an owner that does not end its claim. Such a call is durable.
func (s *Store) asOwner(ctx context.Context, key string, call redisproto.Call) error {
	_, err := s.change(ctx, key, call, true, store.ErrNotOwner)
	return err
}

// Renew implements [store.Store].
func (s *Store) Renew(ctx context.Context, key string, o store.Owner) error {
	return s.asOwner(ctx, key, redisproto.Renew(s.prefix+key, o))
}

// SaveStep implements [store.StepStore].
func (s *Store) SaveStep(ctx context.Context, key string, o store.Owner, name string, value []byte) error {
	return s.asOwner(ctx, key, redisproto.SaveStep(s.prefix+key, o, name, value))
}

// Release implements [store.Store]. It is durable too: if a failover forgot the release of a claim
// that says Hold, the claim would lapse and hold a key of which nothing has run. The release of a
// claim that was never acknowledged is not: most such claims have failed because replicas are away,
// and a guard would repeat the release until they are back.
func (s *Store) Release(ctx context.Context, key string, o store.Owner, r store.Release) error {
	call := redisproto.Release(s.prefix+key, o, s.listener.channel)
	if r.Undone {
		keep, err := redisproto.RoundTTL(r.Keep)
		if err != nil {
			keep = 0 // or longer than any retention
		}
		call = redisproto.ReleaseUndone(s.prefix+key, o, s.listener.channel, keep, r.Unbind, r.Unused)
	}
	return s.settle(ctx, key, o, call, !r.Undone || !r.Unanswered)
}

// Hold implements [store.Store].
func (s *Store) Hold(ctx context.Context, key string, o store.Owner, note []byte) error {
	result, err := s.change(ctx, key, redisproto.Hold(s.prefix+key, o, s.listener.channel, note), true, store.ErrNotOwner)
	if err == nil && result != redisproto.Entered {
		err = s.index.enter(ctx, key, o, false)
	}
	return err
}

// settle makes a call of an owner that completes or releases its record.
func (s *Store) settle(ctx context.Context, key string, o store.Owner, call redisproto.Call, durable bool) error {
	result, err := s.change(ctx, key, call, durable, store.ErrNotOwner)
	s.index.leave(key, o, result)
	return err
}

// Complete implements [store.Store].
func (s *Store) Complete(ctx context.Context, key string, o store.Owner, c store.Completion) error {
	a, err := completionOf(c)
	if err != nil {
		return err
	}
	if len(c.Answer) > detachedSize && s.server.replicas == 0 {
		discarded, err := s.completeDetached(ctx, key, o, a)
		if !discarded {
			return err
		}
	}
	return s.settle(ctx, key, o, redisproto.Complete(s.prefix+key, o, s.listener.channel, a), true)
}

// completeDetached is Complete for a large answer, which goes past the scripts into a
// field of its owner. It is one round trip and one atomic step. A server that is out of
// memory discards the whole transaction, because HSETNX is the first write in it.
func (s *Store) completeDetached(
	ctx context.Context, key string, o store.Owner, a redisproto.Answer,
) (discarded bool, err error) {
	name := s.prefix + key
	tx := s.server.client.TxPipeline()
	// HSETNX, because a repeated call must not change a completed record.
	put := tx.HSetNX(ctx, name, redisproto.AnswerField(o), a.Bytes)
	// The source and not the digest: if the server did not know the script, the field
	// would stay there.
	flip := redis.NewCmd(ctx, redisproto.CompleteDetached(name, o, s.listener.channel, a).BySource()...)
	_ = tx.Process(ctx, flip)
	_, err = tx.Exec(ctx)
	if redis.IsExecAbortError(err) || redis.IsOOMError(err) {
		return true, err
	}
	if err != nil {
		return false, s.server.failure(ctx, cmp.Or(notQueued(put), err))
	}
	result, err := readResult(flip, store.ErrNotOwner)
	s.index.leave(key, o, result.N)
	s.tags.follow(ctx, key, result)
	return false, err
}

// notQueued returns what the server has replied to a command of a transaction if it refused to
// queue it. The transaction itself may have another error: after a protocol error the server
// closes the connection.
func notQueued(cmd redis.Cmder) error {
	if isReply(cmd.Err()) {
		return cmd.Err()
	}
	return nil
}
