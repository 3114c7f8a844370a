package sqlitestore

import (
	"context"
	"database/sql"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/store"
)

// UseDriver makes the stores of this process use the driver of that name.
func UseDriver(name string) { driverName = name }

// SetPatience sets how long a transaction outside of a run waits.
func (s *Store) SetPatience(d time.Duration) { s.patience = d }

// SetJoinWithin sets how long a claim is a transaction that nobody has joined.
func (s *Store) SetJoinWithin(d time.Duration) { s.joinWithin = d }

// IsLocked reports whether a call has the open claim of a key.
func (s *Store) IsLocked(key string) bool {
	c, ok := s.opened.Load(key)
	free := !ok || c.(*openClaim).mu.TryLock()
	if ok && free {
		c.(*openClaim).mu.Unlock()
	}
	return !free
}

// Reader returns the connections that read.
func (s *Store) Reader() *sql.DB { return s.read }

// A JoinedTx is the transaction of a run.
type JoinedTx struct{ *joinedTx }

// Begin begins the transaction of a run, as InTx does.
func (s *Store) Begin(ctx context.Context, key string, o store.Owner) (JoinedTx, error) {
	t, err := s.begin(ctx, new(idempotency.Operation), key, o)
	return JoinedTx{t}, err
}

// Exec runs a statement of the function.
func (t JoinedTx) Exec(ctx context.Context, query string, args ...any) error {
	_, err := t.tx.ExecContext(ctx, query, args...)
	return err
}

// Ready says that the function has succeeded.
func (t JoinedTx) Ready(ctx context.Context) error { return t.ready(ctx) }

// GiveUp says that the function has failed.
func (t JoinedTx) GiveUp(context.Context) error {
	t.leave()
	return nil
}

// WithPatience sets how long Open and a transaction outside of a run wait.
func WithPatience(d time.Duration) Option { return func(c *config) { c.patience = d } }

// Faults returns what is wrong with a file on a disk with so many free bytes, which may not be written if err is not nil, and
// of whose log so many bytes wait.
func Faults(free int64, err error, waits int64) []error {
	return (&state{disk{true, 1 << 40, free, err}, waits}).faults()
}
