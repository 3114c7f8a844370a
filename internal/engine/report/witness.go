package report

import (
	"errors"
	"sync"
	"time"

	"example.com/idempotency/store"
)

// Witnesses are the records that this process has completed last. If the store does not know one
// of them, long before it expires, the store has forgotten what it had acknowledged: it was
// emptied, it evicts, or a copy that is behind has taken its place.
type Witnesses struct {
	mu   sync.Mutex
	last [4]Witness
	n    int
}

// A Witness is a completed record, with what an event says of it.
type Witness struct {
	Name, Route string
	Owner       store.Owner // of the run, which no other record ever has
	Began       time.Time   // of the run
	TTL         time.Duration
}

// expires is when the record expires at the earliest.
func (w *Witness) expires() time.Time { return w.Began.Add(w.TTL - w.TTL/10) }

// Add takes a record in, in place of the oldest.
func (ws *Witnesses) Add(w Witness) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.last[ws.n%len(ws.last)] = w
	ws.n++
}

// Drop takes a record out: it is being forgotten on purpose, or is told of.
func (ws *Witnesses) Drop(name string) {
	ws.drop(func(w Witness) bool { return w.Name == name })
}

func (ws *Witnesses) drop(which func(Witness) bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for i := range ws.last {
		if which(ws.last[i]) {
			ws.last[i] = Witness{}
		}
	}
}

// Hear reads all of them. It returns how many the store knows, and those that are gone, the oldest first. Each
// is told of once.
func (ws *Witnesses) Hear(get func(name string) (store.Record, error)) (known int, gone []Witness) {
	ws.mu.Lock()
	last, n := ws.last, ws.n
	ws.mu.Unlock()
	for i := range last {
		w := last[(n+i)%len(last)]
		if w.Name == "" || time.Now().After(w.expires()) {
			continue
		}
		rec, err := get(w.Name)
		switch {
		case errors.Is(err, store.ErrNotFound), err == nil && (rec.State != store.Completed || rec.Owner != w.Owner):
			gone = append(gone, w)
			ws.drop(func(one Witness) bool { return one == w })
		case err == nil:
			known++
		}
	}
	return known, gone
}
