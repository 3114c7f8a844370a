package storetest

import (
	"context"
	"errors"
	"time"

	"example.com/idempotency/store"
)

// The transactions of a naiveStore, and the rows of the program.

// JoinsTransactions marks the store.
func (s *naiveStore) JoinsTransactions() {}

type naiveTransactions struct{ *naiveStore }

func (s naiveTransactions) Exclusive() bool { return false }

func (s naiveTransactions) Has(_ context.Context, row string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rows[row], nil
}

func (s naiveTransactions) Begin(_ context.Context, key string, o store.Owner) (Tx, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	tx := &naiveTx{s: s.naiveStore, key: key, owner: o, state: store.TxOpen}
	_, err := s.owned(context.Background(), "Begin", key, o, store.Claimed)
	tx.began = err == nil
	return tx, nil
}

type naiveTx struct {
	s       *naiveStore
	key     string
	owner   store.Owner
	rows    []string
	state   store.TxState
	began   bool // as the owner
	spoiled bool
}

func (tx *naiveTx) State() store.TxState { return tx.state }
func (tx *naiveTx) MaySaveStep() error   { return nil }

func (tx *naiveTx) Insert(_ context.Context, row string) error {
	tx.rows = append(tx.rows, row)
	if tx.s.is("rows are there before the commit") {
		tx.commit()
	}
	return nil
}

func (tx *naiveTx) commit() {
	for _, row := range append(tx.rows, tx.s.givenUp...) {
		tx.s.rows[row] = true
	}
}

func (tx *naiveTx) Ready(context.Context) error {
	tx.state = store.TxReady
	return nil
}

func (tx *naiveTx) GiveUp(ctx context.Context) error {
	tx.state = store.TxGivenUp
	if tx.s.is("what was given up is committed with the next") {
		tx.s.givenUp = tx.rows
	}
	return nil
}

func (tx *naiveTx) Spoil(context.Context) error {
	tx.spoiled = true
	return nil
}

func (tx *naiveTx) Rollback(context.Context) error {
	if tx.s.is("a rollback commits") {
		tx.commit()
	}
	return nil
}

func (tx *naiveTx) Complete(ctx context.Context, c store.Completion) error {
	s := tx.s
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.owned(context.Background(), "a commit", tx.key, tx.owner, store.Claimed)
	if s.is("the owner is looked at when the transaction begins") && tx.began {
		r, err = s.find(tx.key), nil
	}
	switch {
	case err != nil:
		return err
	case tx.spoiled && s.is("a refused commit is unknown"):
		return errors.New("refused")
	case tx.spoiled:
		if s.is("a refused commit leaves its answer") {
			s.settle(tx.key, r, store.Completed, c.TTL)
		}
		return &store.RolledBackError{Err: errors.New("refused")}
	case ctx.Err() != nil:
		if s.is("a cancelled commit has rolled back what is there") {
			tx.commit()
		}
		return &store.RolledBackError{Retry: true, Err: ctx.Err()}
	}
	if s.is("a commit looks first and writes afterwards") {
		s.yield(100 * time.Microsecond)
	}
	if !s.is("a commit leaves out the record") {
		s.complete(tx.key, r, c)
	}
	if !s.is("a commit leaves out the rows") {
		tx.commit()
	}
	return nil
}

func (s naiveTransactions) StepIn(
	ctx context.Context, r store.StepRecord, step func(ctx context.Context, insert func(string) error) ([]byte, error),
) error {
	tx := &naiveTx{s: s.naiveStore}
	if s.is("a step is recorded before its rows") {
		_ = s.SaveStep(ctx, r.Key, r.Owner, r.Name, nil)
	}
	value, err := step(ctx, func(row string) error { return tx.Insert(ctx, row) })
	if err != nil && !s.is("a step that fails is committed") {
		return err
	}
	if r.Key != "" || s.is("a step outside of a run needs a record") {
		if failed := s.SaveStep(ctx, r.Key, r.Owner, r.Name, value); failed != nil {
			if s.is("a step is recorded after its rows") {
				tx.commit()
			}
			return failed
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.is("a step leaves out its rows") {
		tx.commit()
	}
	return err
}
