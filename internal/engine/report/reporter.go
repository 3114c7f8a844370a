// Package report brings events to observers and to the log, and remembers what has been reported.
package report

import (
	"context"
	"log/slog"
	"runtime/debug"

	"example.com/idempotency/event"
	"example.com/idempotency/problem"
)

// A Reporter hands events on. The zero Reporter has no observers and logs to slog.Default.
type Reporter struct {
	Observers []func(context.Context, event.Event)
	Logger    *slog.Logger // nil for slog.Default at the time of the event
	Flood     *Flood       // nil to write each line
}

// Heard reports whether somebody hears of an event that is not logged.
func (r *Reporter) Heard() bool { return len(r.Observers) > 0 }

// Hears reports whether somebody hears of events of this kind.
func (r *Reporter) Hears(k event.Kind) bool { return r.Heard() || lines[k].message != "" }

// Observe hands an event to the observers, and to the log if it calls for attention.
func (r *Reporter) Observe(ctx context.Context, e event.Event) {
	for _, f := range r.Observers {
		r.tell(ctx, f, e)
	}
	switch {
	case lines[e.Kind].message == "":
		return
	case isReuse(&e):
		if times := r.Flood.reuses(e.Record); times > 0 {
			write(ctx, r.logger(), e, times)
		}
		return
	case e.Kind == event.Refused && (e.Err == nil || e.Method == ""):
		return // the client's doing, or an error that the caller of Do has
	case e.Kind == event.Bypassed && e.Err == nil:
		return // the client's choice
	case e.Kind == event.Shadow && e.Err == nil && e.Would != event.Replay && e.Would != event.Refused:
		return // nothing would have been different
	}
	r.Log(ctx, e)
}

// tell calls the observer. A panic of it ends here: it would keep an answer from being
// recorded whose effect has happened, and end the process where no request is being served.
func (r *Reporter) tell(ctx context.Context, observer func(context.Context, event.Event), e event.Event) {
	defer func() {
		if p := recover(); p != nil {
			r.logger().LogAttrs(ctx, slog.LevelError, "idempotency: observer panicked",
				slog.String("kind", string(e.Kind)), slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
		}
	}()
	observer(ctx, e)
}

// Log writes the line of an event into the log, or sums it up.
func (r *Reporter) Log(ctx context.Context, e event.Event) {
	if r.Flood.sumsUp(&e) {
		r.Flood.log(ctx, r.logger(), e)
		return
	}
	write(ctx, r.logger(), e, 0)
}

// write writes the line of an event, which stands for so many if that is not 0.
func write(ctx context.Context, logger *slog.Logger, e event.Event, times int) {
	line := lines[e.Kind]
	switch {
	case e.Code == problem.Unauthenticated:
		line.level = slog.LevelInfo
	case isReuse(&e):
		line = reused
	}
	if !logger.Enabled(ctx, line.level) {
		return
	}
	all := attrs(&e)
	if times > 0 {
		all = append(all, slog.Int("times", times))
	}
	logger.LogAttrs(ctx, line.level, line.message, all...)
}

func (r *Reporter) logger() *slog.Logger {
	if r.Logger == nil {
		return slog.Default()
	}
	return r.Logger
}
