package memory

// Who gets the claim of a record.

import "example.com/idempotency/store"

// insert adds a record that c has claimed.
func (sh *shard) insert(hash uint64, key string, c *store.Claim, now int64) entry {
	r := sh.records.insert(hash, key)
	r.fingerprint, r.attempt, r.flags = c.Fingerprint, 1, blank
	sh.keepNote(r, c)
	sh.queue.Push(r.slot, never) // where a new record mostly stays
	sh.grant(r, c, now)
	return r
}

// claim gives the claim to the caller if the caller may have it, and puts the record into out. If there is no
// room for what another attempt would bring, it returns store.ErrFull and changes nothing.
func (sh *shard) claim(out *store.Record, r entry, c *store.Claim, now int64, room bool) error {
	lapsed := r.lapsed(now)
	free := r.state == store.Released && !r.isOf(c.Owner)
	switch {
	case r.fingerprint != c.Fingerprint && (!free || !r.is(unbound)):
	case r.state == store.Claimed && r.isOf(c.Owner):
		out.Mine = true
		// Either the record was made for this claim, or the claim was sent again, perhaps
		// because the first reply was lost. Its caller counts the lease from this call.
		if now != r.touched {
			sh.grant(r, c, now)
		}
	case lapsed && (r.hold || c.Hold):
		r.state = store.Held
		r.flags |= byLapse
		if !r.holdEnds {
			r.expires = never
			sh.queue.Move(r.slot, r.expires)
		}
		sh.index(r, now)
	case free && c.Watch: // the end that the caller has waited for
	case (lapsed || free) && !room:
		return store.ErrFull
	case lapsed, free: // and not indexed
		out.Mine = true
		r.attempt++
		if r.fingerprint != c.Fingerprint {
			sh.dropTags(r) // they are of another request
		}
		r.fingerprint = c.Fingerprint
		r.flags &= blank | unbound
		if lapsed {
			r.flags = tookOver
		}
		sh.keepNote(r, c)
		sh.grant(r, c, now)
	}
	sh.see(out, r, now)
	if out.Mine {
		out.Lapsed, out.Blank = r.is(tookOver), r.is(blank)
		if r.attempt > 1 {
			out.Steps = sh.stepsByName(r)
		}
	}
	return nil
}

// grant makes the caller the owner of the record.
func (sh *shard) grant(r entry, c *store.Claim, now int64) {
	r.owner, r.hold, r.holdEnds = c.Owner, c.Hold, c.HoldEnds
	r.lease, r.retention = c.Lease, c.Retention
	sh.touch(r, store.Claimed, now, r.unanswered(store.Claimed))
}
