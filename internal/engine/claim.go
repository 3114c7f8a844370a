package engine

import (
	"cmp"
	"context"
	"errors"
	"time"

	"example.com/idempotency/event"
	"example.com/idempotency/store"
)

// A Claiming is how one request finds out whether it may run: it claims the key, and if another stands
// in the way it waits or asks the resolver, as the rules say.
type Claiming struct {
	Lease *Lease
	// Client is the context of the caller that the answer is for. Waiting ends with it.
	Client context.Context
	// FollowsClient says that nothing runs for a client that has gone.
	FollowsClient bool
	// Size is how many bytes the request keeps while it waits, and Fields are what it keeps besides. They are
	// counted only then.
	Size   int
	Fields map[string][]string

	// Met says that the store has reported a record of another owner, so it is not away.
	Met bool
	// Waited is how long the request waited for another run.
	Waited time.Duration

	// replyLost says that a claim was sent whose reply never came.
	replyLost bool
	// returned says that the last call of Claim has returned.
	returned bool
}

// Claim claims the key, now, and reads the record. If that is not Mine, it is what the request is to be
// answered from. If it has another fingerprint than the claim, the caller may claim again with that one:
// see [Claiming.Recognise]. The caller gives up if there is an error, and calls Close in any event.
func (c *Claiming) Claim(rec *store.Record, now time.Time) (err error) {
	c.returned = false
	l, rules := c.Lease, c.Lease.rules
	err = c.ask(rec, now, false)
	c.Met = c.Met || err == nil && !rec.Mine
	if left := rules.Wait - c.Waited; err == nil && left > 0 && c.inFlight(rec) {
		start := time.Now()
		*rec, err = c.await(*rec, left)
		c.Waited += time.Since(start)
	}
	if err == nil && rules.Resolver != nil && rec.State == store.Held && rec.Fingerprint == l.claim.Fingerprint &&
		resolveHeld(c.Client, &l.Access, l.Observe) {
		if l.core.work.Closing() { // meanwhile: nothing begins any more
			return ErrShutdown
		}
		err = c.ask(rec, time.Now(), false)
	}
	if err == nil && rec.Mine {
		err = c.accept(rec)
	}
	c.returned = true
	return err
}

// claimOnce is Claim and Close, for a request that has no other fingerprint.
func (c *Claiming) claimOnce(rec *store.Record, now time.Time) error {
	defer c.Close(rec)
	return c.Claim(rec, now)
}

// accept looks at a claim that was granted. Nothing may run under some.
func (c *Claiming) accept(rec *store.Record) (err error) {
	l, rules := c.Lease, c.Lease.rules
	if err := rules.Seals.UnreadableStep(*rec, l.Name); err != nil {
		// The handler would fail at the first of them, and its client could not try elsewhere.
		c.Met = true
		l.Observe(event.Event{Kind: event.Corrupt, Op: "step", Err: err})
		l.GiveBack()
		*rec = store.Record{}
		return err
	}
	switch {
	case !rec.Lapsed:
	case rules.lastAttempt(rec.Attempt - 1): // its process has died
		c.Met = true
		*rec, err = l.holdInstead(*rec)
	default:
		earlier := c.replyLost
		c.replyLost = true // as long as the observer has not returned, as in ask
		l.reportTakeover(rec)
		c.replyLost = earlier
	}
	return err
}

// Recognise makes the next claim with a recorded fingerprint, which another function has made of the
// same request.
func (c *Claiming) Recognise(recorded store.Fingerprint) { c.Lease.claim.Fingerprint = recorded }

// Close gives back a claim whose reply never came, unless rec says that it was granted after all. It is
// deferred, and so called also if a function of the program panics or calls runtime.Goexit.
func (c *Claiming) Close(rec *store.Record) {
	if c.replyLost && (!c.returned || !rec.Mine) {
		c.Lease.releaseGhost()
	}
}

// ask makes one call, now, and reads the record.
func (c *Claiming) ask(rec *store.Record, now time.Time, watch bool) error {
	earlier := c.replyLost
	c.replyLost = true // as long as the observer has not returned, which may call runtime.Goexit
	err := c.Lease.acquire(rec, now, watch)
	c.replyLost = earlier || err != nil && !refusedClaim(err)
	if errors.Is(err, store.ErrUnreadableHere) { // there is a record: the store is not away
		c.Met = true
		c.Lease.Observe(event.Event{Kind: event.Corrupt, Op: "claim", Err: err})
	}
	c.Met = c.Met || errors.Is(err, store.ErrTransactionOpen) // the store is not away either
	if c.Lease.rules.FailOpen && !c.Met && errors.Is(err, store.ErrFull) {
		c.Met = c.isKnown()
	}
	return err
}

// isKnown asks a full store whether it has a record of the key. It refuses a further attempt as it
// refuses a new key. One that cannot be asked may have a record.
func (c *Claiming) isKnown() bool {
	if _, ok := c.Lease.core.store.(store.Inspector); !ok {
		return true
	}
	rec, err := c.Lease.look(c.Lease.timeout())
	return err == nil && rec.State != 0
}

// Unwanted returns why a claim that was granted is given back, or nil: its client has gone, or the time of
// the run is over before it begins. What a run makes of that must not hold the key.
func (c *Claiming) Unwanted() error {
	if c.FollowsClient && c.Client.Err() != nil {
		return context.Cause(c.Client)
	}
	if end, ok := c.Client.Deadline(); ok && !time.Now().Before(end) {
		return cmp.Or(context.Cause(c.Client), context.DeadlineExceeded)
	}
	return nil
}

// inFlight reports whether a record is what a duplicate waits for: another's run of the
// same request.
func (c *Claiming) inFlight(rec *store.Record) bool {
	return rec.State == store.Claimed && !rec.Mine && rec.Fingerprint == c.Lease.claim.Fingerprint
}
