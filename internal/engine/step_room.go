package engine

import (
	"context"
	"fmt"
)

// How many steps a record may have, and how large they may be. Requests decide how many items they have, and a
// store cannot refuse what a run brings.
const (
	maxSteps = 1000
	// stepsAtOnce is how many steps of a run may be in hand at once. Each may bring a value of maxStepValue.
	stepsAtOnce = 8
	// stepsFull is the size from which on no step begins. With those in hand, a record has at most 1 MiB of steps.
	stepsFull = 500 << 10
	// stepOverhead is what a step counts beside its name and its value.
	stepOverhead = 128
)

// A stepRoom is what the steps of a run have used: names, and room in its record.
type stepRoom struct {
	names       map[string]bool
	once        map[string][]byte // that are under AtMostOnce, and may have happened, as they are stored
	count, size int               // of the record, with the steps that this run has begun
	turns       chan struct{}     // has an element for each step in hand
}

// newStepRoom returns the room of a run that has found these steps.
func newStepRoom(found map[string][]byte) *stepRoom {
	r := &stepRoom{names: make(map[string]bool), once: make(map[string][]byte), count: len(found), turns: make(chan struct{}, stepsAtOnce)}
	for name, stored := range found {
		r.size += stepSize(name, stored)
	}
	return r
}

func stepSize(name string, stored []byte) int { return stepOverhead + len(name) + len(stored) }

// admit waits for the turn of a step and lets it begin, until leave, or returns why not. known says that the
// record has the name.
func (p *progress) admit(ctx context.Context, name string, known bool) error {
	r := p.steps
	select {
	case r.turns <- struct{}{}:
	default: // so that a step whose context is done does not depend on luck
		select {
		case r.turns <- struct{}{}:
		case <-ctx.Done():
			return fmt.Errorf("step %q was not begun: %w", name, context.Cause(ctx))
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.size >= stepsFull || !known && r.count >= maxSteps {
		p.leave()
		return fmt.Errorf("%w: step %q: its record has %d steps, %d KiB in all: none begins above %d, or %d KiB",
			ErrStepMisuse, name, r.count, r.size>>10, maxSteps, stepsFull>>10)
	}
	if !known {
		r.count++
	}
	return nil
}

// leave ends the turn of a step.
func (p *progress) leave() { <-p.steps.turns }

// charge counts what is recorded of a step.
func (p *progress) charge(name string, stored []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.steps.size += stepSize(name, stored)
}
