// Package giveup makes calls of functions that may ignore their contexts, and gives them up in
// time.
package giveup

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync/atomic"
)

// Safely returns what f returns. A panic of f is an error: in a goroutine of ours, nobody else catches it, and it would
// end the process.
func Safely(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it panicked: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}

// Call calls f in a goroutine, and returns what f returns or, if ctx ends before, the cause of
// that. The goroutine then stays until f returns. As long as it does, it is counted in left. A panic of
// f is an error.
func Call[T any](ctx context.Context, left *atomic.Int64, f func(context.Context) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	var over atomic.Bool // set by the caller or the goroutine, the faster one
	go func() {
		var r result
		defer func() {
			done <- r
			if !over.CompareAndSwap(false, true) {
				left.Add(-1)
			}
		}()
		r.err = Safely(func() (err error) {
			r.value, err = f(ctx)
			return err
		})
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
	}
	left.Add(1)
	if over.CompareAndSwap(false, true) {
		var none T
		return none, context.Cause(ctx)
	}
	left.Add(-1)
	r := <-done // both at once: the answer counts
	return r.value, r.err
}
