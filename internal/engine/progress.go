package engine

import (
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"example.com/idempotency/store"
)

// A progress is what a run has used so far: by its steps, and its transaction.
type progress struct {
	mu    sync.Mutex
	steps *stepRoom // nil until a step is taken
	inner int       // the runs in hand inside of this one
	ended bool

	tx    store.Transaction
	going bool          // a transaction is being begun
	state store.TxState // set when the run is closed; without a transaction, TxGivenUp
}

// take notes that a run that has found these steps uses a name, or returns why it must not.
func (p *progress) take(name string, found map[string][]byte) (why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.ended:
		return "the run has ended"
	case p.steps == nil:
		p.steps = newStepRoom(found)
	case p.steps.names[name]:
		return "its name is used twice in this run"
	}
	p.steps.names[name] = true
	return ""
}

// begin counts an effect that is about to begin, and reports whether it may. When the run has ended, it has been judged by
// those that were counted.
func (p *progress) begin(effects *atomic.Int32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		effects.Add(1)
	}
	return !p.ended
}

// may notes that a step which must not be repeated may have happened, and what is stored of it.
func (p *progress) may(name string, stored []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.steps.once[name] = stored
}

// not notes that such a step has not happened.
func (p *progress) not(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.steps.once, name)
}

// once returns what is stored of the steps that must not be repeated and may have happened.
func (p *progress) once() map[string][]byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.steps == nil {
		return nil
	}
	return maps.Clone(p.steps.once)
}

// hasEnded reports whether the run has ended.
func (p *progress) hasEnded() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}

// end refuses further steps and transactions, because the run is being settled, and learns what became
// of its transaction. From then on nothing changes it.
func (p *progress) end() {
	p.mu.Lock()
	p.ended = true
	tx := p.tx
	p.mu.Unlock()
	p.state = store.TxGivenUp
	if tx != nil {
		p.state = tx.State()
	}
}

// transaction returns the transaction of the run, or nil.
func (p *progress) transaction() store.Transaction {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tx
}

// contain notes that so many more runs are in hand inside of this one.
func (p *progress) contain(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inner += n
}

// reserve takes the place of the transaction.
func (p *progress) reserve(w Writer) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.ended:
		return ErrRunEnded
	case p.going, p.tx != nil && p.tx.State() != store.TxGivenUp && p.tx.State() != store.TxRefused:
		return ErrJoined
	case p.inner > 0, p.steps != nil && len(p.steps.turns) > 0:
		// What is in hand would be recorded although its rows may be rolled back with this run.
		return fmt.Errorf("%w: the transaction of the run begins while a step, or a run inside of it, is in hand: use StepTx, or the context of the inner run", ErrStepMisuse)
	case w != nil && !w.HoldBack():
		return ErrAnswerSent
	}
	p.going = true
	return nil
}

// join takes the place that was reserved, and reports whether the run has it still. A nil transaction
// gives it back. One that was given up before stays, so that it is known that there was one.
func (p *progress) join(tx store.Transaction) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return false
	}
	if p.going = false; tx != nil {
		p.tx = tx
	}
	return true
}
