package engine

import (
	"time"

	"example.com/idempotency/store"
)

// An Engine runs tasks under claims, by its rules. It is immutable and safe for concurrent use.
type Engine struct {
	core  *core
	rules *Rules
}

// New returns an engine that keeps its records in st. local says that the calls of st return at once.
// waitingBytes is how much memory the requests that wait may take.
func New(st store.Store, local bool, waitingBytes int64, rules *Rules) *Engine {
	c := newCore(st, local, waitingBytes)
	c.calls = rules.Calls
	return (&Engine{core: c}).With(rules)
}

// With returns an engine that shares all but its rules with e.
func (e *Engine) With(rules *Rules) *Engine {
	e.core.labelled.add(rules)
	e.core.finders.add(rules)
	if rules.Seals.Sealer != nil {
		e.core.seals.Store(true)
	}
	return &Engine{e.core, rules}
}

// SealsElsewhere reports whether e seals nothing, and another engine that shares its store does.
func (e *Engine) SealsElsewhere() bool { return e.rules.Seals.Sealer == nil && e.core.seals.Load() }

// Store returns the store.
func (e *Engine) Store() store.Store { return e.core.store }

// Admit begins a request, unless new ones are refused because of a shutdown. Leave ends it.
func (e *Engine) Admit() bool { return e.core.work.Admit() }

// Leave ends a request that was admitted.
func (e *Engine) Leave() { e.core.work.Leave() }

// CallTimeout bounds a call of a small value that somebody waits for. It is 0 where calls return at once.
func (e *Engine) CallTimeout() time.Duration {
	if e.core.local {
		return 0
	}
	timeout := min(storeTimeout, e.rules.Lease/renewalsPerLease)
	if s, ok := e.core.store.(interface{ CallTimeout() time.Duration }); ok && s.CallTimeout() > 0 {
		timeout = min(timeout, s.CallTimeout())
	}
	return timeout
}
