package guardtest

import (
	"context"
	"sync"
	"time"

	"example.com/idempotency/store"
)

// A ClaimingStore has all optional interfaces of a store whose claims may be transactions.
type ClaimingStore interface {
	store.Store
	store.Watcher
	store.StepStore
	store.Inspector
	store.Lister
	store.Finder
	store.TxStore
	store.Comparer
}

// An Unrecorded is a store whose claims are no records as long as nobody looks: it claims as guards under
// WithTransaction do, and makes the claims records before calls that would find nothing. So it keeps the
// contract of stores, which says nothing about claims that may be lost.
type Unrecorded struct {
	ClaimingStore
	open *sync.Map // owners of claims that are no records, by keys
}

// NewUnrecorded returns the store as an Unrecorded.
func NewUnrecorded(s ClaimingStore) Unrecorded { return Unrecorded{s, new(sync.Map)} }

// Claim claims a key. The claim may be lost, unless its lapse would hold the key or it has a note, which others
// would not find.
func (s Unrecorded) Claim(ctx context.Context, key string, c store.Claim) (store.Record, error) {
	if len(c.Note) > 0 {
		s.Settle()
	}
	c.MayBeLost = !c.Hold && len(c.Note) == 0
	r, err := s.ClaimingStore.Claim(ctx, key, c)
	if r.MayBeLost {
		s.open.Store(key, c.Owner)
	}
	r.MayBeLost = false
	return r, err
}

// Passes returns a clock that lets time pass for all claims.
func (s Unrecorded) Passes(clock func(time.Duration)) func(time.Duration) {
	return func(d time.Duration) {
		s.Settle()
		clock(d)
	}
}

// Settle makes all claims records.
func (s Unrecorded) Settle() {
	s.open.Range(func(key, owner any) bool {
		s.open.Delete(key)
		_ = s.Renew(context.Background(), key.(string), owner.(store.Owner))
		return true
	})
}

// Release implements [store.Store]. A claim that is given back with nothing done leaves nothing.
func (s Unrecorded) Release(ctx context.Context, key string, o store.Owner, rel store.Release) error {
	if rel.Undone {
		s.Settle()
	}
	return s.ClaimingStore.Release(ctx, key, o, rel)
}

// Get implements [store.Inspector].
func (s Unrecorded) Get(ctx context.Context, key string) (store.Record, error) {
	s.Settle()
	return s.ClaimingStore.Get(ctx, key)
}

// GetAnswer implements [store.Inspector].
func (s Unrecorded) GetAnswer(ctx context.Context, key string) (store.Record, error) {
	s.Settle()
	return s.ClaimingStore.GetAnswer(ctx, key)
}

// List implements [store.Lister].
func (s Unrecorded) List(ctx context.Context, q store.Query) (store.Page, error) {
	s.Settle()
	return s.ClaimingStore.List(ctx, q)
}

// Find implements [store.Finder].
func (s Unrecorded) Find(ctx context.Context, t store.Tag, q store.Query) (store.Page, error) {
	s.Settle()
	return s.ClaimingStore.Find(ctx, t, q)
}

// Forget implements [store.Inspector].
func (s Unrecorded) Forget(ctx context.Context, key string, seen store.Seen) error {
	s.Settle()
	return s.ClaimingStore.Forget(ctx, key, seen)
}

// Resolve implements [store.Inspector].
func (s Unrecorded) Resolve(ctx context.Context, key string, seen store.Seen, settled store.Settlement) error {
	s.Settle()
	return s.ClaimingStore.Resolve(ctx, key, seen, settled)
}

// SameAs implements [store.Comparer].
func (s Unrecorded) SameAs(other store.Store) bool {
	o, ok := other.(Unrecorded)
	return ok && s.ClaimingStore.SameAs(o.ClaimingStore)
}
