package report

import (
	"sync"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/engine/note"
	"example.com/idempotency/store"
)

// maxRemembered bounds the runs that a process remembers to have reported.
const maxRemembered = 10_000

// A Once remembers what was reported of a run, so that a client that retries does not repeat
// the report. When it is full it forgets everything: to repeat a report is better than to
// swallow one.
type Once struct {
	mu   sync.Mutex
	made map[Run]struct{}
}

// A Run names what was reported of which run. A key that was forgotten begins again with
// attempt 1, and so the owner names the run. Where a store leaves it out, the attempt and its start
// do, to the millisecond.
type Run struct {
	kind    event.Kind
	key     string
	owner   store.Owner
	attempt int
	started int64
}

// Of returns the name of the report of a kind about the last run of a record.
func Of(kind event.Kind, key string, rec *store.Record) Run {
	if rec.Owner != (store.Owner{}) {
		return Run{kind: kind, key: key, owner: rec.Owner}
	}
	return Run{kind: kind, key: key, attempt: rec.Attempt, started: note.Last(rec.Notes).Started.UnixMilli()}
}

// IsNew reports whether r was not reported before, and remembers it.
func (o *Once) IsNew(r Run) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, known := o.made[r]; known {
		return false
	}
	if o.made == nil || len(o.made) >= maxRemembered {
		o.made = make(map[Run]struct{})
	}
	o.made[r] = struct{}{}
	return true
}
