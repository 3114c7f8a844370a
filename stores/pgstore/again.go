package pgstore

import (
	"context"
	"math/rand/v2"
	"time"
)

// maxTries is how often a function runs that conflicts with other transactions.
const maxTries = 10

// rollbackTimeout is how long a rollback may take before its connection is closed.
const rollbackTimeout = 5 * time.Second

// again runs a transaction, and runs it again while others are in the way.
func again(ctx context.Context, transact func() error) error {
	for try, pause := 1, time.Millisecond; ; try, pause = try+1, min(2*pause, 100*time.Millisecond) {
		err := transact()
		if !conflicts(err) || try == maxTries || ctx.Err() != nil {
			return err
		}
		// Two that have met should not meet again.
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause/2 + rand.N(pause)):
		}
	}
}
