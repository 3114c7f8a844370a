package idempotency

import (
	"fmt"
	"strconv"
	"sync"

	"example.com/idempotency/internal/stepcall"
)

// The idempotency keys of the calls that package client makes inside a step.

// stepCalls counts the calls of a step that package client makes a key for.
type stepCalls struct {
	mu    sync.Mutex
	n     int
	going bool
}

var _ stepcall.Step = (*stepContext)(nil)

// BeginCall returns the key of the step's next call. It is the key that [DeriveKey] returns for
// the name of the step, a number sign and the number of the call, so a resolver can make it too.
func (c *stepContext) BeginCall() (key string, resumed bool, err error) {
	c.calls.mu.Lock()
	defer c.calls.mu.Unlock()
	if c.calls.going {
		return "", false, fmt.Errorf("%w: step %q: the next attempt cannot tell two calls at once apart; give each a key of its own",
			ErrStepMisuse, c.name)
	}
	c.calls.going = true
	c.calls.n++
	return c.intent.deriveKey(c.name + "#" + strconv.Itoa(c.calls.n)), c.resumed, nil
}

// EndCall lets the next call begin.
func (c *stepContext) EndCall() {
	c.calls.mu.Lock()
	defer c.calls.mu.Unlock()
	c.calls.going = false
}
