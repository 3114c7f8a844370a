package sqlrecord

import (
	"sync"
	"sync/atomic"

	"example.com/idempotency/store"
)

// Locked are the records that transactions of runs of this process keep locked. Nobody can take one
// of them over, so a renewal that comes meanwhile need only be made afterwards. The zero Locked is
// empty, and its methods may be called concurrently.
type Locked struct {
	due sync.Map // by the run: whether a renewal is due
}

// runOf names the run of an owner.
func runOf(key string, o store.Owner) string { return string(o[:]) + key }

// Add adds the record of a run.
func (l *Locked) Add(key string, o store.Owner) { l.due.Store(runOf(key, o), new(atomic.Bool)) }

// Has reports whether a run keeps its record locked.
func (l *Locked) Has(key string, o store.Owner) bool {
	_, has := l.due.Load(runOf(key, o))
	return has
}

// Renew is Has for a renewal, and notes that it is due.
func (l *Locked) Renew(key string, o store.Owner) bool {
	due, has := l.due.Load(runOf(key, o))
	if has {
		due.(*atomic.Bool).Store(true)
	}
	return has
}

// Remove removes the record of a run, and reports whether a renewal was due meanwhile.
func (l *Locked) Remove(key string, o store.Owner) (due bool) {
	noted, has := l.due.LoadAndDelete(runOf(key, o))
	return has && noted.(*atomic.Bool).Load()
}
