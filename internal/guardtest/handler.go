package guardtest

import (
	"context"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// A Counter is a handler that counts its runs and answers with their number.
type Counter struct {
	// Runs is the number of runs that have begun.
	Runs atomic.Int64
	// Handler answers in place of the counter, if it is set; run counts from 1.
	Handler func(w http.ResponseWriter, r *http.Request, run int64)

	byKey sync.Map // the runs of each key, as *atomic.Int64
}

// RunsOf returns the number of runs of a key that have begun.
func (c *Counter) RunsOf(key string) int64 {
	n, ok := c.byKey.Load(key)
	if !ok {
		return 0
	}
	return n.(*atomic.Int64).Load()
}

// ServeHTTP counts the run and lets Handler answer, if there is one.
func (c *Counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := c.Runs.Add(1)
	ofKey, _ := c.byKey.LoadOrStore(r.Header.Get("Idempotency-Key"), new(atomic.Int64))
	ofKey.(*atomic.Int64).Add(1)
	if c.Handler != nil {
		c.Handler(w, r, n)
		return
	}
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Location", "/charges/1")
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, `{"run":`+string(rune('0'+n))+`}`)
}

// Answering returns a handler that takes d and then answers body.
func Answering(d time.Duration, body string) *Counter {
	return &Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
		time.Sleep(d)
		_, _ = io.WriteString(w, body)
	}}
}

// PanicOf returns the value that f panics with, or nil.
func PanicOf(f func()) (value any) {
	defer func() { value = recover() }()
	f()
	return nil
}

// FailsFirst returns a handler whose first run fails after its effect.
func FailsFirst() *Counter {
	return &Counter{Handler: func(w http.ResponseWriter, _ *http.Request, run int64) {
		if run == 1 {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusCreated)
	}}
}

// Noticing returns a handler that closes gone when the server notices that the client of
// the first request has gone.
func Noticing(gone chan struct{}, next http.Handler) http.Handler {
	var once sync.Once
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stop := context.AfterFunc(r.Context(), func() { once.Do(func() { close(gone) }) })
		defer stop()
		next.ServeHTTP(w, r)
	})
}
