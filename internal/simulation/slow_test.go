package simulation

import (
	"context"
	"time"

	"example.com/idempotency/store"
)

// The store of a slow world takes a second for each kilobyte that is sent to it. All other
// calls are as fast as ever. So a bulky answer is never recorded, however often the call is
// made, and the key must end as one whose answer is not kept.
const (
	slowBytesPerSecond = 1 << 10
	bulkyBody          = 8 << 10 // above what is worth giving up, see the settling of runs
)

// transfer waits until an answer has arrived. It reports false if the caller gives up before:
// then nothing was sent.
func (w *simulation) transfer(ctx context.Context, bytes int) bool {
	if w.kind != slow || bytes == 0 {
		return true
	}
	select {
	case <-time.After(time.Duration(bytes) * time.Second / slowBytesPerSecond):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// givingUp is how long it takes, when all else is calm, until a guard gives a bulky answer up.
func (w *simulation) givingUp() time.Duration {
	if w.kind != slow {
		return 0
	}
	const tries, timeout, pause = 4, 2 * time.Second, 2 * time.Second
	return tries * (timeout + pause)
}

// checkBulkyIsNotKept is what has to be true a lease after all faults: the record of a bulky
// answer says that there was one.
func (w *simulation) checkBulkyIsNotKept() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range w.keys {
		if r := k.completed; r != nil && r.conduct == runBulky {
			rec, err := w.store.Get(context.Background(), k.stored())
			if err != nil || rec.State != store.Completed || len(rec.Answer) > bulkyBody/2 {
				w.failf(k.index, "a bulky answer is recorded in %d bytes, %v", len(rec.Answer), err)
			}
		}
	}
}
