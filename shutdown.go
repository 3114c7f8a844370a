package idempotency

import (
	"context"
	"time"
)

// Stats are what a guard is busy with in this process at one moment; see [Guard.Stats].
type Stats struct {
	// Running are the runs in flight: handlers and functions of [Do] that have not returned,
	// and those whose client waits while the run is settled.
	Running int
	// Waiting are the requests that wait for the answer of another run, as [WithWait] lets
	// them. [WithWaitingBytes] bounds them.
	Waiting int
	// Pending are the runs that have ended and that the store could not be told about yet. They
	// are settled in the background when the store is back. PendingBytes is the memory that
	// their answers take. At most 4,096 runs are pending, with 64 MiB.
	Pending      int
	PendingBytes int64
	// GivingBack are the claims whose reply never came, and that the guard releases in the
	// background because they may have been granted. Nothing has run under them. At most 4,096
	// are given back at a time. Under Rerun that takes two leases from the store's first answer,
	// and under Hold 15 minutes if that is longer: so late a claim may still arrive.
	GivingBack int
	// Abandoned are the calls that a store has not returned from although their time is over.
	// Each keeps a goroutine. At 4,096 no further call is made until one returns. A store that
	// obeys its context ([store.ContextStore]) has none.
	Abandoned int
}

// Stats returns what the guard is busy with in this process, together with all guards made from
// it by [Guard.With]. It asks no store, and is cheap enough to be called for every scrape of
// metrics.
func (g *Guard) Stats() Stats { return Stats(g.route.engine.Stats()) }

// Shutdown ends the guard, and all guards made from it by [Guard.With]. From then on every new
// request with a key gets 503, also where an answer is recorded, and those that wait for
// another's answer get 409. [Do] returns [ErrShutdown], also inside a run that is still in
// flight. Steps of such a run go on.
//
// Shutdown returns when the runs in flight have ended and are settled, and the functions of
// [WithResolver] that were called have returned; or when ctx ends. In the
// second case it gives up the runs that the store has failed to settle, reports each as
// [event.RecordingLost], and returns the context's error.
//
// Claims whose reply never came, and under which nothing has run, are given back before. The store
// has one more lease to answer that, if ctx does not end before. Shutdown reports each that it gives
// up as [event.ClaimLeft]. That is not an error, also when ctx has ended.
//
// Give ctx a deadline. While the store is away, Shutdown waits for as long as runs are worth
// settling: until their retention ends, and without end for those that hold their key.
//
// Call http.Server.Shutdown and Guard.Shutdown together, with one deadline. When both have
// returned, close the store. The example is a function for that. Shutdown may be called more
// than once.
func (g *Guard) Shutdown(ctx context.Context) error {
	err := g.route.engine.Shutdown(ctx)
	brief, cancel := context.WithTimeout(ctx, shadowPatience)
	defer cancel()
	_ = g.route.beside.engine.Stop(brief)
	return err
}

// shadowPatience is how long a shutdown waits for what shadows ask their store. Nothing depends on them.
const shadowPatience = 2 * time.Second
