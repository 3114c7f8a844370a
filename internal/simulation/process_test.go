package simulation

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/store"
)

// A simWeather is what befalls one process after another. Windows of a kind do not
// overlap and are in order.
type simWeather struct {
	crashes []simWindow // the process is dead
	pauses  []simWindow // it stands still
	outages []simWindow // it cannot reach the store
}

type simWindow struct {
	from, to time.Duration
	hangs    bool // an outage in which calls hang rather than fail
}

func newSimWeather(d simDice, lease time.Duration, kind simKind) simWeather {
	windows := func(n int, least, most time.Duration) (all []simWindow) {
		at := time.Duration(0)
		for range n {
			from := at + d.upTo(3*lease/2)
			at = from + d.between(least, most)
			if at > 5*lease {
				break
			}
			all = append(all, simWindow{from, at, d.oneIn(2)})
		}
		return all
	}
	if kind == disputed { // the processes live, and stand still again and again
		return simWeather{pauses: windows(6, lease/2, 2*lease)}
	}
	return simWeather{
		crashes: windows(d.IntN(2), lease/10, lease),
		pauses:  windows(d.IntN(4), lease/2, 2*lease),
		outages: windows(d.IntN(3), lease/10, 3*lease/2),
	}
}

// in returns the window that t lies in.
func in(windows []simWindow, t time.Duration) (simWindow, bool) {
	for _, w := range windows {
		if w.from <= t && t < w.to {
			return w, true
		}
	}
	return simWindow{}, false
}

// overlaps reports whether one of the windows has a part between two moments.
func overlaps(windows []simWindow, from, to time.Duration) bool {
	return slices.ContainsFunc(windows, func(w simWindow) bool { return w.from < to && from < w.to })
}

// A simProcess is a guard with its connection to the store.
type simProcess struct {
	*guardtest.Server
	simVersion
	world   *simulation
	index   int
	weather *simWeather
	guard   *idempotency.Guard
	till    *simTill      // of a joined world
	dead    chan struct{} // closed when it dies
	// connections are taken by calls of a distant world.
	connections chan struct{}
}

// A simVersion is what a deployment may change about a process.
type simVersion struct {
	lease    time.Duration
	wait     time.Duration
	recovery idempotency.Recovery
	kept     int64 // bytes of an answer
	options  []idempotency.Option
}

func (w *simulation) process(i int) *simProcess {
	p := &simProcess{simVersion: w.versions[i], world: w, index: i, weather: &w.weather[i], dead: make(chan struct{}), connections: make(chan struct{}, distantConnections)}
	options := append(p.options[:len(p.options):len(p.options)],
		idempotency.WithLease(p.lease), idempotency.WithRecovery(p.recovery), idempotency.WithWait(p.wait),
		idempotency.WithRebinding(w.rebinding), idempotency.WithLimits(idempotency.Limits{ResponseBody: p.kept}), idempotency.WithObserver(p.observe),
		idempotency.WithLogger(slog.New(slog.DiscardHandler)))
	if w.dice(ofWorld, 3).oneIn(2) {
		options = append(options, idempotency.WithAuthorizeReplay(w.mayReplay))
	}
	var st idempotency.Store = &simLink{p}
	switch w.kind {
	case operated:
		st = &simDesk{simLink{p}}
		options = append(options, idempotency.WithResolver(p.resolve))
	case joined:
		p.till = &simTill{simDesk{simLink{p}}}
		st = p.till
	}
	guard := func() *idempotency.Guard {
		g, err := idempotency.New(st, guardtest.TenantScope, options...)
		if err != nil {
			w.t.Fatal(err)
		}
		return g
	}
	p.guard = guard()
	h := w.handles(p)
	switch {
	case w.kind == nested && i%2 == 0:
		h = guard().Handler(h)
	case w.kind == nested:
		h = nest(w.t, guard(), func(r *http.Request, _ []byte) (string, error) { return requestOf(r.Context()).String(), nil }, h)
	}
	p.Server = guardtest.ServeRecorder(w.t, w.serves(p, p.guard.Handler(h)))
	return p
}

// mayReplay asks a service that is away a third of the time, as long as there are faults.
func (w *simulation) mayReplay(*http.Request, idempotency.RecordInfo) error {
	if now := w.now(); now < w.calm && now/(w.lease/2)%3 == 0 {
		return idempotency.ErrTryLater
	}
	return nil
}

// die cuts the process off from everybody. What is left of it in the bubble ends.
func (p *simProcess) die() {
	close(p.dead)
	over, cancel := context.WithCancel(context.Background())
	cancel()
	_ = p.guard.Shutdown(over)
}

func (p *simProcess) isDead() bool {
	select {
	case <-p.dead:
		return true
	default:
		return false
	}
}

// await lets a pause of the process pass, unless it dies.
func (p *simProcess) await(d simDice) {
	jitter := d.upTo(time.Millisecond)
	if pause, ok := in(p.weather.pauses, p.world.now()); ok && p.world.now() < p.world.calm {
		p.rest(pause.to - p.world.now() + jitter)
	}
}

func (p *simProcess) rest(d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.dead:
	}
}

// work is rest for handlers, which end where their process dies.
func (p *simProcess) work(d time.Duration) {
	p.rest(d)
	if p.isDead() {
		runtime.Goexit()
	}
}

func (p *simProcess) observe(ctx context.Context, e event.Event) {
	w, q := p.world, requestOf(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch e.Kind {
	case event.RecordingDelayed:
		q.delayed = true
	case event.LeaseLost:
		w.seen[simLost]++
	case event.Replay:
		w.seen[simReplays]++
	case event.RecordingLost:
		if !p.isDead() && !w.ending {
			w.failf(q.key.index, "%v gives up: %v", q, e.Err)
		}
		q.delayed = true // Shutdown does not wait for the store, and shows the client what there is
	case event.Corrupt:
		if w.kind == mixed && errors.Is(e.Err, idempotency.ErrUnreadableHere) {
			w.seen[simForeign]++
			return
		}
		w.failf(q.key.index, "%v finds a corrupt record: %v", q, e.Err)
	}
}

// A simLink is a process's connection to the store. It has no ability but that of
// recording steps, and delivers a call whether or not somebody still waits for it.
type simLink struct{ process *simProcess }

func (l *simLink) Claim(ctx context.Context, key string, c store.Claim) (store.Record, error) {
	rec, err := l.call(ctx, &simCall{op: "claim", key: key, owner: c.Owner, claim: c, execute: func(s *idempotency.MemoryStore, key string) (store.Record, error) {
		return s.Claim(context.WithoutCancel(ctx), key, c)
	}})
	if err == nil && rec.Mine && ctx.Err() == nil {
		w := l.process.world
		w.mu.Lock()
		defer w.mu.Unlock()
		requestOf(ctx).granted = rec.Attempt
	}
	if err == nil && !rec.Mine {
		l.process.world.mu.Lock()
		defer l.process.world.mu.Unlock()
		requestOf(ctx).told = true
	}
	return rec, err
}

func (l *simLink) Renew(ctx context.Context, key string, o store.Owner) error {
	return l.callAsOwner(ctx, "renew", key, o, func(s *idempotency.MemoryStore, key string) error {
		return s.Renew(context.WithoutCancel(ctx), key, o)
	})
}

func (l *simLink) Complete(ctx context.Context, key string, o store.Owner, c store.Completion) error {
	_, err := l.call(ctx, &simCall{op: "complete", key: key, owner: o, bytes: len(c.Answer), execute: func(s *idempotency.MemoryStore, key string) (store.Record, error) {
		return store.Record{}, s.Complete(context.WithoutCancel(ctx), key, o, c)
	}})
	return err
}

func (l *simLink) Release(ctx context.Context, key string, o store.Owner, r store.Release) error {
	_, err := l.call(ctx, &simCall{op: "release", key: key, owner: o, release: r, execute: func(s *idempotency.MemoryStore, key string) (store.Record, error) {
		return store.Record{}, s.Release(context.WithoutCancel(ctx), key, o, r)
	}})
	return err
}

func (l *simLink) Hold(ctx context.Context, key string, o store.Owner, note []byte) error {
	return l.callAsOwner(ctx, "hold", key, o, func(s *idempotency.MemoryStore, key string) error {
		return s.Hold(context.WithoutCancel(ctx), key, o, note)
	})
}

func (l *simLink) SaveStep(ctx context.Context, key string, o store.Owner, name string, value []byte) error {
	return l.callAsOwner(ctx, "step", key, o, func(s *idempotency.MemoryStore, key string) error {
		err := s.SaveStep(context.WithoutCancel(ctx), key, o, name, value)
		if err == nil {
			k := requestOf(ctx).key // under the world's mutex
			k.recorded[name], k.blank = string(value), false
		}
		return err
	})
}

func (l *simLink) callAsOwner(ctx context.Context, op, key string, o store.Owner, f func(*idempotency.MemoryStore, string) error) error {
	_, err := l.call(ctx, &simCall{op: op, key: key, owner: o, execute: func(s *idempotency.MemoryStore, key string) (store.Record, error) {
		return store.Record{}, f(s, key)
	}})
	return err
}

// What can befall a call, besides the weather.
const (
	callRefused = iota
	callHangs
	callLosesReply
	callHangsAfterwards
	callDelayed      // on its way there
	callReplyDelayed // on its way back
	callSentAgain    // by the client library; the reply is the second one's
	callComesAgain   // once more, later
	callFaults
)

// faultyCall is one in how many calls suffers something.
const faultyCall = 6

// ObeysContext is true: whose calls return is up to the link, so that no two return at the same instant.
func (l *simLink) ObeysContext() bool { return true }

// call makes a call, and returns when it does, or soon after the caller gives up.
func (l *simLink) call(ctx context.Context, c *simCall) (store.Record, error) {
	w, q := l.process.world, requestOf(ctx)
	w.mu.Lock()
	q.calls[c.op]++
	name := []int{ofCall, q.client, q.op, q.try, int(c.op[0])<<8 | int(c.op[2]), q.calls[c.op]}
	d, later := w.dice(name...), w.dice(append(name, 1)...)
	w.mu.Unlock()
	type reply struct {
		rec store.Record
		err error
	}
	replies := make(chan reply, 1)
	go func() {
		rec, err := l.carry(ctx, c, d)
		replies <- reply{rec, err}
	}()
	var r reply
	select {
	case r = <-replies:
	case <-ctx.Done():
		r.err = ctx.Err()
	}
	if ctx.Err() != nil {
		time.Sleep(later.upTo(time.Millisecond))
	}
	return r.rec, r.err
}

// carry is the way of a call to the store and back.
func (l *simLink) carry(ctx context.Context, c *simCall, d simDice) (store.Record, error) {
	p, q := l.process, requestOf(ctx)
	w := p.world
	if !w.transfer(ctx, c.bytes) {
		return store.Record{}, ctx.Err()
	}
	sent := w.now()
	lost := func(wait bool) (store.Record, error) {
		if wait {
			<-ctx.Done()
		}
		return store.Record{}, guardtest.ErrDown
	}
	deliver := func() (store.Record, error) {
		if store.IsOwn(c.key) { // what is left of a key changes nothing for its requests, so the ledger does not know it
			w.mu.Lock()
			defer w.mu.Unlock()
			return c.execute(w.store, c.key)
		}
		return w.deliver(q, c)
	}
	on := func() { time.Sleep(d.between(50*time.Microsecond, 2*time.Millisecond)) }

	p.await(d)
	if p.isDead() {
		return lost(false)
	}
	fault, later := callFaults, w.later(d)
	if later > 0 && d.oneIn(faultyCall) {
		fault = d.IntN(callFaults)
		w.mu.Lock()
		q.astray = append(q.astray, sent)
		q.copied = q.copied || fault == callSentAgain || fault == callComesAgain
		w.mu.Unlock()
	}
	if outage, ok := p.outage(); ok && w.now() < w.calm {
		fault = callRefused
		if outage.hangs {
			fault = callHangs
		}
	}
	on()
	switch fault {
	case callRefused:
		return lost(false)
	case callHangs:
		return lost(true)
	case callDelayed:
		time.Sleep(later)
	case callSentAgain:
		_, _ = deliver()
		time.Sleep(min(later, w.lease/10))
	}
	if p.isDead() && d.oneIn(2) {
		return lost(false) // it was not sent yet
	}
	var rec store.Record
	var err error
	if !p.travel(ctx, d, func() { rec, err = deliver() }) {
		return lost(false)
	}
	if p.severs(c, d) {
		return lost(false)
	}
	switch fault {
	case callLosesReply:
		return lost(false)
	case callHangsAfterwards:
		return lost(true)
	case callReplyDelayed:
		time.Sleep(later)
	case callComesAgain:
		go func() {
			time.Sleep(later)
			_, _ = deliver()
		}()
	}
	on()
	p.await(d)
	if ctx.Err() != nil {
		return lost(false)
	}
	return rec, err
}

// later is for how long a message can be under way, and not positive when all is calm.
func (w *simulation) later(d simDice) time.Duration {
	return min(d.upTo(w.lease/2), w.calm-w.now())
}
