package idempotency

// The memory store as programs see it: what it promises, and its options.

import (
	"example.com/idempotency/internal/memory"
	"example.com/idempotency/store"
)

// A MemoryStore is a [Store] in the memory of one process. Use it for tests, for trying
// things out, and for programs that run as a single process. Its records end with the
// process: a key that was answered before a restart runs again after it, and a second
// process knows nothing of the first one's claims.
//
// It is bounded (see [WithMaxEntries] and [WithMaxBytes]). When it is full it refuses new
// keys with [ErrStoreFull], and when its bytes are used up also further attempts under keys that
// have no answer yet. It goes on
// replaying the answers that it has, and takes those of runs in flight. It never drops a
// record before its time, because the request would run again. That holds for held records
// too, which have no end of their own: when they fill the store, it takes no new key until
// somebody resolves or forgets some of them.
//
// The last quarter of its room is only for tenants that hold less than a sixteenth of the room,
// as far as claims say whose they are ([store.Claim.Tenant]). So one tenant cannot fill it for all.
//
// It starts no goroutine and needs no closing. Each call removes a few expired records, whatever
// their keys are, so they stay in memory while there are no calls, but give way at once when their
// room is needed. The memory of their answers becomes free then. The rest of their memory is kept
// for new records until a part of the store is empty.
//
// A MemoryStore is also a [store.ContextStore], a [store.Watcher], a [store.StepStore], a
// [store.Inspector], a [store.Lister], a [store.Finder] and a [store.Gauge]. It hands out answers and steps without copying them. Two
// methods are for tests and gauges: Len returns the number of records, including expired ones
// that are not yet removed, and Health an [ErrStoreFull] while there is no room for a new one. All methods may be called concurrently.
type MemoryStore = memory.Store

var (
	_ Store              = (*MemoryStore)(nil)
	_ store.ContextStore = (*MemoryStore)(nil)
	_ store.Watcher      = (*MemoryStore)(nil)
	_ store.StepStore    = (*MemoryStore)(nil)
	_ store.Inspector    = (*MemoryStore)(nil)
	_ store.Lister       = (*MemoryStore)(nil)
	_ store.Finder       = (*MemoryStore)(nil)
	_ store.Gauge        = (*MemoryStore)(nil)
)

// NewMemoryStore returns an empty store.
func NewMemoryStore(opts ...MemoryOption) *MemoryStore {
	var c memory.Config
	for _, o := range opts {
		if o != nil {
			o.applyMemory(&c)
		}
	}
	return memory.New(c)
}

// A MemoryOption changes a limit of a [MemoryStore].
type MemoryOption interface {
	applyMemory(c *memory.Config)
}

type memoryOption func(c *memory.Config)

func (o memoryOption) applyMemory(c *memory.Config) { o(c) }

// WithMaxEntries limits a [MemoryStore] to n records. The default is 1,000,000. A tenant that
// holds a sixteenth of that gets no more when three quarters are taken. It
// panics if n is not positive.
func WithMaxEntries(n int) MemoryOption {
	if n <= 0 {
		panic("idempotency: WithMaxEntries: the limit must be positive")
	}
	return memoryOption(func(c *memory.Config) { c.MaxEntries = int64(n) })
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
	return memoryOption(func(c *memory.Config) { c.MaxBytes = n })
}
