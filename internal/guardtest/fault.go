package guardtest

import (
	"context"
	"errors"
	"time"
)

// A Fault decides what happens to one call; proceed makes the call.
type Fault func(ctx context.Context, proceed func() error) error

// Always returns the same fault for every call.
func Always(f Fault) func(int) Fault { return func(int) Fault { return f } }

// First returns a fault for each of the first n calls.
func First(n int, f Fault) func(int) Fault { return Between(1, n, f) }

// Between returns a fault for each call from one number to another.
func Between(from, to int, f Fault) func(int) Fault {
	return func(n int) Fault {
		if from <= n && n <= to {
			return f
		}
		return nil
	}
}

// ErrDown is the error of a call that a fault refuses or loses.
var ErrDown = errors.New("store is down")

// Refuse fails before the call has any effect.
func Refuse(context.Context, func() error) error { return ErrDown }

// LoseReply executes the call and fails all the same.
func LoseReply(_ context.Context, proceed func() error) error {
	_ = proceed()
	return ErrDown
}

// Hang waits for the caller to give up.
func Hang(ctx context.Context, _ func() error) error {
	<-ctx.Done()
	return ctx.Err()
}

// Panic does what a store with a bug does.
func Panic(context.Context, func() error) error { panic("a nil map in the store") }

// Late returns a fault that executes the call after d, even if the caller has given up.
func Late(d time.Duration) Fault {
	return func(_ context.Context, proceed func() error) error {
		time.Sleep(d)
		return proceed()
	}
}

// Deaf returns a fault that returns only when the channel is closed, even if the caller has
// given up.
func Deaf(until <-chan struct{}) Fault {
	return func(context.Context, func() error) error {
		<-until
		return ErrDown
	}
}

// FailWith returns a fault that fails with err, as if the store had said it.
func FailWith(err error) Fault {
	return func(context.Context, func() error) error { return err }
}
