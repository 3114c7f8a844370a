package sqlrecord

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"example.com/idempotency/store"
)

// MaxValue is the longest answer or step. SQLite takes no row of a gigabyte, and PostgreSQL no value
// and no message.
const MaxValue = 512 << 20

// A Caller makes the calls of a store, and says what their errors mean.
type Caller struct {
	// Package is that of the store, which its errors name.
	Package string
	// InTheWay reports whether a call has failed because of another transaction. It is made again.
	InTheWay func(error) bool
	// Pause and MaxPause are the first and the longest pause before that.
	Pause, MaxPause time.Duration
	// Meaning returns the error of the contract that an error of the database stands for, or nil.
	Meaning func(error) error
}

// sentinels are the errors of the contract, which go to the caller as they are.
var sentinels = []error{
	store.ErrNotFound, store.ErrNotOwner, store.ErrChanged, store.ErrTooLarge,
	store.ErrFull, store.ErrCorrupt, store.ErrUnreadableHere, store.ErrTransactionOpen,
}

// Try makes one call, again and again while another transaction is in the way.
func (c *Caller) Try(ctx context.Context, call string, f func() error) error {
	for pause := c.Pause; ; pause = min(2*pause, c.MaxPause) {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := f()
		if !c.InTheWay(err) {
			return c.Wrap(call, err)
		}
		select {
		case <-ctx.Done():
			return c.Wrap(call, errors.Join(ctx.Err(), err))
		case <-time.After(pause):
		}
	}
}

// Wrap says which call has failed, and adds what the error means.
func (c *Caller) Wrap(call string, err error) error {
	if err == nil || slices.ContainsFunc(sentinels, func(s error) bool { return errors.Is(err, s) }) {
		return err
	}
	if meaning := c.Meaning(err); meaning != nil {
		return fmt.Errorf("%w: %w", meaning, err)
	}
	return fmt.Errorf("%s: %s: %w", c.Package, call, err)
}
