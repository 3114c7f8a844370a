package idempotency

import (
	"example.com/idempotency/event"
	"log/slog"
)

// This file holds what a guard reports: the kinds of events, in the log: at which level, in which words.

// isLogged reports whether events of this kind are in the log.
func isLogged(k event.Kind) bool { return kinds[k].message != "" }

// A kindInfo is what the package knows of an event.Kind. The zero kindInfo is not logged.
type kindInfo struct {
	level   slog.Level
	message string // of the log; empty if the event is not logged
}

var kinds = map[event.Kind]kindInfo{
	event.Run: {}, event.Replay: {}, event.Bypassed: {}, event.Step: {},
	event.Refused:          {slog.LevelWarn, "idempotency: request refused"},
	event.Held:             {slog.LevelError, "idempotency: outcome unknown, key held until it is resolved"},
	event.HoldEnding:       {slog.LevelError, "idempotency: held key becomes free unresolved"},
	event.Resolved:         {slog.LevelInfo, "idempotency: held key resolved"},
	event.Forgotten:        {slog.LevelInfo, "idempotency: record forgotten"},
	event.FailOpen:         {slog.LevelError, "idempotency: store unavailable, handler runs unprotected"},
	event.StoreError:       {slog.LevelWarn, "idempotency: store call failed"},
	event.LeaseLost:        {slog.LevelWarn, "idempotency: lease lost"},
	event.Takeover:         {slog.LevelWarn, "idempotency: key taken over from a run whose lease had ended"},
	event.Overtaken:        {slog.LevelError, "idempotency: another run came between"},
	event.CommittedAlone:   {slog.LevelError, "idempotency: handler committed its transaction without the record"},
	event.LeftOpen:         {slog.LevelWarn, "idempotency: handler left its transaction open, rolled back"},
	event.Nested:           {slog.LevelWarn, "idempotency: a guard inside a guard, the inner one does nothing"},
	event.RecordingDelayed: {slog.LevelWarn, "idempotency: settling a run goes on in the background"},
	event.RecordingLost:    {slog.LevelError, "idempotency: run could not be settled"},
	event.ClaimLeft:        {slog.LevelWarn, "idempotency: claim could not be given back"},
	event.NotKept:          {slog.LevelWarn, "idempotency: run is recorded without its answer"},
	event.Silent:           {slog.LevelWarn, "idempotency: handler said nothing"},
	event.Shadow:           {slog.LevelInfo, "idempotency: a live guard would have stepped in"},
	event.Corrupt:          {slog.LevelError, "idempotency: stored record is unreadable"},
}
