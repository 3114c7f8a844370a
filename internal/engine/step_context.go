package engine

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/internal/stepcall"
)

// unrecordedStep returns the context of a step of a run that has no claim: its calls still
// have derived keys. Outside of a run it is ctx itself.
func unrecordedStep(ctx context.Context, name string) context.Context {
	i, ok := intentOf(ctx)
	if !ok {
		return ctx
	}
	return &stepContext{Context: ctx, intent: i, name: name, resumed: true} // nobody knows of earlier attempts
}

// A stepContext is the context of a step's function. It holds the step: Step needs it to notice
// nesting, and package client to make the keys of its calls.
type stepContext struct {
	context.Context
	op      *Operation // nil if the step is not recorded
	intent  intent.Intent
	name    string
	resumed bool // an earlier attempt may have begun the step
	calls   stepCalls
}

func (c *stepContext) Value(key any) any {
	if key == (stepcall.ContextKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// BeginCall returns the key of the step's next call. It is the key that [DeriveKey] returns for
// the name of the step, a number sign and the number of the call, so a resolver can make it too.
func (c *stepContext) BeginCall() (key string, err error) {
	c.calls.mu.Lock()
	defer c.calls.mu.Unlock()
	if c.calls.going {
		return "", fmt.Errorf("%w: step %q: the next attempt cannot tell two calls at once apart; give each a key of its own",
			ErrStepMisuse, c.name)
	}
	c.calls.going = true
	c.calls.n++
	return c.intent.DeriveKey(c.name + "#" + strconv.Itoa(c.calls.n)), nil
}

// Resumed reports whether an earlier attempt may have begun the step.
func (c *stepContext) Resumed() bool { return c.resumed }

// EndCall lets the next call begin.
func (c *stepContext) EndCall() {
	c.calls.mu.Lock()
	defer c.calls.mu.Unlock()
	c.calls.going = false
}

// stepCalls counts the calls of a step that package client makes a key for.
type stepCalls struct {
	mu    sync.Mutex
	n     int
	going bool
}
