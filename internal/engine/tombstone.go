package engine

import (
	"context"
	"errors"
	"fmt"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/internal/engine/note"
	"example.com/idempotency/store"
)

// This file is about what is left of records that were forgotten: a record of the library itself for each, which the
// next request with the key does not meet.

type digging struct{}

// Dig returns a context in which LookInto tells what was forgotten of a key that has run again, too.
func Dig(ctx context.Context) context.Context { return context.WithValue(ctx, digging{}, true) }

// LookInto is Lookup that tells, of a key without a record, what was forgotten of it.
func (e *Engine) LookInto(ctx context.Context, k intent.Key) (Found, error) {
	found, err := e.Lookup(ctx, k)
	absent := errors.Is(err, store.ErrNotFound)
	if !absent && (err != nil || ctx.Value(digging{}) == nil) {
		return found, err
	}
	left, was, readErr := e.tombstone(ctx, k.Name())
	switch {
	case readErr == nil:
		was.Label, was.TTL = left.Label, left.TTL
		found.Forgotten = &was
	case absent && !errors.Is(readErr, store.ErrNotFound): // %v, because it is not the record of the key that cannot be read
		err = fmt.Errorf("%w; and nobody can tell whether it was forgotten: %v", err, readErr) //nolint:errorlint // see above
	}
	return found, err
}

var errBadTombstone = fmt.Errorf("%w: what is left of a forgotten record", store.ErrCorrupt)

// tombstone returns what is left of a record with a name, and the record that it was.
func (e *Engine) tombstone(ctx context.Context, name string) (left, was store.Record, err error) {
	left, err = e.readOwn(ctx, intent.Tombstone(name), store.Inspector.GetAnswer)
	if err == nil {
		var ok bool
		if was, ok = note.ReadTombstone(left.Answer); !ok {
			err = errBadTombstone
		}
	}
	return left, was, err
}

// bury leaves a tombstone of a record that a decision is about to remove. It returns what takes it back, as if nothing had
// been decided. A full store gets none: whoever forgets a record may do so to make room.
func (e *Engine) bury(ctx context.Context, k intent.Key, rec *store.Record, d note.Decision) (takeBack func(), err error) {
	name := intent.Tombstone(k.Name())
	left, was, err := e.tombstone(ctx, k.Name())
	switch {
	case err == nil || errors.Is(err, errBadTombstone):
		err = e.removeOwn(ctx, name, left.Seen())
	case errors.Is(err, store.ErrCorrupt):
		err = e.removeOwn(ctx, name, store.Seen{State: store.Corrupt})
	case errors.Is(err, store.ErrNotFound):
		err = nil
	}
	if err != nil {
		return nil, err
	}
	done := store.Completion{Answer: note.Tombstone(rec, &was, d), TTL: e.rules.Tombstones}
	made, err := e.makeOwn(ctx, name, rec.Label, done)
	switch {
	case err == nil && !made.Mine: // somebody else forgets it at this moment
		return nil, store.ErrChanged
	case errors.Is(err, store.ErrFull):
		e.access(ctx, k, rec.Label).Observe(event.Event{Kind: event.StoreError, Op: "tombstone", Err: err})
		return func() {}, nil
	case err != nil:
		return nil, err
	}
	ctx = context.WithoutCancel(ctx)
	return func() { // if that fails, what stays there says so only when the key has no record any more
		if e.removeOwn(ctx, name, made.Seen()) == nil && left.State != 0 {
			_, _ = e.makeOwn(ctx, name, left.Label, store.Completion{Answer: left.Answer, TTL: left.TTL})
		}
	}, nil
}
