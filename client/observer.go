package client

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"time"
)

// This file tells observers and the log what the client does.

// An event.Kind names what an [Event] reports. The values are stable, and meant to be used
// as metric labels.
type EventKind string

// String returns the kind as text, and "none" for the zero value.
func (k EventKind) String() string { return orNone(string(k)) }

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

// observe hands an event to the observer, and to the log if it calls for attention.
func (c *call) observe(e Event) {
	s := &c.t.set
	unknown := e.Kind == EventGaveUp && errors.Is(e.Err, ErrOutcomeUnknown)
	if len(s.observers) == 0 && !unknown {
		return
	}
	if c.key.value != "" {
		e.KeyHash = keyHash(c.key.value)
	}
	e.Method, e.Attempt = method(c.req), len(c.attempts)
	if c.req.URL != nil {
		e.Host = c.req.URL.Host
	}
	ctx := c.req.Context()
	for _, f := range s.observers {
		s.tell(ctx, f, e)
	}
	if unknown {
		logUnknown(ctx, s.log(), e)
	}
}

// tell calls an observer. A panic of it ends here: the answer, or the key to ask for it
// again, would be lost with it.
func (s *settings) tell(ctx context.Context, observer func(context.Context, Event), e Event) {
	defer func() {
		if p := recover(); p != nil {
			s.log().LogAttrs(ctx, slog.LevelError, "client: observer panicked",
				slog.String("kind", e.Kind.String()), slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
		}
	}()
	observer(ctx, e)
}

func (s *settings) log() *slog.Logger {
	if s.logger == nil {
		return slog.Default()
	}
	return s.logger
}

func logUnknown(ctx context.Context, log *slog.Logger, e Event) {
	log.LogAttrs(ctx, slog.LevelWarn, "client: outcome of a request is unknown",
		slog.String("key_hash", e.KeyHash),
		slog.String("method", e.Method),
		slog.String("host", e.Host),
		slog.Int("attempts", e.Attempt),
		slog.String("reason", e.Reason.String()),
		slog.Any("error", e.Err))
}
