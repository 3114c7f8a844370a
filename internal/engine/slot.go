package engine

import (
	"errors"
	"time"

	"example.com/idempotency/event"
	"example.com/idempotency/store"
)

// A slot is the right to ask the store for a run that has begun: to renew its claim, or to record a step or
// the answer. As long as the run goes on, and for the first try to record its answer, it has one at once. A store that
// is behind has a few connections for all that is still to be recorded, and a call that has waited for one until its
// time was over has waited in vain; often it costs the connection besides. So these calls wait in the guard, the first
// first, and the time of a call begins with its slot.
type slot struct {
	core *core
	made time.Time
	slow time.Duration
}

// takeSlot takes a slot for a call that sends a value of size bytes.
func (l *Lease) takeSlot(size int) slot {
	if l.core.local {
		return slot{}
	}
	l.core.upkeep.Pass()
	return slot{l.core, time.Now(), l.sendTimeout(size) / 2}
}

// waitForSlot is takeSlot for a run that is over. It waits no longer than patience, and not beyond the end of a
// shutdown.
func (l *Lease) waitForSlot(op string, patience time.Duration, size int) (slot, error) {
	if l.core.local {
		return slot{}, nil
	}
	begun := time.Now()
	if _, err := l.core.upkeep.Enter(l.core.work.Ended(), patience); err != nil {
		l.Observe(event.Event{Kind: event.StoreError, Op: op, Duration: time.Since(begun), Err: err})
		return slot{}, err
	}
	return slot{l.core, time.Now(), l.sendTimeout(size) / 2}, nil
}

// end lets another have the slot, after a call with this result.
func (s slot) end(err error) {
	if s.core != nil {
		s.core.upkeep.Leave(s.made, s.slow, err == nil || errors.Is(err, store.ErrNotOwner))
	}
}
