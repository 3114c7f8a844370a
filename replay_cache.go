package idempotency

import (
	"sync"
	"time"
)

// replayCacheAge bounds how long a process answers from its cache, and so how long a
// key that was forgotten elsewhere, or lost by the store, still answers as it did.
// Retries come within seconds.
const replayCacheAge = time.Minute

// cachedOverhead is what an entry costs beyond its key and answer: the record, the slot
// of the map and the headers of both.
const cachedOverhead = 256

// A replayCache keeps recorded answers of this process. They never change while their
// record lives, so an answer from here is the one that the store would give. It has two
// generations: when the young one has taken half of the space it becomes the old one,
// and what was the old one is dropped. What is found moves to the young. That is
// bounded, and needs neither a list nor a sweep.
//
// A nil cache keeps nothing.
type replayCache struct {
	max int64

	mu         sync.Mutex
	young, old map[string]cachedAnswer
	size       int64 // of the young generation
	forgot     time.Time
}

type cachedAnswer struct {
	record  Record // with Age and TTL as of at
	at      time.Time
	expires time.Time
}

func newReplayCache(maxBytes int64) *replayCache {
	if maxBytes <= 0 {
		return nil
	}
	return &replayCache{max: maxBytes, young: make(map[string]cachedAnswer)}
}

// add keeps a completed record. at is a moment not later than the one that its TTL was
// measured at: the time that the store was asked, not the time that it answered. If it is
// zero the store was not asked, because the record comes from here. What the store was
// asked before a key was forgotten, be it another one, is not kept: it may be that key's.
func (c *replayCache) add(key string, rec Record, at time.Time) {
	if c == nil || at.IsZero() {
		return
	}
	rec.Steps = nil
	c.mu.Lock()
	defer c.mu.Unlock()
	if !at.After(c.forgot) {
		return
	}
	c.drop(key)
	c.put(key, cachedAnswer{rec, at, at.Add(min(rec.TTL, replayCacheAge))})
}

// find returns the record of key, if it is here, has an answer to the request that the
// fingerprint stands for, and would not have expired in the store.
func (c *replayCache) find(key string, fp Fingerprint) (Record, bool) {
	if c == nil {
		return Record{}, false
	}
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	found, ok := c.young[key]
	if !ok {
		if found, ok = c.old[key]; !ok {
			return Record{}, false
		}
	}
	if !now.Before(found.expires) || found.record.Fingerprint != fp {
		return Record{}, false
	}
	if _, ok := c.young[key]; !ok {
		c.put(key, found)
	}
	rec := found.record
	rec.Age += now.Sub(found.at)
	rec.TTL -= now.Sub(found.at)
	return rec, true
}

// forget drops what is kept of key, which the store has forgotten.
func (c *replayCache) forget(key string) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(key)
	c.forgot = time.Now()
}

func (c *replayCache) drop(key string) {
	if found, ok := c.young[key]; ok {
		c.size -= found.cost(key)
		delete(c.young, key)
	}
	delete(c.old, key)
}

// put adds to the young generation, and begins a new one if that is full. An answer
// larger than a generation is not worth dropping all others for.
func (c *replayCache) put(key string, a cachedAnswer) {
	cost := a.cost(key)
	if cost > c.max/2 {
		return
	}
	if c.size+cost > c.max/2 {
		c.old, c.young, c.size = c.young, make(map[string]cachedAnswer), 0
	}
	c.young[key] = a
	c.size += cost
}

func (a cachedAnswer) cost(key string) int64 {
	return int64(len(key)+len(a.record.Answer)) + cachedOverhead
}
