package inspect

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/event"
)

// This file tells why a key is held.

// because ends a sentence that begins with what nobody knows.
var because = map[event.Cause]string{
	event.CauseUnknown:     "it ended without a definite answer",
	event.CausePanic:       "it panicked",
	event.CauseStep:        "a step that must not be repeated may have happened in it, or before it",
	event.CauseAttempts:    "it ended without a definite answer, and was the last attempt that its route allows",
	event.CauseCommit:      "its transaction may have been committed",
	event.CauseNotRecorded: "it has ended, and its answer could not be sealed or encoded",
	event.CauseForgotten:   "the store had forgotten its record, and a step that must not be repeated may have happened",
	event.CauseSaid:        "its program has said that the outcome is unknown",
	event.CauseLapsed:      "its lease has ended, and it has not said why: its process died, hung or lost the store",
	"":                     "it ended without a definite answer, or its process died, hung or lost the store",
}

// reason says why nobody knows what has become of the last run of a held record.
func reason(i idempotency.RecordInfo) string {
	says, known := because[i.Cause]
	if !known { // of a later version
		says = because[event.CauseUnknown]
	}
	if i.Answered > 0 {
		says += fmt.Sprintf(" (status %d)", i.Answered)
	}
	return says
}

// causeOf is why a record is held in one word. A step in doubt says the most about what can be decided.
func causeOf(i idempotency.RecordInfo) string {
	if len(i.InDoubt) > 0 {
		return string(event.CauseStep)
	}
	return string(cmp.Or(i.Cause, event.CauseUnknown))
}

// Why names a cause for people, with the status that came with it.
func Why(cause string, status int) string {
	says := strings.ReplaceAll(cause, "-", " ")
	if status > 0 {
		says += fmt.Sprintf(" (%d)", status)
	}
	return says
}

// Why says why the record is held.
func (r Record) Why() string { return Why(r.Cause, r.Answered) }

// Why says why the run has left its key held.
func (a Attempt) Why() string { return Why(a.Cause, a.Answered) }

// moment is a time as it is told, or nothing.
func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}
