package idempotency

// Waiting returns how many requests wait for the answer of another.
func Waiting(g *Guard) int {
	g.core.room.mu.Lock()
	defer g.core.room.mu.Unlock()
	return g.core.room.n
}
