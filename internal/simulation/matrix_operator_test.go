package simulation

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/store"
)

// The acts of an operator, who looks at the key first and decides about what there is to see.
const (
	saysItHappened      = "an operator says that it happened"
	saysNothingHappened = "an operator says that nothing happened"
	letsGoOn            = "an operator lets the next attempt go on"
	forgets             = "an operator forgets the key"
	// Two operators look, and the first settles the key. From then on, the second tries to decide
	// about what both have seen, before each call of the process.
	isLateAfterFinal    = "an operator is late, and it happened"
	isLateAfterReleased = "an operator is late, and nothing happened"
	isLateAfterForgot   = "an operator is late, and the key was forgotten"
)

var eachDecision = []string{saysItHappened, saysNothingHappened, letsGoOn, forgets, isLateAfterFinal, isLateAfterReleased, isLateAfterForgot}

// isAboutHeld reports whether an act is one of deciding what is held, and does nothing where no key is.
func isAboutHeld(kind string) bool { return kind != forgets && slices.Contains(eachDecision, kind) }

const (
	decidedStatus = http.StatusOK
	decidedAnswer = "decided by hand"
)

func itHappened() idempotency.Resolution {
	return idempotency.Resolution{Outcome: idempotency.Final, Status: decidedStatus, Body: []byte(decidedAnswer)}
}

func nothingHappened() idempotency.Resolution {
	return idempotency.Resolution{Outcome: idempotency.NotExecuted}
}

// act lets somebody else act while the faulty process is about to make a call. All others have
// come to rest, so that nobody acts at the same time.
func (w *faultWorld) act(m mishap) {
	if w.acting.TryLock() {
		synctest.Wait()
		w.acting.Unlock()
	}
	if m.kind == recordLost {
		w.lose(m.op)
		return
	}
	info, err := w.auditor().Lookup(w.t.Context(), guardtest.HeldKey)
	if err != nil {
		require.ErrorIs(w.t, err, idempotency.ErrNotFound)
		return
	}
	switch m.kind {
	case saysItHappened:
		w.resolve(info, itHappened())
	case saysNothingHappened:
		w.resolve(info, nothingHappened())
	case letsGoOn:
		w.resolve(info, idempotency.Resolution{Outcome: idempotency.Resume})
	case forgets:
		w.forget(info)
	case isLateAfterFinal:
		w.isLate(info, w.resolve(info, itHappened()))
	case isLateAfterReleased:
		w.isLate(info, w.resolve(info, nothingHappened()))
	case isLateAfterForgot:
		held := info.State == store.Held
		if held {
			w.forget(info)
		}
		w.isLate(info, held)
	}
}

// resolve decides about what was seen right before. That takes effect if the key is held.
func (w *faultWorld) resolve(info idempotency.RecordInfo, res idempotency.Resolution) bool {
	err := w.auditor().Resolve(w.t.Context(), guardtest.HeldKey, info.Seen(), res)
	held := info.State == store.Held
	if errors.Is(err, idempotency.ErrChanged) && !held {
		return false
	}
	if err != nil || !held {
		w.t.Errorf("a key that is %v is resolved: %v", info.State, err)
	}
	w.turn(func() {
		w.decided = res.Outcome == idempotency.Final
		if !w.decided {
			w.reopened++
		}
	})
	return true
}

// forget decides about what was seen right before. That takes effect unless a run is in flight.
func (w *faultWorld) forget(info idempotency.RecordInfo) {
	err := w.auditor().Forget(w.t.Context(), guardtest.HeldKey, info.Seen(), idempotency.Decision{})
	live := info.State == store.Claimed && info.Lease > 0
	if errors.Is(err, idempotency.ErrChanged) && live {
		return
	}
	if err != nil || live {
		w.t.Errorf("a key that is %v for another %v is forgotten: %v", info.State, info.Lease, err)
	}
	w.turn(func() { w.reopened, w.decided, w.life = w.reopened+1, false, w.life+1 })
}

func (w *faultWorld) isLate(info idempotency.RecordInfo, settled bool) {
	if settled {
		seen := info.Seen()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.late = &seen
	}
}

// tryLate is what an operator does who has seen a held key that another operator has settled since:
// nothing that changes anything.
func (w *faultWorld) tryLate(seen store.Seen) {
	ctx := context.Background()
	before, err := w.auditor().Lookup(ctx, guardtest.HeldKey)
	if err != nil {
		return
	}
	settle := w.auditor().Resolve(ctx, guardtest.HeldKey, seen, idempotency.Resolution{
		Outcome: idempotency.Final, Status: decidedStatus, Body: []byte("decided too late"),
	})
	forget := w.auditor().Forget(ctx, guardtest.HeldKey, seen, idempotency.Decision{})
	if !errors.Is(settle, idempotency.ErrChanged) || !errors.Is(forget, idempotency.ErrChanged) {
		w.t.Errorf("an operator has seen attempt %d and state %v, and decides about attempt %d and state %v: %v, %v",
			seen.Attempt, seen.State, before.Attempt, before.State, settle, forget)
	}
}

// recordLost is what happens when a store forgets, by FLUSHALL or in a failover. The effects of the
// runs stand.
const recordLost = "the record is lost"

// lose makes the store forget the key right before a call. If that is the one that settles a run,
// the run makes the record anew. Only another mishap can let somebody run in between.
func (w *faultWorld) lose(op string) {
	empty := idempotency.NewMemoryStore()
	w.turn(func() {
		w.decided, w.life = false, w.life+1
		if op == "claim" || op == "renew" || len(w.mishaps) > 1 {
			w.reopened++
		}
		w.look = w.newAuditor(empty)
	})
	for _, p := range w.processes {
		p.Store.Replace(empty)
	}
}

// turn enters that somebody has decided, or that the record is lost. What clients were told before
// need not be true any more.
func (w *faultWorld) turn(enter func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	enter()
	w.era++
}
