package engine

import (
	"context"
	"errors"

	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/internal/stepcall"
	"example.com/idempotency/store"
)

// FailsOpen reports whether a request may run without a claim, because of an error of the store: under
// [Rules.FailOpen], unless the store has said that there is a record, be it one that nobody can read.
func (c *Claiming) FailsOpen(err error) bool {
	return c.Lease.rules.FailOpen && !c.Met && !errors.Is(err, store.ErrCorrupt)
}

// Unprotected returns the context of what runs without a claim of its own, for a key that is bound to
// fp.
func (e *Engine) Unprotected(ctx context.Context, k intent.Key, fp store.Fingerprint) context.Context {
	return unprotectedContext{ctx, e.rules.Derivation.Of(k, fp)}
}

// An unprotectedContext is the context of what runs without a claim. The operation, or the
// step, that it may be called from is not its own. It has an intent, so that downstream
// services recognise a repetition all the same.
type unprotectedContext struct {
	context.Context
	intent intent.Intent
}

func (c unprotectedContext) Value(key any) any {
	switch key {
	case operationKey{}, stepcall.ContextKey{}:
		return nil
	case intentKey{}:
		return c.intent
	}
	return c.Context.Value(key)
}

// intentKey is the key under which the context of a run that has no claim holds its intent.
type intentKey struct{}

func intentOf(ctx context.Context) (i intent.Intent, ok bool) {
	if op, ok := FromContext(ctx); ok {
		op.lease.keepClaim()
		return op.intent(), true
	}
	i, ok = ctx.Value(intentKey{}).(intent.Intent)
	return i, ok
}

// DeriveKey returns the derived key of the run that ctx belongs to. It reports false outside of one.
func DeriveKey(ctx context.Context, purpose string) (key string, ok bool) {
	i, ok := intentOf(ctx)
	if !ok {
		return "", false
	}
	return i.DeriveKey(purpose), true
}
