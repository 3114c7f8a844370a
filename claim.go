package idempotency

import (
	"context"
	"errors"
	"example.com/idempotency/event"
	"example.com/idempotency/store"
	"net/http"
	"slices"
	"time"
)

// A claiming is how one request finds out whether it may run: it claims the key, and if
// another stands in the way it compares, waits or asks the resolver, as the settings say.
type claiming struct {
	guard *Guard
	lease *lease
	// client is the context of the caller that the answer is for. Waiting ends with it.
	client context.Context

	// begun is when the request made its claim.
	begun time.Time

	// request and body are what former fingerprint functions need. A key of Do has none.
	request *http.Request
	body    []byte

	// met says that the store has reported a record of another owner.
	met bool
	// waited is how long the request waited for another run.
	waited time.Duration
	// recognised says that the claim is made with the fingerprint of another function.
	recognised bool
	// replyLost says that a claim was sent whose reply never came.
	replyLost bool
}

// claim reads the record of the key. If it is not Mine, it is what the request is to be
// answered from. The caller gives up if there is an error.
func (c *claiming) claim(rec *store.Record) (err error) {
	returned := false
	defer func() { // also if a function of the program panics or calls runtime.Goexit
		if c.replyLost && (!returned || !rec.Mine) {
			c.lease.releaseGhost()
		}
	}()
	l, set := c.lease, &c.guard.set
	err = c.ask(rec, c.begun, false)
	c.met = c.met || err == nil && !rec.Mine
	err = c.compare(rec, err)
	if err == nil && set.wait > 0 && c.inFlight(rec) {
		start := time.Now()
		*rec, err = c.await(*rec)
		c.waited = time.Since(start)
		err = c.compare(rec, err) // the key may have been bound anew meanwhile
	}
	if err == nil && set.resolver != nil && rec.State == store.Held && rec.Fingerprint == l.claim.Fingerprint &&
		c.guard.resolveHeld(c.client, &l.access, l.observe) {
		err = c.ask(rec, time.Now(), false)
	}
	if err == nil && rec.Mine {
		if err = set.stepsUnreadableHere(*rec, l.key); err != nil {
			// The handler would fail at the first of them, and its client could not try elsewhere.
			c.met = true
			l.observe(event.Event{Kind: event.Corrupt, Op: "step", Err: err})
			l.giveBack()
			*rec = store.Record{}
			return err
		}
		// The process of the last attempt has died.
		if rec.Lapsed && set.lastAttempt(rec.Attempt-1) {
			c.met = true
			*rec, err = l.holdInstead(*rec)
		}
	}
	returned = true
	return err
}

// ask makes one call, now, and reads the record.
func (c *claiming) ask(rec *store.Record, now time.Time, watch bool) error {
	earlier := c.replyLost
	c.replyLost = true // as long as the observer has not returned, which may call runtime.Goexit
	err := c.lease.acquire(rec, now, watch)
	c.replyLost = earlier || err != nil && !refusedClaim(err)
	if errors.Is(err, ErrUnreadableHere) { // there is a record: the store is not away
		c.met = true
		c.lease.observe(event.Event{Kind: event.Corrupt, Op: "claim", Err: err})
	}
	c.met = c.met || errors.Is(err, ErrTransactionOpen) // the store is not away either
	if c.guard.set.failOpen && !c.met && errors.Is(err, ErrStoreFull) {
		c.met = c.isKnown()
	}
	return err
}

// isKnown asks a full store whether it has a record of the key. It refuses a further attempt as it
// refuses a new key.
func (c *claiming) isKnown() bool {
	inspector, ok := c.guard.core.store.(store.Inspector)
	if !ok {
		return false
	}
	l := c.lease
	_, err := bounded(context.WithoutCancel(l.client), l.core, l.timeout(), func(ctx context.Context) (store.Record, error) {
		return inspector.Get(ctx, l.key)
	})
	if err != nil && !errors.Is(err, ErrNotFound) {
		l.observe(event.Event{Kind: event.StoreError, Op: "get", Err: err})
	}
	return err == nil
}

// isUnwanted reports whether a claim that was granted is given back because its client has gone: what
// a run makes of that must not hold the key. A request does so if the route says so.
func (c *claiming) isUnwanted() bool {
	return (c.guard.set.clientCancel || c.request == nil) && c.client.Err() != nil
}

// inFlight reports whether a record is what a duplicate waits for: another's run of the
// same request.
func (c *claiming) inFlight(rec *store.Record) bool {
	return rec.State == store.Claimed && !rec.Mine && rec.Fingerprint == c.lease.claim.Fingerprint
}

// compare asks again if the record is that of this request after all, as another function has it.
// The key may have been bound anew meanwhile, to the same request as the first function has it.
func (c *claiming) compare(rec *store.Record, err error) error {
	for err == nil && rec.State != 0 && rec.Fingerprint != c.lease.claim.Fingerprint && c.recognise(rec.Fingerprint) {
		err = c.ask(rec, time.Now(), false)
	}
	return err
}

// recognise looks for the function that made a record's fingerprint, and claims with it
// from then on if it says the same of this request. So after a deployment that changed the
// function, retries of earlier requests are still compared with their own.
func (c *claiming) recognise(recorded Fingerprint) bool {
	if c.request == nil {
		return false
	}
	same := func(f FingerprintFunc) bool {
		fp, err := f(c.request, c.body)
		if err == nil {
			c.lease.core.versions.add(fp[0])
		}
		return err == nil && fp == recorded
	}
	known := slices.ContainsFunc(c.guard.set.formerFingerprints, same) || c.recognised && same(c.guard.set.fingerprint)
	if f := fingerprintOf(recorded[0]); !known && f != nil && !sameFunc(f, c.guard.set.fingerprint) {
		known = same(f) // what the guard's own function says is known already
	}
	if known {
		c.lease.claim.Fingerprint, c.recognised = recorded, true
	}
	return known
}
