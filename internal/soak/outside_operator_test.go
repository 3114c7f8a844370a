//go:build unix

package soak

import (
	"context"
	"math/rand/v2"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/store"
)

// Operators have a connection of their own to Redis. They look at what clients complain of, think
// while everything goes on, and decide about what they have seen. There are two, and clients complain
// of the same key more than once.

// complain tells the operators of a key that is held.
func (o *outside) complain(intent string) {
	select {
	case o.complaints <- intent:
	default: // there is enough to do
	}
}

func (o *outside) operate(rng *rand.Rand, stop <-chan struct{}) {
	for {
		select {
		case intent := <-o.complaints:
			o.look(rng, intent)
		case <-stop:
			return
		}
	}
}

func (o *outside) look(rng *rand.Rand, intent string) {
	k := idempotency.Key{Scope: "tenant", Value: keyOf(intent)}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	info, err := o.desk.Lookup(ctx, k)
	if err != nil || info.State != store.Held {
		return
	}
	sleep(nil, between(rng, 0, 300))
	o.mu.Lock()
	made, before := o.made[intent], o.decided[intent]
	o.mu.Unlock()
	var what string
	decided := ""
	switch mistake := rng.IntN(4); {
	case mistake == 0:
		o.reopen(intent) // before anybody can run
		what, err = "keys forgotten by an operator", o.desk.Forget(ctx, k, info.Seen(), idempotency.Decision{})
	case made == 0, mistake == 1:
		o.reopen(intent)
		what, err = "keys resolved as not executed", o.desk.Resolve(ctx, k, info.Seen(), idempotency.Resolution{Outcome: idempotency.NotExecuted})
	default:
		decided = decidedAbout(intent)
		what, err = "keys resolved as final", o.desk.Resolve(ctx, k, info.Seen(), idempotency.Resolution{Outcome: idempotency.Final, Body: []byte(decided)})
	}
	if err != nil {
		o.count("decisions that came too late, or to a Redis that is away")
		return
	}
	if before != "" && decided == "" {
		o.fail("%s: an operator who has seen it held decides about what another has decided: %s", intent, what)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.figures[what]++
	if decided != "" {
		o.decided[intent] = decided
	}
}

// decidedAbout is the answer that the operator records.
func decidedAbout(intent string) string { return "decided about " + intent }

// reopen notes that an intent may run once more.
func (o *outside) reopen(intent string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reopened[intent]++
}
