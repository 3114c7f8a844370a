package idempotency

import (
	"context"
	"errors"
	"example.com/idempotency/event"
	"example.com/idempotency/store"
	"sync"
	"time"
)

// WithWait lets a duplicate of a request in flight wait up to d for the answer and
// then replay it. Zero, the default, answers 409 at once. A waiting request holds its
// connection: at most 5 minutes are accepted, and a few seconds are sensible. [WithWaitingBytes]
// bounds how many requests of a process wait. Any further request gets 409 at once.
//
// If the run that is waited for ends without an answer, the waiting requests get 409 too, and none
// of them runs: no client has retried. If its process died, one of them runs.
func WithWait(d time.Duration) Option {
	return optionFunc(func(s *settings) { s.wait = d })
}

// WithWaitingBytes sets how much memory the requests of a process that wait may take together; see
// [WithWait]. The default is 64 MiB. A request that waits counts 16 KiB for its goroutine and what
// net/http keeps of it, and its body beyond 1 KiB. So with short bodies, 4,096 requests wait by
// default. Of n bytes, the requests with one key get a quarter, and those of one scope a half, but
// those of [SharedScope] all. n must be between 64 KiB and 1 TiB.
//
// Guards that [Guard.With] makes from one share the room of that guard. Give the option to [New]:
// With refuses another value.
func WithWaitingBytes(n int64) Option {
	return optionFunc(func(s *settings) { s.waitingBytes = n })
}

const (
	// waiterSize is what a request that waits takes. Measured over an idle connection, with a body
	// of 1 KiB and a dozen header fields, it is 9 KiB and 4 KiB of stack.
	waiterSize = 16 << 10
	// waiterBody is how much of a body that has room for.
	waiterBody = 1 << 10

	// A key gets a quarter of the room, and a scope a half: a client that repeats itself without end
	// fills that, and all others need the rest. The scope that all callers share may fill the room.
	shareOfKey   = 4
	shareOfScope = 2

	defaultWaitingBytes = 4096 * waiterSize
	minWaitingBytes     = shareOfKey * waiterSize
	maxWaitingBytes     = 1 << 40
)

var errWaitingBytes = errors.New("idempotency: WithWaitingBytes: guards that With makes share one waiting room; give the option to New")

// pollPause is how often a store is asked that cannot wake a waiter, and rewatchPause
// how long a wakeup that may have been lost is waited for.
const (
	pollPause    = 50 * time.Millisecond
	maxPollPause = time.Second
	rewatchPause = 10 * time.Second
)

// A waitingRoom gathers the requests of this process that wait for the same record. One
// of them, the leader, watches the store on behalf of all: a thousand duplicates cost
// the store as much as one.
type waitingRoom struct {
	bytes  int64 // its size
	mu     sync.Mutex
	all    occupancy
	scopes map[string]occupancy
	waits  map[waitKey]*wait
}

// An occupancy is how much of the room is taken.
type occupancy struct {
	n     int
	bytes int64
}

func (o *occupancy) add(n int, bytes int64) {
	o.n += n
	o.bytes += bytes
}

// A place is what a waiter takes: for which run, at whose expense, and how much memory it keeps
// while it waits.
type place struct {
	key   waitKey
	scope string
	bytes int64
}

// A waitKey is what those have in common who wait together. A record can be bound anew while they
// wait: then those who bring the other payload wait for another run.
type waitKey struct {
	key         string
	fingerprint Fingerprint
}

// A wait is the leader's place, and what the leader found out. Members lead in the order in
// which they came.
type wait struct {
	turn    chan turn     // holds one, for the member that leads
	settled chan struct{} // closed with record and err set
	record  store.Record
	err     error
	members occupancy
}

// A turn is what the next leader learns from the last one.
type turn struct {
	// due says that the process of the run has died, and that the leader who took the record over
	// has given it back without a run: the next one claims it as if it had not waited.
	due bool
}

func (room *waitingRoom) init(bytes int64) {
	room.bytes = bytes
	room.waits, room.scopes = make(map[waitKey]*wait), make(map[string]occupancy)
}

// join takes a place, or returns nil if there is none.
func (room *waitingRoom) join(p place) *wait {
	room.mu.Lock()
	defer room.mu.Unlock()
	w := room.waits[p.key]
	var members occupancy
	if w != nil {
		members = w.members
	}
	if !room.fits(p, room.all, 1) || !room.fits(p, members, shareOfKey) ||
		p.scope != Shared && !room.fits(p, room.scopes[p.scope], shareOfScope) {
		return nil
	}
	room.occupy(p.scope, 1, p.bytes)
	if w == nil {
		w = &wait{turn: make(chan turn, 1), settled: make(chan struct{})}
		w.turn <- turn{}
		room.waits[p.key] = w
	}
	w.members.add(1, p.bytes)
	return w
}

// fits reports whether there is room for a waiter beside others who may take a part of the room.
func (room *waitingRoom) fits(p place, others occupancy, part int64) bool {
	return others.bytes+p.bytes <= room.bytes/part
}

func (room *waitingRoom) leave(p place, w *wait) {
	room.mu.Lock()
	defer room.mu.Unlock()
	room.occupy(p.scope, -1, -p.bytes)
	w.members.add(-1, -p.bytes)
	if w.members.n == 0 && room.waits[p.key] == w {
		delete(room.waits, p.key)
	}
}

func (room *waitingRoom) occupy(scope string, n int, bytes int64) {
	room.all.add(n, bytes)
	o := room.scopes[scope]
	o.add(n, bytes)
	room.scopes[scope] = o
	if o.n == 0 {
		delete(room.scopes, scope)
	}
}

// announce tells all members what the leader found, and makes room for a new wait.
func (room *waitingRoom) announce(key waitKey, w *wait, rec store.Record, err error) {
	room.mu.Lock()
	defer room.mu.Unlock()
	if room.waits[key] == w {
		delete(room.waits, key)
	}
	w.record, w.err = rec, err
	close(w.settled)
}

// await waits for the record, which is in flight, to settle or to become the caller's.
// It returns the last that was seen of it, which is a record still in flight when the
// time is over, the client has gone or the guard is shut down.
func (c *claiming) await(rec store.Record) (store.Record, error) {
	room, place := &c.guard.core.room, c.place()
	w := room.join(place)
	if w == nil {
		return rec, nil
	}
	defer room.leave(place, w)
	timeout := time.NewTimer(c.guard.set.wait)
	defer timeout.Stop()
	select {
	case t := <-w.turn:
		return c.takeTurn(w, t, timeout.C, rec)
	case <-w.settled:
		return w.record, w.err
	case <-timeout.C:
	case <-c.client.Done():
	case <-c.guard.core.work.quit:
	}
	return rec, nil
}

// place is what the request takes of the waiting room.
func (c *claiming) place() place {
	return place{
		key:   waitKey{c.lease.key, c.lease.claim.Fingerprint},
		scope: c.lease.id.Scope,
		bytes: waiterSize + int64(max(0, len(c.body)-waiterBody)),
	}
}

// takeTurn leads, and tells the others what it found. Somebody else leads on if it has to
// go, if the claim was granted to it, or if it is lost to a function of the program that panics
// or calls runtime.Goexit.
func (c *claiming) takeTurn(w *wait, t turn, timeout <-chan time.Time, rec store.Record) (store.Record, error) {
	settled := false
	defer func() {
		if !settled {
			w.turn <- t
		}
	}()
	found, over, err := c.lead(&t, timeout, rec)
	switch {
	case found.Mine && c.isUnwanted():
		c.lease.giveBack()
		found.State, found.Mine, found.Steps = store.Released, false, nil
		t = turn{due: true}
	case found.Mine:
		t = turn{}
	case !over:
		settled = true
		c.guard.core.room.announce(c.place().key, w, found, err)
	}
	return found, err
}

// lead watches the store until the record is no longer in flight. over is true when the
// leader itself has to go.
//
// A request waits for an answer. If the run ends without one, the store grants none of the claims
// that are made here, and its client decides whether to try again. Otherwise ten duplicates of a
// request that fails would be ten runs in a row, although nobody has retried. A run whose process
// has died is another matter: nobody was told of its failure, and one of those who wait takes the
// record over.
func (c *claiming) lead(t *turn, timeout <-chan time.Time, rec store.Record) (_ store.Record, over bool, err error) {
	var settled <-chan struct{}
	if watcher, ok := c.guard.core.store.(store.Watcher); ok {
		watched, stop, err := c.watch(watcher)
		if err == nil {
			defer stop()
			settled = watched
		}
		// Without a watch the store is asked at intervals, as one that has none.
	}
	timer := time.NewTimer(pollPause)
	defer timer.Stop()
	for n := 1; ; n++ {
		// What has happened before the watch began is announced by nobody, so the first claim is made
		// at once. It also tells the store that somebody waits.
		if n > 1 || settled == nil {
			select {
			case <-settled:
			case <-timer.C:
			case <-timeout:
				return rec, true, nil
			case <-c.client.Done():
				return rec, true, nil
			case <-c.guard.core.work.quit:
				return rec, true, nil
			}
		}
		var seen store.Record
		err := c.ask(&seen, time.Now(), !t.due)
		if err != nil && !refusedClaim(err) {
			// The run that is waited for goes on; so does the waiting.
			timer.Reset(max(backoff(n), pollPause))
			continue
		}
		if !t.due && seen.State == store.Released {
			seen.Fingerprint = c.lease.claim.Fingerprint // it may be free for any payload
		}
		if err != nil || !c.inFlight(&seen) {
			return seen, false, err
		}
		rec = seen
		pause := rewatchPause
		if settled == nil {
			pause = min(pollPause<<min(n, 10), maxPollPause)
		}
		if t.due { // another was faster, and the store does not know yet that somebody waits for it
			t.due, pause = false, 0
		}
		// A lease that lapses is announced by nobody.
		timer.Reset(max(min(pause, rec.Lease), time.Millisecond))
	}
}

type watching struct {
	settled <-chan struct{}
	stop    func()
}

func (c *claiming) watch(watcher store.Watcher) (<-chan struct{}, func(), error) {
	l := c.lease
	w, err := bounded(context.WithoutCancel(l.client), l.core, l.timeout(), func(ctx context.Context) (watching, error) {
		settled, stop, err := watcher.Watch(ctx, l.key)
		if err == nil && ctx.Err() != nil {
			stop() // nobody is left to do it
			err = ctx.Err()
		}
		return watching{settled, stop}, err
	})
	if err != nil {
		l.observe(event.Event{Kind: event.StoreError, Op: "watch", Err: err})
	}
	return w.settled, w.stop, err
}
