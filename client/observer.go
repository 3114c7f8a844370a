package client

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"time"

	"example.com/idempotency/client/internal/truncate"
)

// This file tells observers and the log what the client does.

// An EventKind names what an [Event] reports. The values are stable, and meant to be used
// as metric labels.
type EventKind string

// The kinds of events.
const (
	// EventAttempt: an attempt ended. Status or Err, Verdict, Replayed and Duration
	// describe it.
	EventAttempt EventKind = "attempt"
	// EventRetry: another attempt will be made after Wait.
	EventRetry EventKind = "retry"
	// EventGaveUp: no further attempt will be made, although the request has no definite
	// answer. Reason says why, and Err what the caller gets, unless it gets the last
	// answer. Duration is that of the whole request.
	EventGaveUp EventKind = "gave-up"
)

// An Event is one thing that a [Transport] did or met. Fields that do not apply are zero.
type Event struct {
	// Kind says what happened.
	Kind EventKind
	// KeyHash tells requests apart without showing their keys; empty without a key. It is
	// not the name of the record in the events of the server, which is a digest of scope and key.
	KeyHash string
	// Method and Host of the request.
	Method, Host string
	// Attempt is the number of the attempt, from 1.
	Attempt int
	// Status is that of the answer, if there was one, and Verdict what it means.
	Status  int
	Verdict Verdict
	// Replayed says that the answer is a recorded one.
	Replayed bool
	// Expires is when the server forgets the key, as far as it has said by the end of the
	// attempt; see [Expires].
	Expires time.Time
	// Wait is the pause before the next attempt.
	Wait time.Duration
	// Duration is how long the attempt, or all of the request, has taken.
	Duration time.Duration
	// Reason is why no further attempt is made.
	Reason Reason
	// Err says what went wrong.
	Err error
}

// observers are those who hear what a [Transport] does.
type observers struct {
	told   []func(context.Context, Event)
	logger *slog.Logger
}

// wants reports whether anybody has to hear of an event.
func (o *observers) wants(e *Event) bool { return len(o.told) > 0 || isAlarming(e) }

// isAlarming reports whether an event belongs in the log.
func isAlarming(e *Event) bool {
	return e.Kind == EventGaveUp && errors.Is(e.Err, ErrOutcomeUnknown)
}

// tell hands an event to the observers, and to the log if it calls for attention.
func (o *observers) tell(ctx context.Context, e *Event) {
	for _, f := range o.told {
		o.call(ctx, f, e)
	}
	if isAlarming(e) {
		o.log().LogAttrs(ctx, slog.LevelWarn, "client: outcome of a request is unknown",
			slog.String("key_hash", e.KeyHash),
			slog.String("method", e.Method),
			slog.String("host", truncate.Text(e.Host)),
			slog.Int("attempts", e.Attempt),
			slog.String("reason", string(e.Reason)),
			slog.Any("error", e.Err))
	}
}

// call calls an observer. A panic of it ends here: the answer, or the key to ask for it
// again, would be lost with it.
func (o *observers) call(ctx context.Context, f func(context.Context, Event), e *Event) {
	defer func() {
		if p := recover(); p != nil {
			o.log().LogAttrs(ctx, slog.LevelError, "client: observer panicked",
				slog.String("kind", string(e.Kind)), slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
		}
	}()
	f(ctx, *e)
}

func (o *observers) log() *slog.Logger {
	if o.logger == nil {
		return slog.Default()
	}
	return o.logger
}
