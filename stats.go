package idempotency

// This file tells how busy a guard is.

// Stats are what a guard is busy with in this process at one moment; see [Guard.Stats].
type Stats struct {
	// Running are the runs in flight: handlers and functions of [Do] that have not returned,
	// and those whose client waits while the run is settled.
	Running int
	// Waiting are the requests that wait for the answer of another run, as [WithWait] lets
	// them. At most 4,096 do.
	Waiting int
	// Pending are the runs that have ended and that the store could not be told about yet. They
	// are settled in the background when the store is back. PendingBytes is the memory that
	// their answers take. At most 4,096 runs are pending, with 64 MiB.
	Pending      int
	PendingBytes int64
	// Abandoned are the calls that a store has not returned from although their time is over.
	// Each keeps a goroutine. At 4,096 no further call is made until one returns. A store that
	// obeys its context ([ContextStore]) has none.
	Abandoned int
}

// Stats returns what the guard is busy with in this process, together with all guards made from
// it by [Guard.With]. It asks no store, and is cheap enough to be called for every scrape of
// metrics.
func (g *Guard) Stats() Stats {
	c := g.core
	s := Stats{Running: int(c.running.Load()), Waiting: c.room.size(), Abandoned: int(c.abandoned.Load())}
	s.Pending, s.PendingBytes = c.pending.size()
	return s
}

func (room *waitingRoom) size() int {
	room.mu.Lock()
	defer room.mu.Unlock()
	return room.all.n
}

func (b *backlog) size() (n int, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.n, b.bytes
}
