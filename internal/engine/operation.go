package engine

import (
	"context"
	"fmt"
	"sync/atomic"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/internal/rules"
	"example.com/idempotency/store"
)

// An Operation is one run of a task under a claim, as the task sees it; see [FromContext]. Its methods
// are safe for concurrent use, also after the run has ended.
type Operation struct {
	lease     *Lease
	outer     *Operation // that it runs in, or nil
	outcome   atomic.Uint32
	progress  progress
	writer    Writer       // of a handler's answer, or nil
	uncertain atomic.Bool  // a step was found that may or may not have happened
	effects   atomic.Int32 // of steps that this run has begun or found, and that may have happened
}

// A Writer is what the answer of a run is written to.
type Writer interface {
	// HoldBack keeps the answer back until the run is settled. It reports false if a part is sent.
	HoldBack() bool
}

// Key returns the key of the run.
func (o *Operation) Key() intent.Key { return o.lease.ID }

// ID returns the ID of the run's intent. Where the store may forget a claim in a crash, it first makes
// the claim durable, because the ID may outlive the run.
func (o *Operation) ID() string {
	o.lease.keepClaim()
	return o.intent().ID()
}

// IntentID returns ID, without making the claim durable.
func (o *Operation) IntentID() string { return o.intent().ID() }

func (o *Operation) intent() intent.Intent {
	return o.lease.rules.Derivation.Of(o.lease.ID, o.lease.claim.Fingerprint)
}

// Attempt returns the number of the run.
func (o *Operation) Attempt() int { return o.lease.Attempt }

// Valid reports whether the run surely still holds its claim.
func (o *Operation) Valid() bool { return o.lease.valid() }

// SetOutcome overrides how the run is judged. A value that is not an Outcome is ignored.
func (o *Operation) SetOutcome(outcome event.Outcome) {
	if outcome >= event.Final && outcome <= event.Unknown {
		o.outcome.Store(uint32(outcome))
	}
}

// ReportOnce reports a mistake of the program that the run shows, once for its route.
func (o *Operation) ReportOnce(kind event.Kind, err error, pattern, path string) {
	o.lease.ReportOnce(kind, err, pattern, path)
}

// resumes reports whether an earlier attempt may have begun the steps of this one.
func (o *Operation) resumes() bool { return o.Attempt() > 1 && !o.lease.blank }

// Holder returns the run that holds the record of that name in the store: o, or a run that it runs in. It is nil if there
// is none. A run that has ended holds nothing, although its context may live on.
func (o *Operation) Holder(st store.Store, name string) *Operation {
	for ; o != nil; o = o.outer {
		if o.lease.Name == name && store.Same(o.lease.core.store, st) && !o.progress.hasEnded() {
			return o
		}
	}
	return nil
}

// Rules returns those of the run.
func (o *Operation) Rules() *Rules { return o.lease.rules }

// Disturb says that something in the run has been refused which the handler did not expect, perhaps after an effect: an
// answer that says that nothing was done does not count, as if a step had begun.
func (o *Operation) Disturb() { o.progress.begin(&o.effects) }

type operationKey struct{}

// Mark is the name of a value that the module of a framework leaves in the framework's own context: the request that
// the context serves. Such a context may be a context.Context that finds names and not the values of the request's
// own context. Then the value's method Run leads to that.
const Mark = "example.com/idempotency"

// FromContext returns the operation of the run that ctx belongs to. It reports false
// outside of a run: for requests without a key, on routes without a guard, and for
// handlers that are called directly, in tests for example.
func FromContext(ctx context.Context) (*Operation, bool) {
	o, ok := ctx.Value(operationKey{}).(*Operation)
	if ok {
		return o, true
	}
	request, ok := ctx.Value(Mark).(interface{ Run() context.Context })
	if ok {
		o, ok = request.Run().Value(operationKey{}).(*Operation)
	}
	return o, ok
}

// Join makes a transaction part of the run. begin is called once, unless Join is refused.
func (o *Operation) Join(ctx context.Context, st store.Store, begin func(name string, o store.Owner) (store.Transaction, error)) error {
	switch {
	case !o.lease.rules.Transaction:
		return ErrNoTransaction
	case !sameStore(o.lease.core.store, st):
		return ErrOtherStore
	}
	if err := o.progress.reserve(o.writer); err != nil {
		return err
	}
	joined := false
	defer func() {
		if !joined { // begin has failed, or panicked
			o.progress.join(nil)
		}
	}()
	tx, err := begin(o.lease.Name, o.lease.claim.Owner)
	if err != nil {
		return err
	}
	if joined = o.progress.join(tx); !joined {
		_ = o.lease.rollBack(context.WithoutCancel(ctx), tx, rules.Undone)
		return ErrRunEnded
	}
	return nil
}

// maySaveStep returns nil, or why the transaction of the run keeps its steps from being recorded.
func (o *Operation) maySaveStep(name string) error {
	tx := o.progress.transaction()
	if tx == nil {
		return nil
	}
	if err := tx.MaySaveStep(); err != nil {
		return fmt.Errorf("step %q was not begun: %w: %w", name, store.ErrTransactionOpen, err)
	}
	return nil
}
