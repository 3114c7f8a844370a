package simulation

import (
	"context"
	"log/slog"
	"runtime"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/store"
)

// This file has the processes of step programs, their death, and a store that forgets.

// SaveStep is the ledger: it sees what the store has really recorded.
func (w *world) SaveStep(ctx context.Context, key string, o store.Owner, name string, value []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.store.SaveStep(ctx, key, o, name, value)
	if err != nil || value[0] == 's' { // 's' is the mark of AtMostOnce
		return err
	}
	if first, ok := w.recorded[name]; ok && first != string(value) {
		w.errorf("%s was recorded as %q and then as %q", name, first, value)
	} else if !ok {
		w.recorded[name] = string(value)
		w.seen.recorded++
	}
	return nil
}

// A ledgerStore is the store as all processes of a world see it.
type ledgerStore struct {
	idempotency.Store
	*world
}

// process returns a process that is alive.
func (w *world) process() *programProcess {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.current == nil || w.current.dead {
		st := guardtest.StepFaultStore{FaultStore: &guardtest.FaultStore{Behind: ledgerStore{w.store, w}}}
		guard, err := idempotency.New(st, guardtest.TenantScope,
			idempotency.WithLease(programLease), idempotency.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			w.t.Fatal(err)
		}
		w.current = &programProcess{store: st, guard: guard}
		w.all = append(w.all, w.current)
	}
	return w.current
}

// crash ends a process as far as the store can tell, and the goroutine it happens on.
func (w *world) crash(p *programProcess) {
	w.mu.Lock()
	p.dead = true
	w.excuse(nil)
	w.mu.Unlock()
	p.store.Replace(deadStore{})
	runtime.Goexit()
}

// forget lets the store lose the record, unless it has the answer.
func (w *world) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.forgot || w.answer != "" {
		return
	}
	w.forgot, w.attempt, w.recorded = true, 0, map[string]string{}
	w.seen.forgotten++
	w.store = idempotency.NewMemoryStore()
	w.current.store.Replace(ledgerStore{w.store, w})
}

// excuse says that nobody who lives knows of steps whose record was forgotten, but for those that a run has reached.
func (w *world) excuse(reached map[string]bool) {
	for name := range w.once {
		if w.forgot && !reached[name] {
			w.excused[name] = true
		}
	}
}

// A deadStore is the store as a dead process reaches it.
type deadStore struct{}

func (deadStore) Claim(context.Context, string, store.Claim) (store.Record, error) {
	return store.Record{}, guardtest.ErrDown
}
func (deadStore) Renew(context.Context, string, store.Owner) error { return guardtest.ErrDown }
func (deadStore) Complete(context.Context, string, store.Owner, store.Completion) error {
	return guardtest.ErrDown
}

func (deadStore) Release(context.Context, string, store.Owner, store.Release) error {
	return guardtest.ErrDown
}
func (deadStore) Hold(context.Context, string, store.Owner, []byte) error { return guardtest.ErrDown }
func (deadStore) SaveStep(context.Context, string, store.Owner, string, []byte) error {
	return guardtest.ErrDown
}
