// Package memory keeps records in the memory of one process. It is the store behind
// idempotency.NewMemoryStore.
package memory

// A store, its clock, and how records are found and expire. The calls of a run are in run.go, and
// what happens to one record is in the files of its shard.

import (
	"context"
	"hash/maphash"
	"sync/atomic"
	"time"

	"example.com/idempotency/store"
)

const (
	// shardCount is how many parts a Store has. Each has its own lock. The number is a power
	// of two well above the number of cores of common machines, so that two requests seldom
	// meet at one lock.
	shardCount = 64

	// expiredPerCall is how many expired records a call removes at most. It is
	// above one, so that expired records go faster than new ones can come.
	expiredPerCall = 2

	// callsPerVisit is how many calls of a shard without expired records there are for one look
	// at another shard.
	callsPerVisit = 16
)

// A Store is what idempotency.MemoryStore says.
type Store struct {
	seed   maphash.Seed
	start  time.Time
	room   room
	own    atomic.Int64 // records of the library itself
	_      [48]byte     // lets the shards begin with a cache line
	shards [shardCount]shard
}

var (
	_ store.Store        = (*Store)(nil)
	_ store.ContextStore = (*Store)(nil)
	_ store.Watcher      = (*Store)(nil)
	_ store.StepStore    = (*Store)(nil)
	_ store.Inspector    = (*Store)(nil)
	_ store.Lister       = (*Store)(nil)
	_ store.Finder       = (*Store)(nil)
	_ store.Gauge        = (*Store)(nil)
)

// A Config has the limits of a [Store]. Those that are not positive stand for their defaults.
type Config struct {
	// MaxEntries is how many records the store has at most. The default is 1,000,000.
	MaxEntries int64
	// MaxBytes is how much memory its records take at most, about. The default is 1 GiB.
	MaxBytes int64
}

const (
	defaultMaxEntries = 1_000_000
	defaultMaxBytes   = 1 << 30
)

// New returns an empty store.
func New(c Config) *Store {
	if c.MaxEntries <= 0 {
		c.MaxEntries = defaultMaxEntries
	}
	if c.MaxBytes <= 0 {
		c.MaxBytes = defaultMaxBytes
	}
	s := &Store{seed: maphash.MakeSeed(), start: time.Now()}
	s.room.seed, s.room.maxEntries, s.room.maxBytes = s.seed, c.MaxEntries, c.MaxBytes
	for i := range s.shards {
		s.shards[i].records.init(s.seed)
		s.shards[i].next = uint8(i)
	}
	return s
}

// Len returns the number of records, including expired ones that are not yet removed, and without those of the library
// itself.
func (s *Store) Len() int { return int(s.room.entries.Load() - s.own.Load()) }

// Health returns what is wrong with the store now: [store.ErrFull] while it has no room for a new record. The error err is nil.
func (s *Store) Health(context.Context) (faults []error, err error) {
	for s.room.full() {
		if !s.makeRoom() {
			return []error{store.ErrFull}, nil
		}
	}
	return nil, nil
}

// Usage implements [store.Gauge]. The error is nil.
func (s *Store) Usage(context.Context) ([]store.Figure, error) {
	return []store.Figure{
		{Name: "records", Used: s.room.entries.Load(), Limit: s.room.maxEntries},
		{Name: "memory", Used: s.room.bytes.Load(), Limit: s.room.maxBytes, Bytes: true},
	}, nil
}

// Forms implements [store.Gauge]. There are none: records end with the process.
func (s *Store) Forms() []store.Form { return nil }

// ObeysContext implements [store.ContextStore]. It returns true: a call waits for nothing but
// other calls of the store.
func (s *Store) ObeysContext() bool { return true }

// lock locks the shard of the key. The caller unlocks it by a deferred call, so that a panic leaves
// no lock behind on which all other calls of the shard would wait for ever.
func (s *Store) lock(key string) (sh *shard, hash uint64) {
	hash = maphash.String(s.seed, key)
	sh = &s.shards[hash%shardCount]
	sh.mu.Lock()
	return sh, hash
}

// now is the store's clock: nanoseconds since the store was made. It is monotonic,
// so setting the machine's clock neither ends nor prolongs anything.
func (s *Store) now() int64 { return int64(time.Since(s.start)) }

// find returns the key's record, or nil if there is none or it has expired.
func (s *Store) find(sh *shard, hash uint64, key string, now int64) entry {
	r := sh.records.find(hash, key)
	if !r.none() && r.expires <= now {
		s.remove(sh, r)
		return entry{}
	}
	return r
}

func (s *Store) makeRoomIn(sh *shard) bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return s.expire(sh, s.now())
}

// remove removes the record from the shard and gives its room back.
func (s *Store) remove(sh *shard, r entry) {
	if sh.records.isOwn(r) {
		s.own.Add(-1)
	}
	s.room.giveBack(sh.size(r), r.tenant)
	sh.remove(r, sh.records.hash(r))
}
