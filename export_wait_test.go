package idempotency

// Waiting returns how many requests wait for the answer of another.
func (g *Guard) Waiting() int {
	g.core.room.mu.Lock()
	defer g.core.room.mu.Unlock()
	return g.core.room.n
}
