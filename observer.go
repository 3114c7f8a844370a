package idempotency

import (
	"context"
	"log/slog"
	"runtime/debug"
	"time"

	"example.com/idempotency/problem"
)

// An EventKind names what an [Event] reports. The values are stable, and meant to be
// used as metric labels.
type EventKind string

// String returns the kind's name, and none for the zero EventKind.
func (k EventKind) String() string {
	if k == "" {
		return "none"
	}
	return string(k)
}

// The kinds of events.
const (
	// EventRun: a run ended and its outcome was settled, or is being settled in the
	// background. Outcome, Status, Attempt and Duration describe it. A run of [Do] has
	// Status 0.
	EventRun EventKind = "run"
	// EventReplay: a recorded answer was served; Status is its status, and Attempt the run
	// that it is from.
	EventReplay EventKind = "replay"
	// EventRefused: a request got a problem document; Code and Status say which. Err is the
	// error of the route's function that caused it, if one did: of a [ScopeFunc], for
	// example. There is no such event for [Do], which returns an error.
	EventRefused EventKind = "refused"
	// EventFailOpen: the store was unavailable and the handler ran unprotected,
	// because of [WithFailOpen]. Err is the store's error.
	EventFailOpen EventKind = "fail-open"
	// EventStoreError: a call of the store failed or timed out; Op and Err say which
	// and how.
	EventStoreError EventKind = "store-error"
	// EventLeaseLost: a run could not keep its claim, and its context was cancelled; or
	// it had lost the claim, as it turned out, when it was to be settled.
	EventLeaseLost EventKind = "lease-lost"
	// EventOvertaken: another run took the key while this one went on, so that both may
	// have had their effect; or an operator or a resolver has settled the key in between.
	// Outcome describes this run; Status and Digest describe its answer if that was definite.
	// The client is shown what is recorded and never an answer that contradicts it.
	EventOvertaken EventKind = "overtaken"
	// EventNested: a request met a second guard on the same store inside its own run, and
	// passed through. Its settings did not apply.
	EventNested EventKind = "nested"
	// EventRecordingDelayed: the store stayed away when a run was to be settled. The
	// client has its answer, and settling goes on in the background.
	EventRecordingDelayed EventKind = "recording-delayed"
	// EventRecordingLost: a run could not be recorded; Err says why. If the store was away
	// until the retention ended or the guard was shut down, or if too many runs waited for it
	// already, the lease and the recovery policy settle the key. If the sealer failed, or the
	// result of a [Do] could not be encoded or was larger than [WithMaxResponseBody] allows,
	// the key is held, because the run has happened.
	EventRecordingLost EventKind = "recording-lost"
	// EventSilent: a handler returned without a status and without a byte, or wrote after
	// that; Err says which, and the usual cause. It is reported once for each Method and
	// Pattern; see [WithSilence].
	EventSilent EventKind = "silent"
	// EventCorrupt: a stored record failed its own check and was not served, or this process
	// cannot read it; Err wraps [ErrCorrupt] or [ErrUnreadableHere].
	EventCorrupt EventKind = "corrupt"
)

// An Event is one thing that a guard did or met. Fields that do not apply are zero.
type Event struct {
	// Kind says what happened.
	Kind EventKind
	// KeyHash is the beginning of the stored key's digest: enough to find the record in
	// a log. It does not reveal a key that is random; of one that can be guessed, such
	// as an order number, it confirms the guess.
	KeyHash string
	// Method and Pattern are those of the request, and empty for [Do]. Pattern is
	// http.Request.Pattern: the route, if the router outside of the guard tells it there,
	// as http.ServeMux does.
	Method, Pattern string
	// Attempt is the number of the run.
	Attempt int
	// Outcome is how the run was judged: of an EventRun, and where a run could not be settled
	// at once or lost its claim.
	Outcome Outcome
	// Status is that of the answer, and Code that of the problem, if the answer is one.
	Status int
	Code   problem.Code
	// Digest is the SHA-256 of the body of an answer, in hexadecimal: only of an
	// EventOvertaken.
	Digest string
	// Op is what failed: a call of the store (claim, renew, step, complete, release,
	// hold, watch, get), or resolve, which includes the function of [WithResolver].
	Op string
	// Duration of the run, or of the store call.
	Duration time.Duration
	// Err says what went wrong.
	Err error
}

// keyHashLen characters of base64url are 48 bits: unique in any log.
const keyHashLen = 8

// observe hands an event to the observer, and to the log if it calls for attention.
func (s *settings) observe(ctx context.Context, e Event) {
	for _, f := range s.observers {
		s.tell(ctx, f, e)
	}
	var level slog.Level
	var msg string
	switch e.Kind {
	case EventRefused:
		if e.Err == nil { // the client's doing
			return
		}
		level, msg = slog.LevelWarn, "idempotency: a function of the route refused a request"
		if e.Code == problem.Unauthenticated {
			level = slog.LevelInfo
		}
	case EventStoreError:
		level, msg = slog.LevelWarn, "idempotency: store call failed"
	case EventLeaseLost:
		level, msg = slog.LevelWarn, "idempotency: lease lost"
	case EventNested:
		level, msg = slog.LevelWarn, "idempotency: a guard inside a guard, the inner one does nothing"
	case EventOvertaken:
		level, msg = slog.LevelError, "idempotency: another run came between"
	case EventRecordingDelayed:
		level, msg = slog.LevelWarn, "idempotency: settling a run goes on in the background"
	case EventFailOpen:
		level, msg = slog.LevelError, "idempotency: store unavailable, handler runs unprotected"
	case EventRecordingLost:
		level, msg = slog.LevelError, "idempotency: run could not be settled"
	case EventSilent:
		level, msg = slog.LevelWarn, "idempotency: handler said nothing"
	case EventCorrupt:
		level, msg = slog.LevelError, "idempotency: stored record is unreadable"
	default:
		return
	}
	attrs := make([]slog.Attr, 0, 6)
	if e.KeyHash != "" {
		attrs = append(attrs, slog.String("key_hash", e.KeyHash))
	}
	if e.Attempt > 0 {
		attrs = append(attrs, slog.Int("attempt", e.Attempt))
	}
	if e.Kind == EventOvertaken {
		attrs = append(attrs, slog.String("outcome", e.Outcome.String()))
	}
	if e.Digest != "" {
		attrs = append(attrs, slog.String("digest", e.Digest))
	}
	if e.Kind == EventRefused {
		attrs = append(attrs, slog.String("code", string(e.Code)))
	}
	if e.Kind == EventSilent || e.Kind == EventRefused {
		attrs = append(attrs, slog.String("method", e.Method), slog.String("pattern", e.Pattern))
	}
	if e.Op != "" {
		attrs = append(attrs, slog.String("op", e.Op))
	}
	if e.Err != nil {
		attrs = append(attrs, slog.Any("error", e.Err))
	}
	s.log().LogAttrs(ctx, level, msg, attrs...)
}

// tell calls the observer. A panic of it ends here: it would keep an answer from being
// recorded whose effect has happened, and end the process where no request is being served.
func (s *settings) tell(ctx context.Context, observer func(context.Context, Event), e Event) {
	defer func() {
		if p := recover(); p != nil {
			s.log().LogAttrs(ctx, slog.LevelError, "idempotency: observer panicked",
				slog.String("kind", string(e.Kind)), slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
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

// keyHash is the part of a stored key that events and logs show.
func keyHash(storeKey string) string {
	return storeKey[:min(keyHashLen, len(storeKey))]
}
