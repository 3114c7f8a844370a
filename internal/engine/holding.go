package engine

import (
	"time"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/engine/note"
	"example.com/idempotency/internal/engine/report"
	"example.com/idempotency/store"
)

// holdEndingSoon is how long before the end of a hold somebody should have heard of it, where
// a tenth of the retention is less.
const holdEndingSoon = time.Hour

// ReportHoldEnding reports, once for each run, that a held key becomes free soon although nobody has
// resolved it.
func (l *Lease) ReportHoldEnding(rec *store.Record) { l.core.reportHoldEnding(l.Name, rec, l.Observe) }

func (c *core) reportHoldEnding(key string, rec *store.Record, observe func(event.Event)) {
	if rec.State != store.Held || rec.TTL == store.Forever {
		return
	}
	retention := rec.Age + rec.TTL
	if rec.TTL <= max(retention/10, holdEndingSoon) && c.reports.IsNew(report.Of(event.HoldEnding, key, rec)) {
		observe(event.Event{
			Kind: event.HoldEnding, Attempt: rec.Attempt, Held: true, Age: rec.Age, Duration: rec.TTL, Trace: note.Last(rec.Notes).Trace,
		})
	}
}
