package idempotency

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"
)

// A Key names one record: a key and whose it is. To [Guard.Lookup], [Guard.Resolve],
// [Guard.Forget] and [Do], one without a scope or a value is an error.
type Key struct {
	// Scope as the guard's [ScopeFunc] tells it, or [Shared]. Choose one for [Do] that
	// no ScopeFunc returns, "queue:orders" for example: a message and a request never
	// are the same payload, and with the same key the later one is refused.
	Scope string
	// Value is the key as the client sent it, decoded: abc for both abc and "abc". For
	// Do it is whatever names the work, a message id for example. It has 1 to 255 bytes
	// of any kind.
	Value string
}

func (k Key) storeKey() string { return storeKey(k.Scope, k.Value) }

// A RecordInfo is what a guard knows of a key's record; see [Guard.Lookup],
// [WithAuthorizeReplay] and [WithResolver]. It never contains the recorded answer itself.
type RecordInfo struct {
	// Key and scope of the record.
	Key Key
	// ID is that of [Operation.ID].
	ID string
	// State of the record.
	State State
	// Attempt is the number of the last run.
	Attempt int
	// Lease is how much longer a run in flight is protected from takeover. It is not
	// positive if the lease has lapsed.
	Lease time.Duration
	// Age is the time since the record was last claimed, renewed, completed, released
	// or held. TTL is how much longer it is kept.
	Age, TTL time.Duration
	// Status of the recorded answer, or 0 if there is none.
	Status int
	// Steps are the sorted names of the steps that are recorded, and of those that were
	// begun under [AtMostOnce]. They are not known during a replay.
	Steps []string

	origin Owner
}

func newRecordInfo(k Key, rec Record) RecordInfo {
	return RecordInfo{
		Key: k, ID: operationID(rec.Origin), State: rec.State, Attempt: rec.Attempt,
		Lease: rec.Lease, Age: rec.Age, TTL: rec.TTL,
		Steps: slices.Sorted(maps.Keys(rec.Steps)), origin: rec.Origin,
	}
}

// DeriveKey returns what the function [DeriveKey] returned in the run: the key under
// which to ask a downstream service what happened.
func (i RecordInfo) DeriveKey(purpose string) string { return deriveKey(i.origin, purpose) }

// ErrNoInspector is returned by [Guard.Lookup], [Guard.Resolve] and [Guard.Forget] when
// the guard's store is not an [Inspector].
var ErrNoInspector = errors.New("idempotency: the store cannot be inspected")

// Lookup tells what is known of a key, without changing it.
//
// Errors: [ErrNotFound], [ErrCorrupt], [ErrNoInspector], and those of the store.
func (g *Guard) Lookup(ctx context.Context, k Key) (RecordInfo, error) {
	_, rec, err := g.get(ctx, k)
	if err != nil {
		return RecordInfo{}, err
	}
	info := newRecordInfo(k, rec)
	if rec.State == StateCompleted {
		a, err := g.set.unseal(rec.Answer, k.storeKey(), rec.Fingerprint, nil)
		if err != nil {
			return info, err
		}
		info.Status = a.Status
	}
	return info, nil
}

// Forget removes what is known of a key, in any state but a run in flight: the next
// request with it runs as the first. Forgetting what is not known is success.
//
// Errors: [ErrChanged] when a run is in flight, [ErrNoInspector], and those of the
// store. A record that cannot be read is forgotten too.
func (g *Guard) Forget(ctx context.Context, k Key) error {
	inspector, rec, err := g.get(ctx, k)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil
	case err != nil && !errors.Is(err, ErrCorrupt):
		return err
	}
	_, err = do(ctx, g.core, storeTimeout, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, inspector.Forget(ctx, k.storeKey(), rec.Attempt)
	})
	return err
}

func (g *Guard) get(ctx context.Context, k Key) (Inspector, Record, error) {
	inspector, ok := g.core.store.(Inspector)
	if !ok {
		return nil, Record{}, ErrNoInspector
	}
	if err := k.check(); err != nil {
		return nil, Record{}, err
	}
	rec, err := do(ctx, g.core, storeTimeout, func(ctx context.Context) (Record, error) {
		return inspector.Get(ctx, k.storeKey())
	})
	return inspector, rec, err
}
