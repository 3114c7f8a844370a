package client

import (
	"sync"
	"time"
)

// A budget is a bucket of tokens, each of which allows a retry. It is bounded: what a
// quiet hour has saved is no storm later.
type budget struct {
	ratio, reserve float64
	unbounded      bool

	mu     sync.Mutex
	tokens float64
	filled time.Time
}

func newBudget(s *settings) *budget {
	reserve := float64(s.budgetReserve)
	return &budget{
		ratio: s.budgetRatio, reserve: reserve, unbounded: s.budgetRatio >= float64(s.attempts-1),
		tokens: reserve, filled: time.Now(),
	}
}

// refillPerSecond lets a client that makes a request now and then retry all of them.
const refillPerSecond = 1

// deposit accounts for a new request.
func (b *budget) deposit() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tokens = min(max(b.reserve, b.ratio, 1), b.tokens+b.ratio)
}

// withdraw takes the token for a retry, if there is one.
func (b *budget) withdraw() bool {
	if b.unbounded {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.tokens = max(b.tokens, min(b.reserve, b.tokens+now.Sub(b.filled).Seconds()*refillPerSecond))
	b.filled = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}
