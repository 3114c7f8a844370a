package simulation

import (
	"sync"

	"example.com/idempotency"
)

// A simKind is what a world has besides crashes, pauses, outages and lost messages. Each kind
// has a file of its own.
type simKind string

const (
	plain       simKind = "plain"
	disputed    simKind = "disputed"     // its runs refuse and fail, and its processes stand still
	forgetful   simKind = "forgetful"    // the store loses records
	failingOpen simKind = "failing open" // the store loses records, and its guards let requests pass
	operated    simKind = "operated"     // a resolver and two operators settle what is held
	mixed       simKind = "mixed"        // a deployment is under way
	nested      simKind = "nested"       // each process has a guard within a guard
	corrected   simKind = "corrected"    // its runs turn requests away, and clients correct those
	gated       simKind = "gated"        // some clients come through a gateway that has a guard
	slow        simKind = "slow"         // the store is healthy, and too slow for large answers
	severed     simKind = "severed"      // the connection to the store breaks when a claim has arrived
	joined      simKind = "joined"       // its runs join transactions of the store
	distant     simKind = "distant"      // the store is healthy and far away, and a process has few connections
)

// simKinds has each kind as often as it is drawn.
var simKinds = [...]simKind{
	plain, plain, plain, disputed, disputed, forgetful, failingOpen, operated, operated, mixed, mixed, nested, gated, slow, corrected, corrected,
	severed, joined, joined, distant,
}

// failsOpen reports whether guards let requests pass while the store is away.
func (w *simulation) failsOpen() bool {
	return w.kind == failingOpen
}

// version is how the ith process is deployed, if the first of them are as v says.
func (w *simulation) version(i int, v simVersion) simVersion {
	switch {
	case w.kind == operated:
		// Of requests that have waited together, any may be the one that asks the resolver.
		v.recovery, v.wait = idempotency.Hold, 0
	case w.kind == severed:
		v.recovery = idempotency.Hold
	case w.kind == joined:
		v.options = append(v.options, idempotency.WithTransaction(true))
	case w.kind == slow:
		v.kept = 2 * bulkyBody
	case w.kind == failingOpen:
		v.recovery = idempotency.Rerun
		v.options = append(v.options, idempotency.WithFailOpen(true))
	case w.kind == mixed && i == 1:
		return w.otherVersion(v)
	case w.kind == mixed:
		v.options = w.formerOptions()
	}
	return v
}

// intervene starts whoever acts in a world of its kind besides clients and weather.
func (w *simulation) intervene(actors *sync.WaitGroup) {
	switch w.kind {
	case forgetful, failingOpen:
		actors.Go(w.lose)
	case operated:
		for _, o := range w.operators() {
			actors.Go(func() { w.operate(o) })
		}
	case joined:
		if w.dice(ofWorld, 4).oneIn(2) { // somebody forgets all that there is
			actors.Go(func() { w.operate(w.operators()[0]) })
		}
	}
}
