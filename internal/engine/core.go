package engine

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"example.com/idempotency/internal/engine/inflight"
	"example.com/idempotency/internal/engine/report"
	"example.com/idempotency/store"
)

// A core is what engines share that are made from one: the store, and the work that outlives
// requests.
type core struct {
	store store.Store

	// inline says that store calls return at once, or when their context ends. local says
	// that they return at once.
	local, inline bool

	seals atomic.Bool // one of the engines does

	calls func(ctx context.Context, op string, took time.Duration) // nil, or what is told of each

	leases    sync.Pool // of *Lease
	renewers  sync.Pool // of *renewer
	room      waitingRoom
	resolving resolving
	labelled  labelled
	finders   finders
	reports   report.Once
	mistakes  report.Mistakes
	work      inflight.Work
	late      inflight.Work // claims that are being given back
	runs      inflight.Runs // of *Lease
	unsettled inflight.Debts
	pending   inflight.Backlog // runs that wait to be settled
	ghosts    inflight.Backlog // claims whose reply never came
	witnesses report.Witnesses
	births    report.Births
	claims    inflight.Throttle
	upkeep    inflight.Throttle // of what is done for runs: renewals, steps, answers
	// back has a receiver for each ghost that waits for the store to answer again.
	back      chan struct{}
	turns     chan struct{} // one for each ghost that asks the store
	abandoned atomic.Int64  // store calls that have outlived their callers
}

const (
	// fewGhosts are so few that they may ask the store whenever they want.
	fewGhosts = 16
	// ghostTurns is how many of more ghosts ask the store at a time: a small part of the connections of a pool.
	ghostTurns = 2
)

func newCore(st store.Store, local bool, waitingBytes int64) *core {
	c := &core{store: st, local: local, inline: local, back: make(chan struct{}), turns: make(chan struct{}, ghostTurns)}
	if s, ok := st.(store.ContextStore); ok && !local {
		c.inline = s.ObeysContext()
	}
	c.upkeep.Fair, c.upkeep.Rest = true, &c.claims
	c.work.Init()
	c.late.Init()
	c.room.init(waitingBytes)
	return c
}

// answered tells one ghost that the store answers.
func (c *core) answered() {
	select {
	case c.back <- struct{}{}:
	default:
	}
}

// sleepUntilAnswer sleeps until the store has answered another call, or d is over. It reports
// false if a shutdown begins.
func (c *core) sleepUntilAnswer(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.back:
		return true
	case <-c.work.Quit:
		return false
	}
}

// resolving are the keys for which a resolver is at work in this process.
type resolving struct{ keys sync.Map }

func (r *resolving) enter(key string) bool {
	_, busy := r.keys.LoadOrStore(key, true)
	return !busy
}

func (r *resolving) leave(key string) { r.keys.Delete(key) }

// labelled are the rules that have a label, by the label. Of several, those with a resolver count.
type labelled struct {
	mu    sync.Mutex
	rules map[string]*Rules
}

// add enters rules, if they have a label.
func (r *labelled) add(rules *Rules) {
	if rules.Route == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if there := r.rules[rules.Route]; there != nil && there.Resolver != nil && rules.Resolver == nil {
		return
	}
	if r.rules == nil {
		r.rules = make(map[string]*Rules)
	}
	r.rules[rules.Route] = rules
}

// of returns the rules of a label, or nil.
func (r *labelled) of(label string) *Rules {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rules[label]
}

// finders are rules, the first of each secret by which records are found.
type finders struct {
	mu    sync.Mutex
	rules []*Rules
}

// add enters rules, unless some are there that find the same.
func (f *finders) add(rules *Rules) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.ContainsFunc(f.rules, func(r *Rules) bool { return r.Derivation.FindsLike(&rules.Derivation) }) {
		f.rules = append(f.rules, rules)
	}
}

// list returns the rules.
func (f *finders) list() []*Rules {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.rules)
}
