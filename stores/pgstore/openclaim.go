package pgstore

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/idempotency/internal/sqlrecord"
	"example.com/idempotency/store"
)

// An openClaim is a claim that is no record yet, but a transaction that holds the lock of the key. Nobody
// else sees it. It becomes a record by the commit of the run, or earlier if a call needs one.
type openClaim struct {
	store *Store
	key   string
	claim store.Claim
	lapse *time.Timer // ends what nobody asks for any more

	doubt atomic.Bool // the transaction may have been committed, or may be yet

	over atomic.Bool // the claim is a record, or nothing

	mu     sync.Mutex
	tx     *joinedTx
	joined bool // the transaction is that of the handler
}

// A runID names a run.
type runID struct {
	key   string
	owner store.Owner
}

// openOf returns the open claim of an owner, locked, or nil.
func (s *Store) openOf(key string, o store.Owner) *openClaim {
	if s.oneCommit == "" {
		return nil
	}
	found, ok := s.opened.Load(runID{key, o})
	if !ok {
		return nil
	}
	c := found.(*openClaim)
	c.mu.Lock()
	if c.over.Load() {
		c.mu.Unlock()
		return nil
	}
	return c
}

// claimOpen claims a key by an open transaction. If it is not granted, the key has the row, or is in use.
// With none of these the claim must be a record.
func (s *Store) claimOpen(ctx context.Context, key string, claim store.Claim) (out store.Record, row *seenRow, err error) {
	if c := s.openOf(key, claim.Owner); c != nil {
		defer c.mu.Unlock()
		if c.tx.hasEnded() {
			_, err := c.toRecord(ctx)
			return out, nil, err
		}
		return c.granted(), nil, nil
	}
	pool := s.business.Stat()
	if s.held.Add(1) > s.maxHeld || pool.AcquiredConns()+pool.ConstructingConns() >= pool.MaxConns() {
		s.held.Add(-1)
		return out, nil, nil
	}
	begun, err := s.beginOpen(ctx, key, &claim)
	switch {
	case err != nil:
		return out, nil, err
	case begun.tx != nil:
		c := &openClaim{store: s, key: key, claim: claim, tx: begun.tx}
		// The caller's memory may change.
		c.claim.Note, c.claim.SealedKey, c.claim.Tags = bytes.Clone(claim.Note), bytes.Clone(claim.SealedKey), slices.Clone(claim.Tags)
		begun.tx.whole = c
		c.mu.Lock()
		defer c.mu.Unlock()
		s.opened.Store(runID{key, claim.Owner}, c)
		c.lapse = time.AfterFunc(claim.Lease, c.abandon)
		if s.life.Err() != nil { // Close may not have seen it
			go c.abandon()
		}
		return c.granted(), nil, nil
	case begun.inUse:
		return s.inUseUnseen(key, claim), nil, nil
	}
	return out, begun.row, nil
}

// inUseUnseen is what a claim gets while a transaction has the key. What another run has written there, nobody
// sees.
func (s *Store) inUseUnseen(key string, claim store.Claim) store.Record {
	if claim.Watch {
		s.awaitLock(key)
	}
	return store.Record{State: store.Claimed, Attempt: 1, Fingerprint: claim.Fingerprint, Lease: time.Second, TTL: claim.Retention}
}

// isJoined reports whether the handler has the transaction, which is open.
func (c *openClaim) isJoined() bool { return c.joined && !c.tx.hasEnded() }

// granted is what the claim gets.
func (c *openClaim) granted() store.Record {
	return store.Record{
		State: store.Claimed, Mine: true, MayBeLost: true, Blank: true, Attempt: 1, Owner: c.claim.Owner, Fingerprint: c.claim.Fingerprint,
		Lease: c.claim.Lease, TTL: c.claim.Retention, Label: c.claim.Label, Notes: store.AppendNote(nil, c.claim.Note), SealedKey: c.claim.SealedKey,
	}
}

// An opening is what has come of a try to claim a key by a transaction: the transaction, or the row of the
// key, or that somebody else has the lock. On a standby it is nothing.
type opening struct {
	tx    *joinedTx
	row   *seenRow
	inUse bool
}

// beginOpen tries to claim a key by a transaction, in one round trip, or two if that fails. The caller has
// counted the connection as held.
//
// The row is read after the lock: by then, the one who had the lock has committed, or never will. At the
// stricter levels a transaction sees the moment before its lock, so a run may begin after such a commit.
// Its own commit meets the row.
func (s *Store) beginOpen(ctx context.Context, key string, claim *store.Claim) (b opening, err error) {
	conn, err := s.connect(ctx)
	if err != nil {
		s.held.Add(-1)
		return b, err
	}
	opts := pgx.TxOptions{IsoLevel: s.oneCommit}
	t := &joinedTx{tx: &lazyTx{conn: conn.Conn(), opts: opts}, store: s, conn: conn, key: key, owner: claim.Owner, holds: true}
	batch := new(pgx.Batch)
	batch.BeginTx(opts)
	batch.Queue(s.sql.openLock, s.lockOf(key), strconv.FormatInt(max(1, claim.Lease.Milliseconds()), 10))
	batch.Queue(s.sql.meet, key, claim.Fingerprint[:])
	batch.Queue("SAVEPOINT idempotency_claimed") // a statement that fails later ends what is inside it, and not the lock
	results := conn.Conn().SendBatch(ctx, batch)
	t.tx.tx = results.Tx()
	var locked bool
	var file string
	if _, err = results.Exec(); err == nil {
		err = results.QueryRow().Scan(&locked, &file, nil, nil)
	}
	if err == nil {
		b.row, err = firstRowOf(results.Query())
	}
	if err == nil {
		_, err = results.Exec()
	}
	err = errors.Join(err, results.Close())
	standby := file == inRecovery
	if err == nil && !standby {
		o := origin{timeline: file[:min(len(file), 8)]}
		if s.fence.judge(o) != nil {
			err = s.fence.admit(ctx, conn.Conn().PgConn()) // it tells the system, too
			if err != nil {
				_ = conn.Conn().Close(ctx)
			}
		}
		t.tx.judge = func() error { return s.fence.judge(o) }
	}
	t.tx.told = t.tx.isMarked()
	if err == nil && locked && !standby && b.row == nil {
		return opening{tx: t}, nil
	}
	b.inUse = b.row == nil && !standby
	_ = t.Rollback(ctx)
	return b, err
}

// toRecord makes the claim a record, while its transaction keeps others away. What the record says is for
// the caller to find out: after a transaction that has ended, it may be another's.
func (c *openClaim) toRecord(ctx context.Context) (mine bool, err error) {
	if c.isJoined() {
		return false, errOpen
	}
	r, err := c.write(ctx, c.tx.lives())
	if err == nil {
		c.end(ctx)
	}
	return r.Mine, err
}

// secure implements [wholeRun]. On failure the claim is as it was, and the next renewal makes it a record. The
// end of the transaction waits: it uses the same connection, and gives it to others.
func (c *openClaim) secure(ctx context.Context, t *joinedTx, last store.TxState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t.mu.RLock()
	defer t.mu.RUnlock()
	if c.over.Load() || c.tx != t || t.ended || t.state > last {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout) // that of a statement may be over
	defer cancel()
	_ = t.conn.Conn().Ping(ctx) // which finds out whether the connection is lost, and the lock
	for range lockTries {
		r, err := c.write(ctx, !t.conn.Conn().IsClosed())
		if err == nil && (r.Mine || r.Owner != store.Owner{}) {
			c.forget()
		}
		if c.over.Load() || err != nil || !sleep(ctx, lockPause) {
			return
		}
	}
}

// A run whose connection is lost tries so often, with such pauses, to get its key back: PostgreSQL ends the transaction,
// and frees the lock, soon after the driver has closed the connection. If another run has it, this one has lost it.
const (
	lockTries = 100
	lockPause = 10 * time.Millisecond
)

// sleep reports whether the time has passed before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// write writes the record of the claim, unless the key is another's. One in doubt is written beside whoever has the
// lock, which may be its own late commit: that meets the record.
func (c *openClaim) write(ctx context.Context, lives bool) (store.Record, error) {
	claim := c.claim
	claim.MayBeLost, claim.Watch = false, false
	return c.store.claimRow(ctx, c.key, claim, nil, c.doubt.Load() || lives)
}

// end rolls back whatever is open.
func (c *openClaim) end(ctx context.Context) {
	_ = c.tx.Rollback(ctx) // on failure the pool closes the connection
	c.forget()
}

// forget ends the claim: it is a record, or nothing. Those who wait for the key in this process need no
// connection to learn that.
func (c *openClaim) forget() {
	c.over.Store(true)
	c.lapse.Stop()
	c.store.opened.Delete(runID{c.key, c.claim.Owner})
	c.store.listener.watch.Wake(c.key)
}

// abandon ends a claim when its lease is over, unless the handler has the transaction. A run that lasts has
// made it a record by then.
func (c *openClaim) abandon() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over.Load() || c.isJoined() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), rollbackTimeout)
	defer cancel()
	c.end(ctx)
}

// joinOpen returns the transaction that is the claim of an owner, for a handler that begins one with the
// options, or nil if the claim is a record.
func (s *Store) joinOpen(ctx context.Context, key string, o store.Owner, opts pgx.TxOptions) (*joinedTx, error) {
	c := s.openOf(key, o)
	if c == nil {
		return nil, nil
	}
	defer c.mu.Unlock()
	return c.join(ctx, opts)
}

// join returns the transaction of the claim for a handler that begins one with the options, or nil if the
// claim has become a record.
func (c *openClaim) join(ctx context.Context, opts pgx.TxOptions) (*joinedTx, error) {
	if !c.store.fitsOneCommit(opts) || c.tx.hasEnded() {
		_, err := c.toRecord(ctx)
		return nil, err
	}
	c.joined = true
	c.lapse.Reset(c.claim.Retention)
	return c.tx, nil
}

// complete commits the answer of a run that has not joined. It reports false if the claim is a record now,
// which is to be completed.
func (c *openClaim) complete(ctx context.Context, done store.Completion) (bool, error) {
	if !c.joined && !c.tx.hasEnded() {
		err := c.tx.Complete(ctx, done)
		if _, ok := errors.AsType[*store.RolledBackError](err); !ok {
			return true, err
		}
	}
	_, err := c.toRecord(ctx)
	return err != nil, err
}

// record implements [wholeRun].
func (c *openClaim) record(done store.Completion) (sql string, args []any) {
	cl := &c.claim
	args = []any{
		c.key, cl.Fingerprint[:], cl.Owner[:], cl.Hold, cl.HoldEnds, int64(sqlrecord.Blank),
		sqlrecord.Micros(cl.Lease), sqlrecord.Micros(cl.Retention), sqlrecord.Micros(done.TTL),
		cl.Label, sqlrecord.Full(store.AppendNote(nil, cl.Note)), sqlrecord.Full(cl.SealedKey),
		int64(done.Status), sqlrecord.Full(done.Answer),
	}
	if len(cl.Tags) > 0 {
		return c.store.sql.wholeTagged, appendTags(args, cl.Tags)
	}
	return c.store.sql.whole, args
}

// committed implements [wholeRun].
func (c *openClaim) committed(err error) {
	_, undone := errors.AsType[*store.RolledBackError](err)
	switch {
	case err == nil, errors.Is(err, store.ErrNotOwner):
		c.forget()
		c.store.met.add(c.key)
	case !undone && !errors.Is(err, store.ErrCommittedAlone):
		c.doubt.Store(true)
	}
}

// renew keeps the claim. It reports false if the claim is a record that is to be renewed.
func (c *openClaim) renew(ctx context.Context) (bool, error) {
	if c.isJoined() {
		return true, nil
	}
	mine, err := c.toRecord(ctx)
	return mine || err != nil, err
}

// release gives the claim back. It reports false if the claim is a record that is to be released.
func (c *openClaim) release(ctx context.Context, rel store.Release) (bool, error) {
	if !c.joined && !rel.Undone { // the key must not be free in between
		_, err := c.toRecord(ctx)
		return err != nil, err
	}
	lived := c.tx.rollsBack(ctx) // it waits for a commit that is under way
	switch {
	case c.doubt.Load() || !rel.Undone:
		_, err := c.toRecord(ctx)
		return err != nil, err
	case !lived:
		return c.releaseLost(ctx)
	}
	c.forget()
	return true, nil
}

// releaseLost gives a claim back whose transaction has ended before. Another run may have come since: what it
// does is not to be denied.
func (c *openClaim) releaseLost(ctx context.Context) (bool, error) {
	c.store.held.Add(1)
	now, err := c.store.beginOpen(ctx, c.key, &c.claim)
	if err != nil {
		return true, err
	}
	c.forget()
	if now.tx != nil {
		return true, now.tx.Rollback(ctx)
	}
	return false, nil // there is no record of this owner
}

// needRecord makes the claim of an owner a record, if it is none yet.
func (s *Store) needRecord(ctx context.Context, key string, o store.Owner) error {
	c := s.openOf(key, o)
	if c == nil {
		return nil
	}
	defer c.mu.Unlock()
	_, err := c.toRecord(ctx)
	return err
}

// onOpen makes a call for the open claim of an owner. It reports false if there is none, or none any more.
func (s *Store) onOpen(key string, o store.Owner, call func(c *openClaim) (bool, error)) (bool, error) {
	c := s.openOf(key, o)
	if c == nil {
		return false, nil
	}
	defer c.mu.Unlock()
	return call(c)
}
