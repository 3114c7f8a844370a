package simulation

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/store"
)

// A simDesk is the connection of a process that can also look at records and settle them.
type simDesk struct{ simLink }

func (l *simDesk) Get(ctx context.Context, key string) (store.Record, error) {
	return l.call(ctx, &simCall{op: "get", key: key, execute: func(s *idempotency.MemoryStore, key string) (store.Record, error) {
		return s.Get(context.WithoutCancel(ctx), key)
	}})
}

func (l *simDesk) GetAnswer(ctx context.Context, key string) (store.Record, error) {
	return l.call(ctx, &simCall{op: "get", key: key, execute: func(s *idempotency.MemoryStore, key string) (store.Record, error) {
		return s.GetAnswer(context.WithoutCancel(ctx), key)
	}})
}

func (l *simDesk) List(context.Context, func(string, store.Record) bool) error { return nil }

func (l *simDesk) Resolve(ctx context.Context, key string, seen store.Seen, settlement store.Settlement) error {
	c := &simCall{op: "resolve", key: key, execute: func(s *idempotency.MemoryStore, key string) (store.Record, error) {
		return store.Record{}, s.Resolve(context.WithoutCancel(ctx), key, seen, settlement)
	}}
	if settlement.Completion != nil {
		c.resolution = requestOf(ctx).decision
	}
	_, err := l.call(ctx, c)
	return err
}

func (l *simDesk) Forget(ctx context.Context, key string, seen store.Seen) error {
	_, err := l.call(ctx, &simCall{op: "forget", key: key, execute: func(s *idempotency.MemoryStore, key string) (store.Record, error) {
		return store.Record{}, s.Forget(context.WithoutCancel(ctx), key, seen)
	}})
	return err
}

// A simOperator is somebody who looks at keys, thinks for a while, and decides. Anything may
// happen to a key meanwhile: its record may be forgotten, and the next one be held.
type simOperator struct {
	id      int
	thinks  time.Duration // at most
	forgets int           // one key in so many, whatever its state is
}

// operators return those of an operated world, who do not know of each other: one forgets all
// that there is, and the other tries to find out first.
func (w *simulation) operators() []simOperator {
	return []simOperator{{id: 0, thinks: w.lease / 2, forgets: 1}, {id: 1, thinks: 2 * w.lease, forgets: 4}}
}

func (w *simulation) operate(o simOperator) {
	operator := 50 + o.id
	d := w.dice(ofOperator, o.id)
	for n := range 12 + d.IntN(9) {
		time.Sleep(d.upTo(w.lease / 4))
		k := w.keys[d.IntN(len(w.keys))]
		w.mu.Lock()
		begun, p := w.now(), w.processes[d.IntN(len(w.processes))]
		w.mu.Unlock()
		q := &simRequest{client: operator, op: n, key: k, process: p, calls: map[string]int{}}
		ctx := context.WithValue(context.Background(), simRequestKey{}, q)
		key := idempotency.Key{Scope: "acme", Value: fmt.Sprintf("key-%d", k.index)}
		info, err := p.guard.Lookup(ctx, key)
		if err != nil {
			continue
		}
		w.mu.Lock()
		q.saw = &info
		w.mu.Unlock()
		time.Sleep(d.upTo(o.thinks))
		res := w.decide(q, d.oneIn(2))
		switch held := info.State == store.Held; {
		case d.oneIn(o.forgets):
			err = p.guard.Forget(ctx, key, info.Seen(), idempotency.Decision{})
		case held && res.Outcome != idempotency.Unknown:
			err = p.guard.Resolve(ctx, key, info.Seen(), res)
		}
		if err != nil && !errors.Is(err, idempotency.ErrChanged) && !errors.Is(err, idempotency.ErrNotFound) && begun >= w.calm && !p.isDead() {
			w.mu.Lock()
			w.failf(k.index, "%v cannot decide: %v", q, err)
			w.mu.Unlock()
		}
	}
}

// resolve is the function of WithResolver: it asks the bank, which may not answer.
func (p *simProcess) resolve(ctx context.Context, rec idempotency.RecordInfo) (idempotency.Resolution, error) {
	q := requestOf(ctx)
	p.world.mu.Lock()
	q.saw = &rec
	p.world.mu.Unlock()
	if p.world.dice(ofOperator, q.client, q.op, q.try).oneIn(2) {
		return idempotency.Resolution{Outcome: idempotency.Unknown}, nil
	}
	return p.world.decide(q, false), nil
}

// decide says what has become of a held key. Somebody rash takes an effect for granted.
// Otherwise the bank is asked, and nobody knows as long as a run goes on that may have its
// effect yet.
func (w *simulation) decide(q *simRequest, rash bool) idempotency.Resolution {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := q.key
	goesOn := false
	for _, r := range k.all {
		goesOn = goesOn || r.outcome == 0 && !r.request.process.isDead()
	}
	switch {
	case rash, !goesOn && w.bank.has(k, k.claims[q.saw.Seen().Owner]):
		r := &simRun{request: q, outcome: idempotency.Final, status: http.StatusOK}
		r.body = r.name()
		q.decision = r
		return idempotency.Resolution{
			Outcome: idempotency.Final, Status: r.status, Header: http.Header{"X-Run": {r.name()}}, Body: []byte(r.body),
		}
	case goesOn:
		return idempotency.Resolution{Outcome: idempotency.Unknown}
	case q.op%2 == 1:
		return idempotency.Resolution{Outcome: idempotency.Resume}
	default:
		return idempotency.Resolution{Outcome: idempotency.NotExecuted}
	}
}

// decided checks and enters a decision that the store has accepted. It applies only to what
// was seen.
func (w *simulation) decided(k *simKey, q *simRequest, c *simCall) {
	released := k.state == store.Released && k.owner == nil
	switch {
	case c.op == "forget" && k.state == 0,
		c.op == "resolve" && c.resolution != nil && k.completed == c.resolution,
		c.op == "resolve" && c.resolution == nil && released:
		return // it is repeated
	}
	state := k.state
	if k.held(w.now()) {
		state = store.Held
	}
	if now := (store.Seen{Owner: k.last, Attempt: k.attempt, State: state}); now != q.saw.Seen() {
		w.failf(k.index, "%v has seen %v, and decides about %v", q, q.saw.Seen(), now)
	}
	w.seen[simDecided]++
	for _, r := range k.runs {
		r.overtaken = true
	}
	switch {
	case c.op == "forget":
		if state == store.Claimed && !k.lapsed(w.now()) {
			w.failf(k.index, "%v has a run forgotten that goes on", q)
		}
		k.end()
	case state != store.Held:
		w.failf(k.index, "%v settles a record that is %v", q, state)
	case c.resolution != nil:
		k.owner, k.token = nil, store.Owner{}
		c.resolution.life = k.life
		k.all = append(k.all, c.resolution)
		k.completes(c.resolution)
	default:
		k.owner, k.token, k.state = nil, store.Owner{}, store.Released
		k.blank, k.unbound = false, false
		for _, r := range k.runs {
			r.cleared = true
		}
	}
}
