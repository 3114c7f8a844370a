package client

import (
	"strings"
	"sync"
	"time"
)

// This file bounds the retries of all requests to a host.

// A budget is a bucket of tokens, each of which allows a retry. It is bounded: the savings
// of a quiet hour do not become a storm later.
type budget struct {
	ratio, reserve float64

	mu     sync.Mutex
	tokens float64
	filled time.Time
}

// maxBudgets is how many hosts have a budget at a time.
const maxBudgets = 1024

// budgets are the budgets of hosts. A host that fails does not use up the retries of others.
type budgets struct {
	ratio, reserve float64

	mu    sync.Mutex
	known map[string]*budget
}

func (b *budgets) of(host string) *budget {
	host = strings.ToLower(host)
	b.mu.Lock()
	defer b.mu.Unlock()
	if found, ok := b.known[host]; ok {
		return found
	}
	if b.known == nil {
		b.known = make(map[string]*budget)
	}
	if len(b.known) >= maxBudgets {
		for other := range b.known { // it starts anew when it is called again
			delete(b.known, other)
			break
		}
	}
	made := &budget{ratio: b.ratio, reserve: b.reserve, tokens: b.reserve, filled: time.Now()}
	b.known[host] = made
	return made
}

// refillPerSecond lets a client that makes a request now and then retry all of them.
const refillPerSecond = 1

// deposit accounts for a new request.
func (b *budget) deposit() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tokens = min(max(b.reserve, b.ratio, 1), b.tokens+b.ratio)
}

// withdraw takes the token for a retry, if there is one. A ratio that allows all attempts of
// all requests sets no bound.
func (b *budget) withdraw(attempts int) bool {
	if b.ratio >= float64(attempts-1) {
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
