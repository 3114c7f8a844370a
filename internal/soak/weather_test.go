//go:build unix

package soak

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"example.com/idempotency/internal/faultproxy"
)

// A weather is what the network between one process and Redis does by itself, all the
// time: one fault after the other, each short against the lease.
type weather struct {
	proxy  *faultproxy.Proxy
	mu     sync.Mutex // held while there is weather; a calm holds it too
	storms *atomic.Int64
}

// rage makes weather until stop is closed, and leaves a network that works.
func (w *weather) rage(rng *rand.Rand, stop <-chan struct{}) {
	for {
		w.mu.Lock()
		w.storms.Add(1)
		w.begin(rng)
		over := sleep(stop, between(rng, 50, 300))
		w.proxy.Heal()
		w.mu.Unlock()
		if over || sleep(stop, between(rng, 50, 300)) {
			return
		}
	}
}

func (w *weather) begin(rng *rand.Rand) {
	way := faultproxy.Direction(rng.IntN(2))
	switch rng.IntN(8) {
	case 0:
		w.proxy.Fail(faultproxy.LoseRequest, 1+rng.IntN(10), nil)
	case 1, 2:
		w.proxy.Fail(faultproxy.LoseReply, 1+rng.IntN(20), nil)
	case 3:
		w.proxy.Fail(faultproxy.HangReply, 1+rng.IntN(4), nil)
	case 4:
		w.proxy.Fail(faultproxy.CutReply, 1+rng.IntN(10), nil)
	case 5:
		w.proxy.Delay(way, between(rng, 1, 50))
	case 6:
		w.proxy.Hole(way)
	case 7:
		if rng.IntN(2) == 0 {
			w.proxy.Reset()
		} else {
			w.proxy.Refuse()
		}
	}
}

// between returns a random number of milliseconds.
func between(rng *rand.Rand, least, most int) time.Duration {
	return time.Duration(least+rng.IntN(most-least)) * time.Millisecond
}

// sleep returns whether stop was closed meanwhile.
func sleep(stop <-chan struct{}, d time.Duration) bool {
	select {
	case <-stop:
		return true
	case <-time.After(d):
		return false
	}
}
