// Package engine runs a task under a claim, settles it however it ends, and looks after what is left:
// all that a guard does and that is not HTTP.
//
// A request flows down: a [Claiming] asks the store for the right to run, a [Run] executes the task and
// judges it, a settlement brings the verdict to the store. What a verdict is and what follows from it
// stands in verdict.go, judge.go and settle.go.
package engine

import (
	"context"
	"time"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/internal/engine/report"
	"example.com/idempotency/internal/engine/seal"
)

// Rules are what runs go by. They do not change once an [Engine] has them.
type Rules struct {
	// TTL, Lease, Retention and Wait are durations; Retention is 0 for the default.
	TTL, Lease, Retention, Wait time.Duration
	// Tombstones is how long what is left of a forgotten record is kept. If it is not positive, nothing is left.
	Tombstones time.Duration
	// MaxAnswer is the size of the largest answer that is recorded, in bytes.
	MaxAnswer int64
	// Hold says that nobody runs after an unknown outcome. MaxAttempts says so of attempt n and
	// later ones, if it is not 0.
	Hold        bool
	MaxAttempts int
	// Rebinding, Transaction, FailOpen, ClientCancel and FindableScope are the options of these names.
	Rebinding, Transaction, FailOpen, ClientCancel, FindableScope bool
	// OutcomeChosen says that a function of the program judges answers.
	OutcomeChosen bool
	// Route is the label of the route, or empty.
	Route string
	// Trace returns the span that a context belongs to. It may be nil.
	Trace func(context.Context) event.TraceContext
	// Calls is told of each call of the store that has ended. It may be nil, and counts only for [New].
	Calls func(ctx context.Context, op string, took time.Duration)
	// Resolver finds out what became of a held key. It may be nil.
	Resolver func(context.Context, Found) (Resolution, error)

	// Whole is what the rules are a part of.
	Whole any

	Reporter   report.Reporter
	Seals      seal.Seals
	Derivation intent.Derivation
}

// NewReporter returns a reporter for a guard and all that are made from it.
func NewReporter() report.Reporter { return report.Reporter{Flood: new(report.Flood)} }

// renewalsPerLease leaves room for a failed renewal and its retries within a lease.
const renewalsPerLease = 3

// MinRetentionInLeases is the shortest retention, in leases.
const MinRetentionInLeases = 2

// decidedRetention is how long a record may wait for its client after somebody has decided that it may run again.
const decidedRetention = 30 * 24 * time.Hour

// RetentionOrDefault returns the retention. By default it is the TTL, and two leases at least, and 30 days where keys
// are held: who decides about one comes later than its client was expected to.
func (r *Rules) RetentionOrDefault() time.Duration {
	keep := r.RetentionInTime()
	if r.Retention == 0 && (r.Hold || r.MaxAttempts > 0) {
		keep = max(keep, decidedRetention)
	}
	return keep
}

// RetentionInTime is RetentionOrDefault where nobody decides about keys.
func (r *Rules) RetentionInTime() time.Duration {
	if r.Retention > 0 {
		return r.Retention
	}
	return max(r.TTL, MinRetentionInLeases*r.Lease)
}

// lastAttempt reports whether nobody runs after an attempt that leaves no answer.
func (r *Rules) lastAttempt(attempt int) bool { return r.MaxAttempts > 0 && attempt >= r.MaxAttempts }
