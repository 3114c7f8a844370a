package report

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"example.com/idempotency/event"
	"example.com/idempotency/problem"
)

// floodPause is how often lines that say the same are written.
const floodPause = time.Second

// A Flood sums up lines that come by the thousand while a store is away: calls that failed, and the requests
// that were refused for it. The first of them is written at once, then one each second with their number.
// Observers hear of each. Guards that are made from each other share a Flood.
type Flood struct {
	mu   sync.Mutex
	sums map[sameLine]*sum
	// habits are those of keys that come with other requests.
	habits map[string]habit
}

// sameLine is what lines have in common that are summed up.
type sameLine struct {
	logger *slog.Logger
	kind   event.Kind
	code   problem.Code
	route  string
	op     string
}

// A sum is what was left out since the last line.
type sum struct {
	times int
	ctx   context.Context // of the last one
	last  event.Event
}

// sumsUp reports whether lines of an event are summed up. Of the others, each may be one that somebody has to
// look at.
func (f *Flood) sumsUp(e *event.Event) bool {
	return f != nil && (e.Kind == event.StoreError || e.Kind == event.Refused)
}

// log writes the line of the event, or counts it if another like it was written within the pause.
func (f *Flood) log(ctx context.Context, logger *slog.Logger, e event.Event) {
	same := sameLine{logger, e.Kind, e.Code, e.Route, e.Op}
	f.mu.Lock()
	if s := f.sums[same]; s != nil {
		s.times, s.ctx, s.last = s.times+1, ctx, e
		f.mu.Unlock()
		return
	}
	if f.sums == nil {
		f.sums = make(map[sameLine]*sum)
	}
	f.sums[same] = new(sum)
	f.mu.Unlock()
	f.pause(same)
	write(ctx, logger, e, 0)
}

func (f *Flood) pause(same sameLine) { time.AfterFunc(floodPause, func() { f.next(same) }) }

// next ends a pause. If lines were left out, it writes the last of them and begins another pause.
func (f *Flood) next(same sameLine) {
	f.mu.Lock()
	s := *f.sums[same]
	if s.times == 0 {
		delete(f.sums, same)
		f.mu.Unlock()
		return
	}
	f.sums[same] = new(sum)
	f.mu.Unlock()
	f.pause(same)
	write(s.ctx, same.logger, s.last, s.times)
}
