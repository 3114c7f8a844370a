package idempotency

import (
	"context"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"example.com/idempotency/event"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// This file brings events to observers and to the log.

// WithRoute names the route, for events, logs and operators: "POST /charges", for example, or
// the name of a job of [Do]. The label has at most 64 bytes of printable ASCII. It must not
// depend on the request, because metrics have a series for each. By default it is empty, and
// the route is http.Request.Pattern.
func WithRoute(label string) Option {
	return optionFunc(func(s *settings) { s.route = label })
}

func isLabel(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

// WithObserver adds a function that receives each [event.Event], for metrics and tracing. A
// guard made by [Guard.With] has the observers of the guard it was made from and its own.
// They are called in the order in which they were added, synchronously, possibly from
// several goroutines, and must not block. If one panics, the guard logs the panic and
// serves the request all the same. Nil adds nothing.
func WithObserver(f func(context.Context, event.Event)) Option {
	return optionFunc(func(s *settings) {
		if f != nil {
			s.observers = append(slices.Clip(s.observers), f) // guards share what is before it
		}
	})
}

// WithLogger sets the logger for what needs an operator's attention: failed store
// calls, lost leases, answers that could not be recorded, errors of the route's functions. Nil, the default, means
// slog.Default at the time of the event.
func WithLogger(l *slog.Logger) Option {
	return optionFunc(func(s *settings) { s.logger = l })
}

// WithTraceContext sets a function that returns the span that a context belongs to. The guard
// calls it with the context of each request that claims a key, and keeps the span of each run
// in the record, where it is not sealed. So the event of a replay, in any process, can point to
// the trace of the run that made the answer. The function must be fast. Nil, the default, keeps
// no span.
//
// With OpenTelemetry, trace.SpanContextFromContext returns the three fields.
func WithTraceContext(f func(context.Context) event.TraceContext) Option {
	return optionFunc(func(s *settings) { s.traceContext = f })
}

// routeOf returns what events call the route of a request.
func (s *settings) routeOf(r *http.Request) string {
	if s.route != "" {
		return s.route
	}
	return r.Pattern
}

// heard reports whether somebody hears of an event that is not logged.
func (s *settings) heard() bool { return len(s.observers) > 0 }

// observe hands an event to the observers, and to the log if it calls for attention.
func (s *settings) observe(ctx context.Context, e event.Event) {
	for _, f := range s.observers {
		s.tell(ctx, f, e)
	}
	switch {
	case !isLogged(e.Kind):
		return
	case e.Kind == event.Refused && (e.Err == nil || e.Method == ""):
		return // the client's doing, or an error that the caller of Do has
	case e.Kind == event.Shadow && e.Err == nil && e.Would != event.Replay && e.Would != event.Refused:
		return // nothing would have been different
	}
	s.logEvent(ctx, e)
}

func (s *settings) logEvent(ctx context.Context, e event.Event) {
	about := kinds[e.Kind]
	if e.Code == problem.Unauthenticated {
		about.level = slog.LevelInfo
	}
	if logger := s.log(); logger.Enabled(ctx, about.level) {
		logger.LogAttrs(ctx, about.level, about.message, attrsOf(&e)...)
	}
}

// attrsOf returns what the log says of an event: all of it but the scope, which can be a person's
// name.
func attrsOf(e *event.Event) []slog.Attr {
	attrs := make([]slog.Attr, 0, 8)
	text := func(name, value string) {
		if value != "" {
			attrs = append(attrs, slog.String(name, value))
		}
	}
	duration := func(name string, d time.Duration) {
		if d != 0 {
			attrs = append(attrs, slog.Duration(name, d))
		}
	}
	text("would", string(e.Would))
	text("record", e.Record)
	text("operation", e.OperationID)
	text("method", e.Method)
	text("route", e.Route)
	if e.Attempt > 0 {
		attrs = append(attrs, slog.Int("attempt", e.Attempt))
	}
	text("trace", e.Trace.String())
	if e.Outcome != 0 {
		text("outcome", e.Outcome.String())
	}
	if e.Status > 0 {
		attrs = append(attrs, slog.Int("status", e.Status))
	}
	text("code", string(e.Code))
	text("differs", e.Differs.String())
	duration("age", e.Age)
	text("digest", e.Digest)
	text("step", e.Step)
	text("steps", strings.Join(e.Steps, ","))
	text("actor", e.Actor)
	text("reason", e.Reason)
	text("op", e.Op)
	duration("duration", e.Duration)
	if e.Err != nil {
		attrs = append(attrs, slog.Any("error", e.Err))
	}
	return attrs
}

// tell calls the observer. A panic of it ends here: it would keep an answer from being
// recorded whose effect has happened, and end the process where no request is being served.
func (s *settings) tell(ctx context.Context, observer func(context.Context, event.Event), e event.Event) {
	defer func() {
		if p := recover(); p != nil {
			s.log().LogAttrs(ctx, slog.LevelError, "idempotency: observer panicked",
				slog.String("kind", string(e.Kind)), slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
		}
	}()
	observer(ctx, e)
}

// uncancelled is an access as the context of its events: it has the values of the request's
// context and does not end. It costs no memory, also when an observer looks up a value, which
// it does again and again for the trace; context.WithoutCancel costs some each time.
type uncancelled access

func (u *uncancelled) Value(key any) any           { return u.client.Value(key) }
func (u *uncancelled) Deadline() (time.Time, bool) { return time.Time{}, false }
func (u *uncancelled) Done() <-chan struct{}       { return nil }
func (u *uncancelled) Err() error                  { return nil }

func (s *settings) log() *slog.Logger {
	if s.logger == nil {
		return slog.Default()
	}
	return s.logger
}

// maxReports bounds the runs that a process remembers to have reported.
const maxReports = 10_000

// reports remembers what was reported of a run, so that a client that retries does not repeat
// the report. When it is full it forgets everything: to repeat a report is better than to
// swallow one.
type reports struct {
	mu   sync.Mutex
	made map[report]struct{}
}

// A report names what was reported of which run. A key that was forgotten begins again with
// attempt 1, and so the owner names the run. Where a store leaves it out, the attempt and its start
// do, to the millisecond.
type report struct {
	kind    event.Kind
	key     string
	owner   store.Owner
	attempt int
	started int64
}

func reportOf(kind event.Kind, key string, rec *store.Record) report {
	if rec.Owner != (store.Owner{}) {
		return report{kind: kind, key: key, owner: rec.Owner}
	}
	return report{kind: kind, key: key, attempt: rec.Attempt, started: lastNote(rec.Notes).started.UnixMilli()}
}

func (r *reports) isNew(one report) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.made[one]; known {
		return false
	}
	if r.made == nil || len(r.made) >= maxReports {
		r.made = make(map[report]struct{})
	}
	r.made[one] = struct{}{}
	return true
}

// holdEndingSoon is how long before the end of a hold somebody should have heard of it, where
// a tenth of the retention is less.
const holdEndingSoon = time.Hour

// reportHoldEnding reports, once for each run, that a held key becomes free soon although
// nobody has resolved it.
func (c *core) reportHoldEnding(key string, rec *store.Record, observe func(event.Event)) {
	if rec.State != store.Held || rec.TTL == store.Forever {
		return
	}
	retention := rec.Age + rec.TTL
	if rec.TTL <= max(retention/10, holdEndingSoon) && c.reports.isNew(reportOf(event.HoldEnding, key, rec)) {
		observe(event.Event{
			Kind: event.HoldEnding, Attempt: rec.Attempt, Held: true, Age: rec.Age, Duration: rec.TTL, Trace: lastNote(rec.Notes).trace,
		})
	}
}

// reportHeld reports, once for each run, that nobody may run until the key is resolved.
func (l *lease) reportHeld(rec *store.Record) {
	if l.core.reports.isNew(reportOf(event.Held, l.key, rec)) {
		l.observe(event.Event{Kind: event.Held, Attempt: rec.Attempt, Held: true, Age: rec.Age, Trace: lastNote(rec.Notes).trace})
	}
}

// reportTakeover reports, once for each run, that the claim was granted because another's lease
// had ended.
func (l *lease) reportTakeover(rec *store.Record) {
	if !l.core.reports.isNew(reportOf(event.Takeover, l.key, rec)) {
		return
	}
	e := event.Event{Kind: event.Takeover, Attempt: rec.Attempt, Runs: runsOf(rec)}
	if n := len(e.Runs); n > 1 {
		e.Trace = e.Runs[n-2].Trace
	}
	l.observe(e)
}
