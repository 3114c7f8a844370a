package response

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"example.com/idempotency/internal/answer"
)

// The handler's side of a Recorder: the methods of http.ResponseWriter, and those that
// http.ResponseController and package io look for.

// errHandlerReturned is returned for writes after the handler has returned. By then its
// answer has been recorded or given up.
var errHandlerReturned = errors.New("idempotency: write after the handler returned")

var errNoFlush = fmt.Errorf("idempotency: no writer behind the handler's can flush: %w", http.ErrNotSupported)

// Errors of a handler whose answer is held back.
var (
	errHeldBack  = fmt.Errorf("idempotency: the answer is kept back until its transaction is committed: %w", http.ErrNotSupported)
	errOverLimit = errors.New("idempotency: the answer is larger than Limits.ResponseBody allows, or its header too large, and its transaction will be rolled back")
)

// Header implements [http.ResponseWriter].
func (rec *Recorder) Header() http.Header { return rec.header }

// WriteHeader implements [http.ResponseWriter]. Informational answers pass through at once
// and do not count as the answer.
func (rec *Recorder) WriteHeader(status int) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if status == http.StatusOK && !rec.closed && !rec.wroteHeader && rec.witness != nil && rec.witness.Unsaid() {
		return
	}
	rec.writeHeader(status)
}

func (rec *Recorder) writeHeader(status int) {
	if rec.closed {
		rec.comeLate()
		return
	}
	if rec.wroteHeader {
		if status >= http.StatusInternalServerError &&
			(rec.second == 0 || (rec.second == http.StatusGatewayTimeout) == (rec.status < http.StatusBadRequest)) {
			rec.second = status
		}
		return
	}
	if status < 100 || status > 999 {
		// The same panic as net/http's, at the same place of the handler.
		panic(fmt.Sprintf("invalid WriteHeader code %v", status))
	}
	if status < 200 && status != http.StatusSwitchingProtocols {
		rec.inform(status)
		return
	}
	rec.wroteHeader = true
	rec.status = status
	rec.diff.take(rec.before, rec.w.Header(), rec.header, rec.informed)
	rec.takeDeclaredLength()
	space := answer.NewSpace()
	rec.diff.own(space)
	space.Free()
	if rec.judged {
		rec.rare = &rareParts{written: rec.header.Clone()}
	}
	head := answer.Answer{Header: rec.diff.recorded, Added: rec.diff.added}
	rec.wide = !head.Fits(rec.limit)
	rec.typed = rec.hasType()
}

// comeLate notes a write after the return of a handler that had said nothing before. The
// witness is called without the lock, because it may take its time.
func (rec *Recorder) comeLate() {
	if !rec.silent || rec.late || rec.witness == nil {
		return
	}
	rec.late = true
	rec.mu.Unlock()
	defer rec.mu.Lock()
	rec.witness.WroteLate()
}

// inform sends a 1xx answer with the header as it is now. Then it takes the handler's fields
// out again: the final answer is compared with what outer handlers have set. What they add meanwhile stays.
func (rec *Recorder) inform(status int) {
	rec.informed = true
	outer := rec.w.Header()
	saved, told := maps.Clone(outer), maps.Clone(rec.header)
	maps.DeleteFunc(told, func(name string, _ []string) bool { return rec.diff.rules.isOwn(name) })
	for name, values := range told {
		outer[name] = slices.Clone(values) // they may be changed in place
	}
	rec.w.WriteHeader(status)
	for name, values := range told {
		now := outer[name]
		if len(now) < len(values) || !slices.Equal(now[:len(values)], values) {
			continue // they have set another
		}
		if was := append(slices.Clip(saved[name]), now[len(values):]...); len(was) > 0 {
			outer[name] = was
		} else {
			delete(outer, name)
		}
	}
}

// takeDeclaredLength reads the length that the handler declares, and records it: a replay has it
// where the answer has it, and neither in front of other answers, nor in front of a trailer, which
// net/http sends behind no declared length. It promises that much of a body, unless none is sent.
// With 204 it means nothing.
func (rec *Recorder) takeDeclaredLength() {
	values := rec.header["Content-Length"]
	if len(values) == 0 {
		return
	}
	n, err := strconv.ParseInt(values[0], 10, 64)
	if err != nil || n < 0 {
		return
	}
	switch {
	case rec.method == http.MethodHead || rec.status == http.StatusNotModified:
	case BodyAllowed(rec.status):
		rec.declared = n
	default:
		return
	}
	rec.diff.recorded = append(rec.diff.recorded, answer.Field{Name: "Content-Length", Values: values})
}

// Write implements [http.ResponseWriter]. It fails only for mistakes of the handler: an
// error of the client's connection must not stop a run half-way through its answer.
func (rec *Recorder) Write(p []byte) (int, error) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if err := rec.accept(len(p)); err != nil {
		return 0, err
	}
	rec.take(p)
	return len(p), nil
}

// WriteString implements [io.StringWriter]. It does not copy s twice while the answer is
// buffered.
func (rec *Recorder) WriteString(s string) (int, error) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if err := rec.accept(len(s)); err != nil {
		return 0, err
	}
	if rec.mode == buffering {
		rec.buf.AppendString(s)
	} else {
		rec.take([]byte(s))
	}
	return len(s), nil
}

// accept checks a write of n bytes and makes room for it.
func (rec *Recorder) accept(n int) error {
	if rec.closed {
		rec.comeLate()
		return errHandlerReturned
	}
	if !rec.wroteHeader {
		rec.writeHeader(http.StatusOK)
	}
	if !BodyAllowed(rec.status) {
		return http.ErrBodyNotAllowed
	}
	if rec.declared >= 0 && rec.written+int64(n) > rec.declared {
		return http.ErrContentLength
	}
	rec.written += int64(n)
	if rec.mode != passing {
		if rec.overLimit {
			return errOverLimit
		}
		if rec.wide || rec.written > rec.limit || rec.declared > rec.limit {
			if rec.held {
				rec.overLimit = true
				rec.DropBuffer()
				return errOverLimit
			}
			rec.startPassing()
			return nil
		}
		if rec.buf == nil {
			rec.buf = answer.NewBuffer()
		}
	}
	return nil
}

// take keeps and sends p as the mode demands.
func (rec *Recorder) take(p []byte) {
	if rec.mode != passing {
		rec.buf.Append(p)
	}
	if rec.mode != buffering {
		rec.forward(p)
	}
}

// ReadFrom implements [io.ReaderFrom] with Write. The writer behind would send what it reads
// without recording it.
func (rec *Recorder) ReadFrom(r io.Reader) (int64, error) {
	chunk := copyBuffers.Get().(*[copyBufferSize]byte)
	defer copyBuffers.Put(chunk)
	return io.CopyBuffer(struct{ io.Writer }{rec}, struct{ io.Reader }{r}, chunk[:])
}

const copyBufferSize = 32 << 10

var copyBuffers = sync.Pool{New: func() any { return new([copyBufferSize]byte) }}

// Flush implements [http.Flusher].
func (rec *Recorder) Flush() { _ = rec.FlushError() }

// FlushError sends what has been written so far. From then on bytes go out as they are
// written. They are still kept: the answer is recorded when the run ends. Where no writer
// behind can flush, it returns [http.ErrNotSupported] and changes nothing.
func (rec *Recorder) FlushError() error {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if rec.closed {
		return errHandlerReturned
	}
	if rec.held {
		return errHeldBack
	}
	if rec.mode == buffering && !canFlush(rec.w) {
		return errNoFlush
	}
	if !rec.wroteHeader {
		rec.writeHeader(http.StatusOK)
	}
	if rec.mode == buffering {
		rec.startTeeing()
	}
	if rec.clientGone {
		return nil
	}
	if err := http.NewResponseController(rec.w).Flush(); err != nil {
		if errors.Is(err, http.ErrNotSupported) {
			return err
		}
		rec.clientGone = true
	}
	return nil
}

// Hijack returns [http.ErrNotSupported]: an answer sent on a bare connection cannot be
// recorded.
func (rec *Recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return nil, nil, http.ErrNotSupported
}

// CloseNotify serves frameworks that still ask for it. The channel never gets a value, because a
// run outlives its client.
func (rec *Recorder) CloseNotify() <-chan bool { return nil }

// SetReadDeadline serves [http.ResponseController].
func (rec *Recorder) SetReadDeadline(t time.Time) error {
	return http.NewResponseController(rec.w).SetReadDeadline(t)
}

// SetWriteDeadline serves [http.ResponseController].
func (rec *Recorder) SetWriteDeadline(t time.Time) error {
	return http.NewResponseController(rec.w).SetWriteDeadline(t)
}

// EnableFullDuplex serves [http.ResponseController].
func (rec *Recorder) EnableFullDuplex() error {
	return http.NewResponseController(rec.w).EnableFullDuplex()
}
