package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"example.com/idempotency"
)

// A database stands for one that survives the processes which use it: a table of events, the
// inbox; a table of accounts; and the store of the guard. Each method is one transaction.
type database struct {
	records *idempotency.MemoryStore

	mu       sync.Mutex
	inbox    []*row // in the order in which they came
	accounts map[string]account
	applied  map[string]bool // IDs of runs; a unique constraint
	changed  chan struct{}   // wakes those who wait for a change
}

// A row is an event of the inbox. Sender and name are unique together.
type row struct {
	sender, name string
	body         []byte
	state        rowState
	failure      error
	received     time.Time
}

type rowState int

const (
	pending rowState = iota
	done
	parked // for somebody to look at
)

// An account is the state that the events of one sender change.
type account struct {
	applied int // events
	balance int // the sum of all amounts
	plan    string
	version int // of the event that the plan is from, which may not be the last one to arrive
}

func newDatabase() *database {
	return &database{
		records:  idempotency.NewMemoryStore(),
		accounts: make(map[string]account),
		applied:  make(map[string]bool),
		changed:  make(chan struct{}),
	}
}

// store is INSERT INTO inbox … ON CONFLICT (sender, name) DO NOTHING.
func (db *database) store(sender, name string, body []byte) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if slices.ContainsFunc(db.inbox, func(r *row) bool { return r.sender == sender && r.name == name }) {
		return nil
	}
	db.inbox = append(db.inbox, &row{sender: sender, name: name, body: body, received: time.Now()})
	db.wake()
	return nil
}

// pending returns the rows that are still to be handled.
func (db *database) pending() (rows []row) {
	db.mu.Lock()
	defer db.mu.Unlock()
	for _, r := range db.inbox {
		if r.state == pending {
			rows = append(rows, *r)
		}
	}
	return rows
}

// set marks a row as done, or as parked.
func (db *database) set(r row, state rowState, failure error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	for _, stored := range db.inbox {
		if stored.sender == r.sender && stored.name == r.name {
			stored.state, stored.failure = state, failure
		}
	}
	db.wake()
}

// purge deletes rows that are done. Keep them for as long as the sender redelivers: a row that is
// gone is an event that nobody knows.
func (db *database) purge(sender string, olderThan time.Time) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.inbox = slices.DeleteFunc(db.inbox, func(r *row) bool {
		return r.state == done && r.sender == sender && r.received.Before(olderThan)
	})
}

// apply changes an account by an event. The ID of the run is unique, so a run that dies between
// this commit and its record does not count twice.
func (db *database) apply(run, name string, e event) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.applied[run] {
		return
	}
	db.applied[run] = true
	a := db.accounts[name]
	a.applied++
	// Amounts add up in any order.
	a.balance += e.Amount
	// A plan is replaced, and the latest one counts, not the last to arrive:
	// UPDATE accounts SET plan = $1, version = $2 WHERE name = $3 AND version < $2.
	if e.Version > a.version {
		a.plan, a.version = e.Plan, e.Version
	}
	db.accounts[name] = a
}

func (db *database) account(name string) account {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.accounts[name]
}

// wake wakes those who wait for a change. The caller holds the lock.
func (db *database) wake() {
	close(db.changed)
	db.changed = make(chan struct{})
}

// change returns a channel that is closed at the next change.
func (db *database) change() <-chan struct{} {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.changed
}

// settled waits until no row is pending.
func (db *database) settled(ctx context.Context) error {
	for {
		change := db.change()
		if len(db.pending()) == 0 {
			return nil
		}
		select {
		case <-change:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
