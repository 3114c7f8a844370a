package report

import (
	"encoding/hex"
	"log/slog"
	"strings"
	"time"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/engine/intent"
)

// A line is how the log tells of events of one kind: at which level, in which words.
type line struct {
	level   slog.Level
	message string
}

// lines are those of the kinds that are logged.
var lines = map[event.Kind]line{
	event.Refused:          {slog.LevelWarn, "idempotency: request refused"},
	event.Bypassed:         {slog.LevelWarn, "idempotency: call runs unprotected"},
	event.Held:             {slog.LevelError, "idempotency: outcome unknown, key held until it is resolved"},
	event.HoldEnding:       {slog.LevelError, "idempotency: held key becomes free unresolved"},
	event.Unresolved:       {slog.LevelWarn, "idempotency: held key could not be resolved"},
	event.Resolved:         {slog.LevelInfo, "idempotency: held key resolved"},
	event.Forgotten:        {slog.LevelInfo, "idempotency: record forgotten"},
	event.AnswerRead:       {slog.LevelInfo, "idempotency: recorded answer read"},
	event.FailOpen:         {slog.LevelError, "idempotency: store unavailable, handler runs unprotected"},
	event.StoreError:       {slog.LevelWarn, "idempotency: store call failed"},
	event.LeaseLost:        {slog.LevelWarn, "idempotency: lease lost"},
	event.Takeover:         {slog.LevelWarn, "idempotency: key taken over from a run whose lease had ended"},
	event.Overtaken:        {slog.LevelError, "idempotency: another run came between"},
	event.CommittedAlone:   {slog.LevelError, "idempotency: handler committed its transaction without the record"},
	event.NotJoined:        {slog.LevelWarn, "idempotency: success without a transaction on a route with WithTransaction"},
	event.LeftOpen:         {slog.LevelWarn, "idempotency: handler left its transaction open, rolled back"},
	event.Nested:           {slog.LevelWarn, "idempotency: a guard inside a guard, the inner one does nothing"},
	event.RecordingDelayed: {slog.LevelWarn, "idempotency: settling a run goes on in the background"},
	event.RecordingLost:    {slog.LevelError, "idempotency: run could not be settled"},
	event.ClaimLeft:        {slog.LevelWarn, "idempotency: claim could not be given back"},
	event.RunLeft:          {slog.LevelError, "idempotency: shutdown given up before a run had ended"},
	event.RecordGone:       {slog.LevelError, "idempotency: the store has forgotten a record that it had acknowledged"},
	event.StoreReset:       {slog.LevelError, "idempotency: the store has been emptied or replaced, keys from before run again"},
	event.NotKept:          {slog.LevelWarn, "idempotency: run is recorded without its answer"},
	event.Silent:           {slog.LevelWarn, "idempotency: handler said nothing"},
	event.HiddenFailure:    {slog.LevelWarn, "idempotency: answer 200 tells of a failure"},
	event.Shadow:           {slog.LevelInfo, "idempotency: a live guard would have stepped in"},
	event.Corrupt:          {slog.LevelError, "idempotency: stored record is unreadable"},
}

// attrs returns what the log says of an event: all of it but the scope, which can be a person's
// name.
func attrs(e *event.Event) []slog.Attr {
	all := make([]slog.Attr, 0, 8)
	text := func(name, value string) {
		if value != "" {
			all = append(all, slog.String(name, value))
		}
	}
	seconds := func(name string, d time.Duration) {
		if d != 0 { // in JSON, a Duration is a number without a unit
			all = append(all, slog.Float64(name, d.Seconds()))
		}
	}
	text("would", string(e.Would))
	text("record", e.Record)
	text("scope", intent.ScopeID(e.Scope))
	text("operation", e.OperationID)
	text("method", e.Method)
	text("route", e.Route)
	if e.Attempt > 0 {
		all = append(all, slog.Int("attempt", e.Attempt))
	}
	if e.Trace != (event.TraceContext{}) {
		text("trace_id", hex.EncodeToString(e.Trace.TraceID[:]))
		text("span_id", hex.EncodeToString(e.Trace.SpanID[:]))
	}
	if e.Outcome != 0 {
		text("outcome", e.Outcome.String())
	}
	if e.Status > 0 {
		all = append(all, slog.Int("status", e.Status))
	}
	text("code", string(e.Code))
	text("differs", e.Differs.String())
	text("cause", string(e.Cause))
	seconds("age_seconds", e.Age)
	text("digest", e.Digest)
	text("step", e.Step)
	text("steps", strings.Join(e.Steps, ","))
	text("in_doubt", strings.Join(e.InDoubt, ","))
	text("decision", e.Decision)
	text("actor", e.Actor)
	text("reason", e.Reason)
	text("op", e.Op)
	seconds("duration_seconds", e.Duration)
	if e.Err != nil {
		all = append(all, slog.Any("error", e.Err))
	}
	return all
}
