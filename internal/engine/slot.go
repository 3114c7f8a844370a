package engine

import (
	"time"

	"example.com/idempotency/event"
)

// A slot is the right to ask the store for a run that has begun: to renew its claim, or to record a step or
// the answer. A store that is slow has a few connections for all of that, and a call that has waited for one until its
// time was over has waited in vain; often it costs the connection besides. So these calls wait in the guard, the first
// first, and the time of a call begins with its slot.
type slot struct {
	core *core
	made time.Time
	slow time.Duration
}

// takeSlot waits for the slot of a call that sends a value of size bytes. It waits no longer than patience, and
// not beyond the end of a shutdown. The wait and the call may take as long as timeout.
func (l *Lease) takeSlot(op string, patience, timeout time.Duration, size int) (slot, error) {
	if l.core.local {
		return slot{}, nil
	}
	t := slot{l.core, time.Now(), l.sendTimeout(size) / 2}
	waited, err := l.core.upkeep.Enter(l.core.work.Ended(), patience)
	if err != nil {
		l.Observe(event.Event{Kind: event.StoreError, Op: op, Duration: time.Since(t.made), Err: err})
		return slot{}, err
	}
	if waited {
		begun := t.made
		t.made = time.Now()
		timeout -= t.made.Sub(begun)
	}
	t.slow = min(t.slow, timeout)
	return t, nil
}

// end lets another have the slot.
func (t slot) end() {
	if t.core != nil {
		t.core.upkeep.Leave(t.made, t.slow)
	}
}

// inSlot makes a call in a slot. Waiting for it and the call take no longer than timeout.
func (l *Lease) inSlot(op string, timeout time.Duration, size int, call func(timeout time.Duration) error) error {
	until := time.Now().Add(timeout)
	t, err := l.takeSlot(op, timeout/2, timeout, size)
	if err != nil {
		return err
	}
	defer t.end()
	return call(time.Until(until))
}
