package engine

import (
	"sync"

	"example.com/idempotency/store"
)

func (room *waitingRoom) size() int {
	room.mu.Lock()
	defer room.mu.Unlock()
	return room.all.n
}

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
		p.scope != store.Shared && !room.fits(p, room.scopes[p.scope], shareOfScope) {
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
	fingerprint store.Fingerprint
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

const (
	// waiterSize is what a request that waits takes. Measured over an idle connection, with a body
	// of 1 KiB and a dozen header fields, it is 9 KiB and 4 KiB of stack.
	waiterSize = 16 << 10
	// waiterRequest is how much of a request that has room for: of its target, its header and its body, or of
	// the payload of a call.
	waiterRequest = 4 << 10
	// fieldMemory is what a field of a header takes besides its name, and valueMemory what each value takes
	// besides itself: many short fields take far more memory than they are long.
	fieldMemory = 128
	valueMemory = 32

	// A key gets a quarter of the room, and a scope a half: a client that repeats itself without end
	// fills that, and all others need the rest. The scope that all callers share may fill the room.
	shareOfKey   = 4
	shareOfScope = 2
)

// How much memory the requests that wait may take: by default, at least and at most.
const (
	DefaultWaitingBytes = 4096 * waiterSize
	MinWaitingBytes     = shareOfKey * waiterSize
	MaxWaitingBytes     = 1 << 40
)
