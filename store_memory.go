package idempotency

// The memory store: its options, the calls of a run, and the optional interfaces. See
// store_memory_shard.go for what happens to one record.

import (
	"bytes"
	"context"
	"example.com/idempotency/store"
	"hash/maphash"
	"slices"
	"sync/atomic"
	"time"
)

const (
	// memoryShards is how many parts a MemoryStore has. Each has its own lock. The
	// number is a power of two well above the number of cores of common machines, so
	// that two requests seldom meet at one lock.
	memoryShards = 64

	// memoryExpirePerCall is how many expired records a call removes at most. It is
	// above one, so that expired records go faster than new ones can come.
	memoryExpirePerCall = 2

	// memoryOverhead is the measured cost of a record without its key, answer and steps:
	// the record itself, its entry in the index, its place in the expiry queue, and what
	// precedes its value in a slab.
	memoryOverhead = 185

	// memoryStepOverhead is the cost of the first step of a record without its name and
	// its value. Further steps cost less.
	memoryStepOverhead = 128

	// memoryRareOverhead is the cost of the rare part of a record.
	memoryRareOverhead = 80

	// memoryHolding is the cost of a place in the index of held records and of claims that
	// say Hold.
	memoryHolding = 64

	defaultMaxEntries = 1_000_000
	defaultMaxBytes   = 1 << 30
)

// A MemoryStore is a [Store] in the memory of one process. Use it for tests, for trying
// things out, and for programs that run as a single process. Its records end with the
// process: a key that was answered before a restart runs again after it, and a second
// process knows nothing of the first one's claims.
//
// It is bounded (see [WithMaxEntries] and [WithMaxBytes]). When it is full it refuses new
// keys with [ErrStoreFull], and further attempts under keys that have no answer yet. It goes on
// replaying the answers that it has, and takes those of runs in flight. It never drops a
// record before its time, because the request would run again. That holds for held records
// too, which have no end of their own: when they fill the store, it takes no new key until
// somebody resolves or forgets some of them.
//
// The last quarter of its room is only for tenants that hold less than a sixteenth of the room,
// as far as claims say whose they are ([store.Claim.Tenant]). So one tenant cannot fill it for all.
//
// It starts no goroutine and needs no closing. Each call removes a few expired records, so
// they stay in memory while there are no calls, but give way at once when their room is
// needed. The memory of their answers becomes free then. The rest of their memory is kept
// for new records until a part of the store is empty.
//
// A MemoryStore is also a [store.ContextStore], a [store.Watcher], a [store.StepStore], an [store.Inspector] and a
// [store.Lister]. It hands out answers and steps without copying them.
type MemoryStore struct {
	seed       maphash.Seed
	start      time.Time
	maxEntries int64
	maxBytes   int64
	_          [64]byte // keeps what never changes and what always changes on separate cache lines
	entries    atomic.Int64
	bytes      atomic.Int64
	_          [64]byte
	uses       [memoryTenants]memoryUse
	shards     [memoryShards]memoryShard
}

var (
	_ Store              = (*MemoryStore)(nil)
	_ store.ContextStore = (*MemoryStore)(nil)
	_ store.Watcher      = (*MemoryStore)(nil)
	_ store.StepStore    = (*MemoryStore)(nil)
	_ store.Inspector    = (*MemoryStore)(nil)
	_ store.Lister       = (*MemoryStore)(nil)
)

// A MemoryOption changes a limit of a [MemoryStore].
type MemoryOption interface {
	applyMemory(s *MemoryStore)
}

type memoryOption func(s *MemoryStore)

func (o memoryOption) applyMemory(s *MemoryStore) { o(s) }

// WithMaxEntries limits a [MemoryStore] to n records. The default is 1,000,000. A tenant that
// holds a sixteenth of that gets no more when three quarters are taken. It
// panics if n is not positive.
func WithMaxEntries(n int) MemoryOption {
	if n <= 0 {
		panic("idempotency: WithMaxEntries: the limit must be positive")
	}
	return memoryOption(func(s *MemoryStore) { s.maxEntries = int64(n) })
}

// WithMaxBytes limits a [MemoryStore] to about n bytes of memory, which counts keys,
// answers, steps, and what the store itself needs for a record. The default is 1 GiB. It
// panics if n is not positive.
//
// Answers with very different TTLs, and the notes of records with many attempts, may take up to twice
// their size, because they lie in blocks that are given back as a whole. The end of a block that no answer fits into is not counted: those of 4 to
// 8 KiB take up to a third more than others. A [store.Claim.Label] counts as nothing, because routes are few:
// with a label of its own for each record, 294,000 records took one and a half times the limit.
//
// At the limit no run begins, under a new key or under one without an answer, but runs in flight still
// record their answers. Leave room for as many answers as there are runs at once. An answer that alone is
// larger than the limit is refused with [store.ErrTooLarge].
func WithMaxBytes(n int64) MemoryOption {
	if n <= 0 {
		panic("idempotency: WithMaxBytes: the limit must be positive")
	}
	return memoryOption(func(s *MemoryStore) { s.maxBytes = n })
}

// NewMemoryStore returns an empty store.
func NewMemoryStore(opts ...MemoryOption) *MemoryStore {
	s := &MemoryStore{
		seed:       maphash.MakeSeed(),
		start:      time.Now(),
		maxEntries: defaultMaxEntries,
		maxBytes:   defaultMaxBytes,
	}
	for _, o := range opts {
		if o != nil {
			o.applyMemory(s)
		}
	}
	for i := range s.shards {
		s.shards[i].records.init(s.seed)
	}
	return s
}

// Len returns the number of records, including expired ones that are not yet removed.
func (s *MemoryStore) Len() int { return int(s.entries.Load()) }

// ObeysContext implements [store.ContextStore]. It returns true: a call waits for nothing but
// other calls of the store.
func (s *MemoryStore) ObeysContext() bool { return true }

// Claim implements [Store].
func (s *MemoryStore) Claim(ctx context.Context, key string, c store.Claim) (store.Record, error) {
	if err := ctx.Err(); err != nil {
		return store.Record{}, err
	}
	for {
		sh, hash, now := s.lock(key)
		r := s.find(sh, hash, key, now)
		room := true
		if r.none() {
			tenant := s.tenantOf(c)
			if room = s.reserve(len(key)+claimRoom(c), tenant); room {
				r = sh.insert(hash, key, c, now)
				r.tenant = tenant
			}
		} else if r.state != store.Completed {
			room = s.hasRoom(r.tenant)
		}
		var out store.Record
		var err error
		switch {
		case r.none():
			err = ErrStoreFull
		case r.state == store.Completed: // it does not change
			out, err = sh.claim(r, c, now, room)
		default:
			before := sh.claimSize(r)
			out, err = sh.claim(r, c, now, room)
			s.charge(r, sh.claimSize(r)-before)
		}
		sh.mu.Unlock()
		if err == nil || !s.makeRoom() {
			return out, err
		}
	}
}

// claimRoom returns how much room the first claim of a record takes, besides the key.
func claimRoom(c store.Claim) int {
	room := 0
	if n := min(len(c.Note), maxNoteLen); n > 0 {
		room = 1 + n
	}
	if c.Hold {
		room += memoryHolding
	}
	return room + sealedKeyRoom(len(c.SealedKey))
}

// Renew implements [Store].
func (s *MemoryStore) Renew(ctx context.Context, key string, o store.Owner) error {
	return s.asOwner(ctx, key, o, func(sh *memoryShard, r memoryEntry, now int64) error {
		if r.state != store.Claimed {
			return store.ErrNotOwner
		}
		sh.touch(r, store.Claimed, now, r.unanswered(store.Claimed))
		return nil
	})
}

// Complete implements [Store].
func (s *MemoryStore) Complete(ctx context.Context, key string, o store.Owner, c store.Completion) error {
	fits := s.fits(key, c.Answer)
	if fits {
		c.Answer = ownMemory(c.Answer)
	}
	return s.asOwner(ctx, key, o, func(sh *memoryShard, r memoryEntry, now int64) error {
		switch r.state {
		case store.Completed:
			return nil
		case store.Claimed, store.Held:
			if !fits {
				return store.ErrTooLarge
			}
			s.complete(sh, r, key, now, c)
			return nil
		default:
			return store.ErrNotOwner
		}
	})
}

// fits reports whether a record with the value is not larger than the whole store.
func (s *MemoryStore) fits(key string, value []byte) bool {
	return int64(memoryOverhead+len(key)+len(value)) <= s.maxBytes
}

// Release implements [Store].
func (s *MemoryStore) Release(ctx context.Context, key string, o store.Owner, rel store.Release) error {
	return s.giveUp(ctx, key, o, store.Released, rel)
}

// Hold implements [Store].
func (s *MemoryStore) Hold(ctx context.Context, key string, o store.Owner) error {
	return s.giveUp(ctx, key, o, store.Held, store.Release{})
}

// giveUp ends a claim without an answer.
func (s *MemoryStore) giveUp(ctx context.Context, key string, o store.Owner, state store.State, rel store.Release) error {
	return s.asOwner(ctx, key, o, func(sh *memoryShard, r memoryEntry, now int64) error {
		switch {
		case r.state == store.Claimed, r.is(byLapse):
			kept := r.unanswered(state)
			if !rel.Undone {
				r.flags &^= blank
			}
			if !r.is(blank) || !rel.Unused {
				r.flags &^= unbound
			}
			if r.is(blank) {
				if rel.Unbind {
					r.flags |= unbound
				}
				if rel.Keep > 0 {
					kept = min(kept, rel.Keep)
				}
			}
			sh.touch(r, state, now, kept)
			sh.watchers.Wake(key)
			return nil
		case r.state == state:
			return nil
		default:
			return store.ErrNotOwner
		}
	})
}

// complete records the answer of a record that the caller may complete. It has passed ownMemory.
func (s *MemoryStore) complete(sh *memoryShard, r memoryEntry, key string, now int64, c store.Completion) {
	sh.keepAnswer(r, c.Answer)
	r.status = uint16(c.Status)
	s.charge(r, len(c.Answer))
	sh.touch(r, store.Completed, now, c.TTL)
	sh.watchers.Wake(key)
}

// asOwner calls f with the key's record if o is its owner, and holds the lock of the shard
// meanwhile. f decides in which states of the record it does something.
func (s *MemoryStore) asOwner(ctx context.Context, key string, o store.Owner, f func(sh *memoryShard, r memoryEntry, now int64) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	sh, hash, now := s.lock(key)
	defer sh.mu.Unlock()
	r := s.find(sh, hash, key, now)
	if r.none() || !r.isOf(o) {
		return store.ErrNotOwner
	}
	return f(sh, r, now)
}

// lock locks the shard of the key and removes a few expired records from it. It reads the
// time under the lock, so that the time of a shard never goes back.
func (s *MemoryStore) lock(key string) (sh *memoryShard, hash uint64, now int64) {
	hash = maphash.String(s.seed, key)
	sh = &s.shards[hash%memoryShards]
	sh.mu.Lock()
	now = s.now()
	s.expire(sh, now)
	return sh, hash, now
}

// now is the store's clock: nanoseconds since the store was made. It is monotonic,
// so setting the machine's clock neither ends nor prolongs anything.
func (s *MemoryStore) now() int64 { return int64(time.Since(s.start)) }

// find returns the key's record, or nil if there is none or it has expired.
func (s *MemoryStore) find(sh *memoryShard, hash uint64, key string, now int64) memoryEntry {
	r := sh.records.find(hash, key)
	if !r.none() && r.expires <= now {
		s.remove(sh, r)
		return memoryEntry{}
	}
	return r
}

// The optional interfaces of a MemoryStore.

// Watch implements [store.Watcher].
func (s *MemoryStore) Watch(ctx context.Context, key string) (settled <-chan struct{}, stop func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	sh, _, _ := s.lock(key)
	defer sh.mu.Unlock()
	wake := sh.watchers.Add(key)
	return wake, func() {
		sh.mu.Lock()
		defer sh.mu.Unlock()
		sh.watchers.Remove(key, wake)
	}, nil
}

// SaveStep implements [store.StepStore].
func (s *MemoryStore) SaveStep(ctx context.Context, key string, o store.Owner, name string, value []byte) error {
	return s.asOwner(ctx, key, o, func(sh *memoryShard, r memoryEntry, _ int64) error {
		if r.state != store.Claimed {
			return store.ErrNotOwner
		}
		if !s.fits(key, value) {
			return store.ErrTooLarge
		}
		r.flags &^= blank
		step, rare := memoryStep{name, bytes.Clone(value)}, sh.records.addRare(r)
		s.charge(r, step.size())
		if old := rare.step(name); old != nil {
			s.charge(r, -old.size())
			*old = step
			return nil
		}
		rare.steps = append(rare.steps, step)
		return nil
	})
}

// GetAnswer implements [store.Inspector].
func (s *MemoryStore) GetAnswer(ctx context.Context, key string) (store.Record, error) {
	if err := ctx.Err(); err != nil {
		return store.Record{}, err
	}
	sh, hash, now := s.lock(key)
	defer sh.mu.Unlock()
	r := s.find(sh, hash, key, now)
	if r.none() {
		return store.Record{}, ErrNotFound
	}
	out := sh.see(r, now)
	out.Steps, out.SealedKey = sh.stepsByName(r), sh.sealedKey(r)
	return out, nil
}

// Get implements [store.Inspector].
func (s *MemoryStore) Get(ctx context.Context, key string) (store.Record, error) {
	out, err := s.GetAnswer(ctx, key)
	out.Answer = nil
	return out, err
}

// Resolve implements [store.Inspector].
func (s *MemoryStore) Resolve(ctx context.Context, key string, seen store.Seen, settled store.Settlement) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	sh, hash, now := s.lock(key)
	defer sh.mu.Unlock()
	r := s.find(sh, hash, key, now)
	switch {
	case r.none():
		return ErrNotFound
	case seen != r.seenAs(store.Held):
		return ErrChanged
	case sh.resolvedTo(r, settled):
		return nil // An earlier call did the same, and its reply was lost.
	case r.stateAt(now) != store.Held:
		return ErrChanged
	}
	c := settled.Completion
	switch {
	case c != nil && !s.fits(key, c.Answer):
		return store.ErrTooLarge
	case c == nil && !sh.hasSteps(r, settled.Undone):
		return ErrChanged
	}
	r.flags |= byHand // The run that lost the claim can no longer record its own answer.
	if c != nil {
		done := *c
		done.Answer = ownMemory(done.Answer) // under the lock, because that is rare
		s.complete(sh, r, key, now, done)
		return nil
	}
	s.dropSteps(sh, r, settled.Undone)
	r.flags &^= blank | unbound
	sh.touch(r, store.Released, now, r.unanswered(store.Released))
	sh.watchers.Wake(key)
	return nil
}

// dropSteps removes the steps of these names.
func (s *MemoryStore) dropSteps(sh *memoryShard, r memoryEntry, undone map[string][]byte) {
	rare := sh.records.rareOf(r)
	if rare == nil {
		return
	}
	rare.steps = slices.DeleteFunc(rare.steps, func(step memoryStep) bool {
		_, drop := undone[step.name]
		if drop {
			s.charge(r, -step.size())
		}
		return drop
	})
}

// Forget implements [store.Inspector].
func (s *MemoryStore) Forget(ctx context.Context, key string, seen store.Seen) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	sh, hash, now := s.lock(key)
	defer sh.mu.Unlock()
	r := s.find(sh, hash, key, now)
	switch {
	case r.none():
		return nil
	case seen != r.seenAs(r.stateAt(now)),
		r.state == store.Claimed && !r.lapsed(now):
		return ErrChanged
	}
	s.remove(sh, r)
	return nil
}
