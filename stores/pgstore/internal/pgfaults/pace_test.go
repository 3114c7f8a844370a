package pgfaults

import (
	"context"
	"time"
)

// This file is about how long things take on this machine at this moment.

// A pace is what one plain round trip takes, queue included. Everything that the harness waits for, and
// the leases, are so many of these longer than on an idle machine.
type pace time.Duration

// measure returns the pace at this moment: the slowest of a few round trips.
func (s *site) measure(ctx context.Context) (p pace, err error) {
	for range 3 {
		start := time.Now()
		if err = s.pool.Ping(ctx); err != nil {
			return p, err
		}
		p = max(p, pace(time.Since(start)))
	}
	return p, nil
}

// trips is what n round trips take.
func (p pace) trips(n int) time.Duration { return time.Duration(n) * time.Duration(p) }

// lease is how long a key is blocked after its process has died. A call of the store may take a third
// of it, which is enough for some round trips even when other work has slowed them down.
func (p pace) lease() time.Duration { return time.Duration(slower)*900*time.Millisecond + p.trips(30) }

// longRun is the part of a long run that the server sleeps. Its lease is renewed once meanwhile.
func (p pace) longRun() time.Duration { return p.lease()/3 + 50*time.Millisecond }

// patience is how long a client tries, and how long the harness waits for what must come.
func (p pace) patience() time.Duration { return 30*time.Second + p.trips(300) }
