package engine

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"example.com/idempotency/internal/stepcall"
)

// A runContext is the context of a run. It carries the operation, and ends when the
// lease is lost and when the run is over.
//
// Most handlers look at nothing of it but the operation. So what the context package
// needs for the rest is made when somebody asks for it, and not for each run.
type runContext struct {
	op     *Operation
	parent context.Context
	follow bool // whether the end of parent is the end of the run

	watched atomic.Bool // somebody has asked whether it has ended

	mu    sync.Mutex
	made  atomic.Bool // set last, under mu: ctx and stop are set
	ctx   context.Context
	stop  context.CancelCauseFunc
	ended bool // before it was made
}

// init prepares the context of a run. It has the values and the deadline of parent, but
// not its cancellation unless follow is set: a client that hangs up must find its answer
// when it comes back.
func (c *runContext) init(parent context.Context, op *Operation, follow bool) {
	c.op, c.parent, c.follow = op, parent, follow
}

// asked returns the context that does the work.
func (c *runContext) asked() context.Context {
	if c.made.Load() {
		return c.ctx
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.made.Load() {
		return c.ctx
	}
	ctx := c.parent
	if !c.follow {
		ctx = context.WithoutCancel(ctx)
	}
	c.ctx, c.stop = context.WithCancelCause(ctx)
	if deadline, ok := c.parent.Deadline(); ok && !c.follow {
		stop := c.stop
		ctx, release := context.WithDeadlineCause(c.ctx, deadline, &outerCause{c.parent})
		c.ctx, c.stop = ctx, func(cause error) { stop(cause); release() }
	}
	if c.ended {
		c.stop(nil)
	}
	c.made.Store(true)
	return c.ctx
}

// cancel ends the context for a reason.
func (c *runContext) cancel(cause error) {
	c.asked()
	c.stop(cause)
}

// end ends the context with the run. One that nobody has asked for is not made for that.
func (c *runContext) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.made.Load() {
		c.stop(nil)
	}
	c.ended = true
}

// Deadline implements context.Context. Who asks for it may give it to a connection, which stops the run then.
func (c *runContext) Deadline() (time.Time, bool) {
	deadline, ok := c.parent.Deadline()
	if ok {
		c.watched.Store(true)
	}
	return deadline, ok
}

// Done implements context.Context.
func (c *runContext) Done() <-chan struct{} {
	c.watched.Store(true)
	return c.asked().Done()
}

// Err implements context.Context.
func (c *runContext) Err() error {
	c.watched.Store(true)
	return c.asked().Err()
}

// toldToStop reports whether the context has ended and somebody has watched it. A run that
// has detached from its context cannot have been stopped by it. A connection may have noticed the deadline just before the
// context does.
func (c *runContext) toldToStop() bool {
	if !c.watched.Load() {
		return false
	}
	deadline, ok := c.parent.Deadline()
	return ok && !time.Now().Before(deadline) || c.asked().Err() != nil
}

// Value implements context.Context. Many ask for values, and few for the end of a run: only the key by which
// [context.Cause] finds the cause needs the context that does the work.
func (c *runContext) Value(key any) any {
	switch key {
	case operationKey{}:
		return c.op
	case stepcall.ContextKey{}:
		return nil // a step around this run is not a step of it
	case intentKey{}:
		return nil // the operation has its own
	}
	if causeKey == nil || key == causeKey {
		return c.asked().Value(key)
	}
	return c.parent.Value(key)
}

// causeKey is the key by which package context looks for the context that knows a cause.
var causeKey = func() any {
	var f keyFinder
	_ = context.Cause(&f)
	return f.key
}()

// A keyFinder is a context that keeps the key that it is asked for.
type keyFinder struct {
	context.Context
	key any
}

// Value implements context.Context.
func (f *keyFinder) Value(key any) any {
	f.key = key
	return nil
}

// Err implements context.Context. What has not ended has no cause to look for.
func (f *keyFinder) Err() error { return context.Canceled }

// An outerCause is the cause of a run's end by the deadline of its caller: whatever the caller says it is.
type outerCause struct{ parent context.Context }

// Error returns the text of the cause.
func (e *outerCause) Error() string { return e.Unwrap().Error() }

// Unwrap returns the cause. It is [context.DeadlineExceeded] if the caller has gone before, and in the
// moment in which the caller's own timer has not fired yet.
func (e *outerCause) Unwrap() error {
	if errors.Is(e.parent.Err(), context.DeadlineExceeded) {
		return context.Cause(e.parent)
	}
	return context.DeadlineExceeded
}
