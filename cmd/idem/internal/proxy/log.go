package proxy

import (
	"io"
	"log/slog"
	"sync"
	"time"
)

// This file is where the log goes. A line for each request costs more than its guard does, if each is a call of the
// operating system, so those are written together.

const (
	lateBy   = 100 * time.Millisecond // how long the line of a request waits for others
	together = 32 << 10               // how much waits at most
)

// logs are the two kinds of lines. They stand in the log in the order in which they were made.
type logs struct {
	*slog.Logger              // at once
	requests     slog.Handler // one for each, a little late
}

// unlogged is for a proxy that serves nobody.
var unlogged = logs{slog.New(slog.DiscardHandler), slog.DiscardHandler}

// newLogs writes JSON. Flush is called before the process ends.
func newLogs(to io.Writer) (l logs, flush func()) {
	out := &lines{to: to}
	out.timer = time.AfterFunc(lateBy, out.flush)
	out.timer.Stop()
	return logs{slog.New(slog.NewJSONHandler(out, nil)), slog.NewJSONHandler(late{out}, nil)}, out.flush
}

// lines is a writer that first writes what waits. It serves several goroutines.
type lines struct {
	to    io.Writer
	timer *time.Timer

	mu   sync.Mutex
	held []byte
}

func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = append(l.held, line...)
	return len(line), l.empty()
}

func (l *lines) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.empty() // nobody is left to tell
}

func (l *lines) empty() error {
	if len(l.held) == 0 {
		return nil
	}
	_, err := l.to.Write(l.held)
	l.held = l.held[:0]
	return err
}

// late is the writer of lines that wait.
type late struct{ *lines }

func (l late) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.held) == 0 {
		l.timer.Reset(lateBy)
	}
	l.held = append(l.held, line...)
	if len(l.held) >= together {
		return len(line), l.empty()
	}
	return len(line), nil
}
