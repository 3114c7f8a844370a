package sqlitestore

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"example.com/idempotency/internal/sqlrecord"
	"example.com/idempotency/store"
)

// joinWithin is how long a claim is a transaction that its handler has not joined. Every other process has to
// wait for so long, and cannot say so.
const joinWithin = 20 * time.Millisecond

// An openClaim is a claim that is no record yet, but a transaction that has the writer. Other processes do
// not see it. It becomes a record by the commit of the run, or earlier if a call needs one.
type openClaim struct {
	store   *Store
	key     string
	row     sqlrecord.Row // that it makes
	late    *time.Timer   // makes it a record
	awaited atomic.Bool   // somebody of this process waits for the run

	mu     sync.Mutex
	conn   *sql.Conn // nil when the handler has the transaction, or it was rolled back
	tx     *sql.Tx
	joined bool // the handler has the transaction
	gap    bool // it has ended once, and another process may have run since
	over   bool // it is a record, or nothing
}

// seize begins a transaction that outlives ctx.
func (s *Store) seize(ctx context.Context) (*sql.Conn, *sql.Tx, error) {
	conn, err := s.write.Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	tx, err := conn.BeginTx(context.WithoutCancel(ctx), nil) // it does not wait
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	return conn, tx, nil
}

// claimOpen claims a key by a transaction. A record without a state says that the key has one.
func (s *Store) claimOpen(ctx context.Context, key string, claim store.Claim) (out store.Record, err error) {
	conn, tx, err := s.seize(ctx)
	if err != nil {
		return out, err
	}
	at := now()
	c := &openClaim{store: s, key: key, row: sqlrecord.New(claim, at), conn: conn, tx: tx}
	c.row.SealedKey, c.row.Tags = bytes.Clone(claim.SealedKey), slices.Clone(claim.Tags)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.late = time.AfterFunc(s.joinWithin, c.isLate)
	if _, err = look(ctx, tx, lookSQL, key); errors.Is(err, store.ErrNotFound) {
		other, has := s.opened.LoadOrStore(key, c)
		if out = other.(*openClaim).meet(&claim, at); !has {
			return out, nil
		}
	}
	c.end()
	return out, nil
}

// meet is what a claim finds that comes while the key is claimed by a transaction of this process.
func (c *openClaim) meet(claim *store.Claim, at sqlrecord.Moment) store.Record {
	out := c.row.See(at)
	out.Lease, out.TTL = max(out.Lease, time.Second), max(out.TTL, time.Second) // the run lives
	if out.Owner == claim.Owner {
		out.Mine, out.Blank, out.MayBeLost = true, true, true
	} else if claim.Watch {
		c.awaited.Store(true)
	}
	return out
}

// openOf returns the open claim of an owner, locked, or nil if there is none or the handler has its transaction.
func (s *Store) openOf(key string, o store.Owner) *openClaim {
	found, ok := s.opened.Load(key)
	if !ok {
		return nil
	}
	c := found.(*openClaim)
	c.mu.Lock()
	if c.row.Owner == o && !c.over && !c.joined {
		return c
	}
	c.mu.Unlock()
	return nil
}

// find returns the row of the key, which is another's, or a new one of the run.
func (c *openClaim) find(ctx context.Context, tx *sql.Tx) (sqlrecord.Row, error) {
	r, err := look(ctx, tx, lookSQL, c.key)
	if errors.Is(err, store.ErrNotFound) {
		r, err = c.row, nil
		r.Watched = c.awaited.Load()
	}
	return r, err
}

// change makes the claim a record that decide has changed. If that fails, the claim has no transaction any more.
func (c *openClaim) change(ctx context.Context, decide func(*sqlrecord.Row, sqlrecord.Moment) (bool, error)) (err error) {
	conn, tx := c.conn, c.tx
	c.conn, c.tx, c.gap = nil, nil, true
	if tx == nil {
		if conn, tx, err = c.store.seize(ctx); err != nil {
			return err
		}
	}
	defer func() {
		_ = tx.Rollback()
		_ = conn.Close()
	}()
	return c.write(ctx, tx, decide)
}

// write makes the claim a record by a commit of the transaction.
func (c *openClaim) write(ctx context.Context, tx *sql.Tx, decide func(*sqlrecord.Row, sqlrecord.Moment) (bool, error)) error {
	r, err := c.find(ctx, tx)
	if err != nil {
		return err
	}
	changed, err := decide(&r, now())
	switch {
	case errors.Is(err, store.ErrNotOwner), err == nil && !changed: // it is another's, or an earlier try has made it
		c.forget()
		return err
	case err != nil:
		return err
	}
	if err = put(ctx, tx, c.key, &r); err == nil {
		err = c.store.commit(tx)
		c.committed(err)
	}
	return err
}

// committed says how a commit of the run has ended. One in doubt is looked for when the claim is given back.
func (c *openClaim) committed(err error) {
	if err == nil {
		c.forget()
	}
}

// lentCommitted is committed for the transaction that the handler has.
func (c *openClaim) lentCommitted(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.committed(err)
}

// renew is a change that makes the claim a record, and nothing else.
func (c *openClaim) renew(r *sqlrecord.Row, now sqlrecord.Moment) (bool, error) {
	return r.Renew(c.row.Owner, now)
}

// isLate ends the transaction of a claim whose handler has not joined it.
func (c *openClaim) isLate() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over || c.joined {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if c.change(ctx, c.renew) != nil {
		c.end()
	}
}

// lendOpen gives the handler of an owner the transaction that is its claim, which is nil if the claim is a record.
func (s *Store) lendOpen(ctx context.Context, key string, o store.Owner) (c *openClaim, conn *sql.Conn, tx *sql.Tx, err error) {
	found := s.openOf(key, o)
	if found == nil {
		return nil, nil, nil, nil
	}
	defer found.mu.Unlock()
	if conn, tx, err = found.lend(ctx); tx != nil {
		c = found
	}
	return c, conn, tx, err
}

// endOpen rolls back the open claim of an owner, if there is one.
func (s *Store) endOpen(key string, o store.Owner) {
	if c := s.openOf(key, o); c != nil {
		defer c.mu.Unlock()
		c.end()
	}
}

// lend gives the transaction to the handler, or makes the claim a record if it has none.
func (c *openClaim) lend(ctx context.Context) (conn *sql.Conn, tx *sql.Tx, err error) {
	if c.tx == nil {
		return nil, nil, c.change(ctx, c.renew)
	}
	c.late.Stop()
	conn, tx = c.conn, c.tx
	c.conn, c.tx, c.joined = nil, nil, true
	return conn, tx, nil
}

// secure makes the claim a record by a commit of the transaction that its handler has had.
func (c *openClaim) secure(ctx context.Context, tx *sql.Tx) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.write(ctx, tx, c.renew)
}

// resume takes the connection back from a handler whose transaction has ended. One that was rolled back begins
// anew at once, so that no request of this process comes in between.
func (c *openClaim) resume(conn *sql.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.joined, c.gap = false, true
	if !c.over {
		c.late.Reset(c.store.joinWithin)
		if tx, err := conn.BeginTx(context.Background(), nil); err == nil {
			c.conn, c.tx = conn, tx
			return
		}
	}
	_ = conn.Close()
}

// dropOpen drops the open claim of an owner, if there is one.
func (s *Store) dropOpen(ctx context.Context, key string, o store.Owner) bool {
	c := s.openOf(key, o)
	if c == nil {
		return false
	}
	defer c.mu.Unlock()
	return c.drop(ctx)
}

// drop ends a claim under which nothing was done, and reports whether that leaves nothing. Who waits must not
// run in its place, and finds a record. What another process may have done is not denied.
func (c *openClaim) drop(ctx context.Context) bool {
	if c.awaited.Load() || c.gap && c.tx == nil {
		return false
	}
	if c.gap {
		if _, err := look(ctx, c.tx, lookSQL, c.key); !errors.Is(err, store.ErrNotFound) {
			return false
		}
	}
	c.end()
	return true
}

// end rolls back whatever is open.
func (c *openClaim) end() {
	if c.tx != nil {
		_ = c.tx.Rollback()
		_ = c.conn.Close()
	}
	c.forget()
}

// forget says that the claim is a record, or nothing.
func (c *openClaim) forget() {
	c.over = true
	c.late.Stop()
	c.store.opened.CompareAndDelete(c.key, c)
	c.store.watch.Wake(c.key)
}
