package sqlrecord

import (
	"bytes"
	"errors"
	"time"

	"example.com/idempotency/store"
)

// The calls of a store. Each returns whether it has changed the row.

// Claim gives the claim to the caller if the caller may have it, and returns the record. The row
// must not have expired.
func (r *Row) Claim(c store.Claim, now Moment) (_ store.Record, changed bool, err error) {
	rewound := r.rewind(now)
	defer func() { changed = changed || rewound && err == nil }()
	lapsed := r.lapsed(now)
	free := r.State == store.Released && !r.isOf(c.Owner)
	switch {
	case r.Fingerprint != c.Fingerprint && (!free || !r.is(Unbound)):
		return r.See(now), false, nil
	case r.State == store.Claimed && r.isOf(c.Owner):
		// The claim was sent again, perhaps because the first reply was lost. Its caller
		// counts the lease from this call.
		r.grant(c, now)
	case lapsed && (r.SaysHold || c.Hold):
		if !r.SaysHold {
			r.Since = now
		}
		r.State = store.Held
		r.Marks |= ByLapse
		if !r.HoldEnds {
			r.Expires = Never
		}
		return r.See(now), true, nil
	case free && c.Watch: // the end that the caller has waited for
		return r.See(now), false, nil
	case lapsed, free:
		r.Attempt++
		r.Fingerprint = c.Fingerprint
		r.Marks &= Blank | Unbound
		if lapsed {
			r.Marks = TookOver
		}
		r.Label, r.Watched = c.Label, r.Watched || c.Watch
		r.Notes = store.AppendNote(r.Notes, c.Note)
		if len(c.SealedKey) > 0 {
			r.SealedKey = c.SealedKey
		}
		r.Tags = c.Tags
		r.grant(c, now)
	default:
		watch := c.Watch && !r.Watched && r.State == store.Claimed
		r.Watched = r.Watched || watch
		return r.See(now), watch, nil
	}
	out := r.See(now)
	if r.Attempt > 1 {
		if out, err = r.SeeAll(now); err != nil {
			return out, false, err
		}
		r.Steps = listOf(out.Steps)
	}
	out.Mine, out.Lapsed, out.Blank = true, r.is(TookOver), r.is(Blank)
	return out, true, nil
}

// rewind starts the lease of a row anew that was touched in what is the future by now: the clock
// was set back, or belongs to another server since a failover. Nobody knows how much of the
// lease is left, and a dead owner must not block the key until the clock has caught up. A second
// is nothing but a call that has read the clock before another one wrote.
func (r *Row) rewind(now Moment) bool {
	if r.State != store.Claimed || r.Touched <= now.Later(time.Second) {
		return false
	}
	r.touch(r.State, now, r.Unanswered(r.State))
	return true
}

// Renew starts the lease anew.
func (r *Row) Renew(o store.Owner, now Moment) (changed bool, err error) {
	if !r.isOf(o) || r.State != store.Claimed {
		return false, store.ErrNotOwner
	}
	r.touch(r.State, now, r.Unanswered(r.State))
	return true, nil
}

// Complete records the answer.
func (r *Row) Complete(o store.Owner, c store.Completion, now Moment) (changed bool, err error) {
	switch {
	case !r.isOf(o):
		return false, store.ErrNotOwner
	case r.State == store.Completed:
		return false, nil
	case r.State != store.Claimed && r.State != store.Held:
		return false, store.ErrNotOwner
	}
	r.complete(c, now)
	return true, nil
}

// Commit is Complete in the transaction of a run. An owner that has given its claim up was promised
// that its transaction will not be committed.
func (r *Row) Commit(o store.Owner, c store.Completion, now Moment) error {
	if !r.isOf(o) || r.State != store.Claimed && !r.is(ByLapse) {
		return store.ErrNotOwner
	}
	r.complete(c, now)
	return nil
}

func (r *Row) complete(c store.Completion, now Moment) {
	r.Answer, r.Status, r.Size = c.Answer, int64(c.Status), int64(len(c.Answer))
	if r.Answer == nil {
		r.Answer = []byte{} // an answer of no bytes is an answer
	}
	r.touch(store.Completed, now, c.TTL)
}

// Release gives the claim back.
func (r *Row) Release(o store.Owner, rel store.Release, now Moment) (changed bool, err error) {
	return r.giveUp(store.Released, o, rel, now)
}

// Hold marks the outcome as unknown.
func (r *Row) Hold(o store.Owner, note []byte, now Moment) (changed bool, err error) {
	if changed, err = r.giveUp(store.Held, o, store.Release{}, now); changed {
		r.Notes = store.ReplaceNote(r.Notes, note)
	}
	return changed, err
}

func (r *Row) giveUp(state store.State, o store.Owner, rel store.Release, now Moment) (bool, error) {
	switch {
	case !r.isOf(o):
		return false, store.ErrNotOwner
	case r.State == store.Claimed, r.is(ByLapse):
		kept := r.Unanswered(state)
		if !rel.Undone {
			r.Marks &^= Blank
		}
		if !r.is(Blank) || !rel.Unused {
			r.Marks &^= Unbound
		}
		if r.is(Blank) {
			if rel.Unbind {
				r.Marks |= Unbound
			}
			if rel.Keep > 0 {
				kept = min(kept, rel.Keep)
			}
		}
		if state == store.Held && !r.SaysHold {
			r.Since = now
		}
		r.touch(state, now, kept)
		return true, nil
	case r.State == state:
		return false, nil
	default:
		return false, store.ErrNotOwner
	}
}

// SaveStep records a part of the run.
func (r *Row) SaveStep(o store.Owner, name string, value []byte) (changed bool, err error) {
	if !r.isOf(o) || r.State != store.Claimed {
		return false, store.ErrNotOwner
	}
	r.Marks &^= Blank
	r.Steps = AppendStep(r.Steps, name, value)
	return true, nil
}

// Resolve settles what is held. The answer of a completed row must have been read.
func (r *Row) Resolve(seen store.Seen, s store.Settlement, now Moment) (changed bool, err error) {
	have, err := steps(r.Steps)
	if err != nil {
		return false, err
	}
	switch {
	case seen != r.seenAs(store.Held):
		return false, store.ErrChanged
	case r.resolvedTo(s, have):
		return false, nil // An earlier call did the same, and its reply was lost.
	case r.stateAt(now) != store.Held:
		return false, store.ErrChanged
	}
	if s.Completion == nil {
		for name, value := range s.Undone {
			if old, ok := have[name]; !ok || !bytes.Equal(old, value) {
				return false, store.ErrChanged
			}
			delete(have, name)
		}
	}
	r.Notes = store.AppendDecision(r.Notes, s.Note)
	r.Marks |= ByHand // The run that lost the claim can no longer record its own answer.
	if s.Completion != nil {
		r.complete(*s.Completion, now)
		return true, nil
	}
	r.Steps = listOf(have)
	r.Marks &^= Blank | Unbound
	r.touch(store.Released, now, r.Unanswered(store.Released))
	return true, nil
}

// resolvedTo reports whether the row is as Resolve leaves it.
func (r *Row) resolvedTo(s store.Settlement, have map[string][]byte) bool {
	switch {
	case !r.is(ByHand):
		return false
	case len(s.Note) > 0 && !bytes.Equal(store.LastDecision(r.Notes), s.Note):
		return false // It was the decision of somebody else.
	case s.Completion != nil:
		return r.State == store.Completed && bytes.Equal(r.Answer, s.Completion.Answer)
	}
	for name := range s.Undone {
		if _, ok := have[name]; ok {
			return false
		}
	}
	return r.State == store.Released
}

// Forget reports whether a row may be removed that somebody has looked for. err is what the look has
// returned.
func (r *Row) Forget(seen store.Seen, now Moment, err error) (bool, error) {
	switch {
	case errors.Is(err, store.ErrNotFound):
		return false, nil
	case errors.Is(err, store.ErrCorrupt) && seen == store.Seen{State: store.Corrupt}:
		return true, nil
	case err != nil:
		return false, err
	case seen != r.seenAs(r.stateAt(now)), r.State == store.Claimed && !r.lapsed(now):
		return false, store.ErrChanged
	}
	return true, nil
}
