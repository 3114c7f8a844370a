package main

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"sync"
	"time"

	"example.com/idempotency"
)

// A provider stands in for a payment provider. It takes its time, and then the money has
// moved. It counts its payments, which retries must not multiply.
type provider struct {
	delay time.Duration

	mu   sync.Mutex
	made map[string]int // by kind of payment
}

func newProvider(delay time.Duration) *provider {
	return &provider{
		delay: delay,
		made:  map[string]int{"charges": 0, "payouts": 0, "transfers": 0},
	}
}

func (p *provider) counts() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.made)
}

var errClaimLost = errors.New("the claim is no longer ours")

// pay makes one payment. When it returns an error, nothing was paid.
func (p *provider) pay(ctx context.Context, kind string, o order) (payment, error) {
	made := payment{ID: rand.Text(), order: o, Attempt: 1}
	op, protected := idempotency.FromContext(ctx)
	if protected {
		made.Attempt = op.Attempt()
	}

	timer := time.NewTimer(p.delay)
	defer timer.Stop()
	var err error
	select {
	case <-timer.C:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	// Check the claim right before the effect. While a process is paused for longer than
	// its lease, another one may take over.
	if err == nil && protected && !op.Valid() {
		err = errClaimLost
	}
	if err != nil {
		if protected {
			op.SetOutcome(idempotency.NotExecuted)
		}
		return payment{}, err
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	p.made[kind]++
	return made, nil
}
