package guardtest

import (
	"context"
	"errors"
	"sync"

	"example.com/idempotency"
	"example.com/idempotency/adapter"
	"example.com/idempotency/store"
)

// A TxStore is a store whose records share a database with rows of the program: a commit makes
// both durable in one step, or neither. Beside the calls of a [StepFaultStore], faults can hit
// those named begin, commit and rollback.
type TxStore struct {
	StepFaultStore
	// Inline says that calls of the store are made by the caller's own goroutine.
	Inline bool
	// Exclusive is why no step can be saved while a transaction is open, or nil.
	Exclusive error
	// Forgets says that the store may forget claims that allow it.
	Forgets bool

	mu   sync.Mutex
	rows []string
}

// NewTxStore returns an empty database.
func NewTxStore() *TxStore { return &TxStore{StepFaultStore: NewStepFaultStore()} }

// JoinsTransactions marks the store.
func (s *TxStore) JoinsTransactions() {}

// ObeysContext returns Inline.
func (s *TxStore) ObeysContext() bool { return s.Inline }

// Claim tells what the store may forget.
func (s *TxStore) Claim(ctx context.Context, key string, c store.Claim) (store.Record, error) {
	r, err := s.StepFaultStore.Claim(ctx, key, c)
	r.MayBeLost = s.Forgets && c.MayBeLost && r.Mine
	return r, err
}

// Rows returns what was committed.
func (s *TxStore) Rows() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.rows...)
}

// A Tx is a transaction of a [TxStore].
type Tx struct {
	store *TxStore
	key   string
	owner store.Owner

	mu      sync.Mutex
	rows    []string
	state   store.TxState
	spoiled bool

	endedAlone bool
}

// ErrTxEnded is what a transaction says that has ended.
var ErrTxEnded = errors.New("transaction has ended")

// Begin begins the transaction of the run that ctx belongs to.
func (s *TxStore) Begin(ctx context.Context) (*Tx, error) {
	op, ok := idempotency.FromContext(ctx)
	if !ok {
		return &Tx{store: s}, nil
	}
	var tx *Tx
	err := adapter.Join(ctx, op, s, func(key string, o store.Owner) (store.Transaction, error) {
		err := s.Call(ctx, "begin", func(idempotency.Store) error { return nil })
		tx = s.BeginFor(key, o)
		return tx, err
	})
	return tx, err
}

// BeginFor begins the transaction of an owner's run.
func (s *TxStore) BeginFor(key string, o store.Owner) *Tx {
	return &Tx{store: s, key: key, owner: o}
}

// InTx runs f in the transaction of the run, and wishes to commit it if f returns nil.
func (s *TxStore) InTx(ctx context.Context, f func(tx *Tx) error) error {
	tx, err := s.Begin(ctx)
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		tx.GiveUp()
		return err
	}
	return tx.Commit()
}

// Insert adds a row.
func (tx *Tx) Insert(row string) error {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.state != store.TxOpen {
		return ErrTxEnded
	}
	tx.rows = append(tx.rows, row)
	return nil
}

// Commit says that the transaction is to be committed with the record, or commits it if it has
// none.
func (tx *Tx) Commit() error {
	if tx.key == "" {
		return tx.CommitAlone()
	}
	return tx.end(store.TxReady)
}

// EndAlone ends a transaction for which Commit was called, with its rows or without them. The store
// learns it when it completes the record.
func (tx *Tx) EndAlone(commits bool) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	tx.endedAlone = true
	tx.store.mu.Lock()
	defer tx.store.mu.Unlock()
	if commits {
		tx.store.rows = append(tx.store.rows, tx.rows...)
	}
}

// CommitAlone commits the rows without the record.
func (tx *Tx) CommitAlone() error {
	if err := tx.end(store.TxCommitted); err != nil {
		return err
	}
	tx.store.mu.Lock()
	defer tx.store.mu.Unlock()
	tx.store.rows = append(tx.store.rows, tx.rows...)
	return nil
}

// GiveUp rolls the transaction back, unless it has ended.
func (tx *Tx) GiveUp() { _ = tx.end(store.TxGivenUp) }

// Refuse rolls the transaction back although the handler wants its commit.
func (tx *Tx) Refuse() { _ = tx.end(store.TxRefused) }

func (tx *Tx) end(state store.TxState) error {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.state != store.TxOpen {
		return ErrTxEnded
	}
	tx.state = state
	return nil
}

// State returns how far the handler came.
func (tx *Tx) State() store.TxState {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	return tx.state
}

// MaySaveStep returns the store's Exclusive, unless the transaction has ended.
func (tx *Tx) MaySaveStep() error {
	if s := tx.State(); s == store.TxOpen || s == store.TxReady {
		return tx.store.Exclusive
	}
	return nil
}

// Spoil makes the commit fail.
func (tx *Tx) Spoil() {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	tx.spoiled = true
}

// Hold is the call "hold". No transaction is committed afterwards.
func (s *TxStore) Hold(ctx context.Context, key string, o store.Owner, note []byte) error {
	return s.Call(ctx, "hold", func(behind idempotency.Store) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		return behind.Hold(context.WithoutCancel(ctx), key, o, note)
	})
}

// ErrSpoiled is why the commit of a spoiled transaction has failed.
var ErrSpoiled = errors.New("a constraint is violated")

// Complete is the call "commit".
func (tx *Tx) Complete(ctx context.Context, c store.Completion) error {
	s := tx.store
	return s.Call(ctx, "commit", func(behind idempotency.Store) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if i, ok := behind.(store.Inspector); ok {
			rec, err := i.Get(context.WithoutCancel(ctx), tx.key)
			if err == nil && rec.State == store.Held {
				return store.ErrNotOwner
			}
		}
		if tx.endedAlone {
			return store.ErrCommittedAlone
		}
		if tx.spoiled {
			return &store.RolledBackError{Err: ErrSpoiled}
		}
		err := behind.Complete(context.WithoutCancel(ctx), tx.key, tx.owner, c)
		if err == nil {
			s.rows = append(s.rows, tx.rows...)
		}
		return err
	})
}

// Rollback is the call "rollback".
func (tx *Tx) Rollback(ctx context.Context) error {
	return tx.store.Call(ctx, "rollback", func(idempotency.Store) error {
		if tx.endedAlone {
			return store.ErrCommittedAlone
		}
		return nil
	})
}

// StepTx runs f as a step whose rows and record one commit makes durable. That is the call
// step-commit. After a deadlock it is tried again.
func StepTx[T any](ctx context.Context, s *TxStore, name string, f func(ctx context.Context, tx *Tx) (T, error)) (T, error) {
	var tx *Tx
	return adapter.StepIn(ctx, s, name, func(ctx context.Context, r store.StepRecord, work func(context.Context) ([]byte, error)) error {
		try := func() error {
			return s.TryStep(ctx, r, func(ctx context.Context, of *Tx) ([]byte, error) {
				tx = of
				return work(ctx)
			})
		}
		err := try()
		if errors.Is(err, ErrDeadlock) {
			err = try()
		}
		return err
	}, func(ctx context.Context) (T, error) { return f(ctx, tx) })
}

// TryStep makes one try of a step.
func (s *TxStore) TryStep(ctx context.Context, r store.StepRecord, work func(context.Context, *Tx) ([]byte, error)) error {
	if err := s.Call(ctx, "begin", func(idempotency.Store) error { return nil }); err != nil {
		return &store.RolledBackError{Err: err}
	}
	tx := &Tx{store: s}
	stored, err := work(ctx, tx)
	if tx.endedAlone {
		return errors.Join(store.ErrCommittedAlone, err)
	}
	if err != nil {
		return err
	}
	return s.Call(ctx, "step-commit", func(behind idempotency.Store) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if r.Key != "" {
			if err := behind.(store.StepStore).SaveStep(context.WithoutCancel(ctx), r.Key, r.Owner, r.Name, stored); err != nil {
				return err
			}
		}
		s.rows = append(s.rows, tx.rows...)
		return nil
	})
}

// ErrDeadlock is what a commit says of a conflict that is worth another try at once.
var ErrDeadlock = errors.New("deadlock")

var (
	_ store.TxStore     = (*TxStore)(nil)
	_ store.Transaction = (*Tx)(nil)
)
