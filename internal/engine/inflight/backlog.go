package inflight

import (
	"sync"
)

// Bounds of what waits in the background for the store to come back. New requests are
// refused while the store is away, so only runs that were in flight at that moment get
// here.
const (
	maxPendingBytes = 64 << 20
	maxPending      = 4096
)

// A Backlog bounds the number and the memory of what waits for the store.
type Backlog struct {
	mu    sync.Mutex
	n     int
	bytes int64
}

// Add takes room for one more, with that many bytes, or reports false if there is none.
func (b *Backlog) Add(bytes int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.n >= maxPending || b.bytes+bytes > maxPendingBytes {
		return false
	}
	b.n++
	b.bytes += bytes
	return true
}

// Crowded reports whether more than half of the number is reached.
func (b *Backlog) Crowded() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.n > maxPending/2
}

// Remove gives the room back.
func (b *Backlog) Remove(bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.n--
	b.bytes -= bytes
}

// Size returns how much of the room is taken.
func (b *Backlog) Size() (n int, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.n, b.bytes
}
