package report

import (
	"log/slog"
	"time"

	"example.com/idempotency/event"
	"example.com/idempotency/problem"
)

// A client that has one key for everything gets an answer once, and then refusals that only it can see. The log tells of such a
// key, and of no other refusal that is the client's doing.

const (
	// reusedOften is how many refusals of a key are a habit, if each comes within reusedPause after the one before.
	reusedOften = 10
	// reusedPause is how long the log says nothing more of a key.
	reusedPause = time.Hour
	// mostReused is how many keys are watched. Clients choose keys: when there are more, all are forgotten.
	mostReused = 1024
)

// reused is the line about such a key.
var reused = line{slog.LevelWarn, "idempotency: one key comes with many requests"}

// A habit is what is known of the refusals of a key.
type habit struct {
	times      int // since the last line
	last, told time.Time
}

// isReuse reports whether a request was refused because its key belongs to another one.
func isReuse(e *event.Event) bool {
	return e.Kind == event.Refused && e.Code == problem.KeyReused && e.Err == nil && e.Method != ""
}

// reuses counts a refusal of a key, and returns how many there were since the last line if another one is due, and 0 if not.
func (f *Flood) reuses(record string) int {
	if f == nil {
		return 0
	}
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	h, known := f.habits[record]
	if !known && len(f.habits) >= mostReused || f.habits == nil {
		f.habits = make(map[string]habit)
	}
	if now.Sub(h.last) > reusedPause {
		h.times = 0
	}
	h.times, h.last = h.times+1, now
	due := 0
	if h.times >= reusedOften && now.Sub(h.told) >= reusedPause {
		due, h.times, h.told = h.times, 0, now
	}
	f.habits[record] = h
	return due
}
