package pgstore

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// WithOneCommit makes the claim of a new key the beginning of the run's own transaction, in runs under
// [idempotency.WithTransaction]: claim, rows and answer are one commit. A run whose process dies leaves
// nothing, and the key is free as soon as PostgreSQL has ended its connection. Without the option, the
// claim is a commit of its own, and a run that dies blocks its key until its lease ends.
//
// The level is that of the transaction; the empty one is the default of the database. [New] refuses a level
// that PostgreSQL does not have. [Store.InTx], [Store.Begin] and, on a database that [OpenDB] has opened on the
// same pool, [Store.InSQLTx] take the transaction if they are called with that level and no other options. A run
// that does anything else gets a claim of the usual kind first: one that calls them with other options or on
// another database, or [StepTx], takes a step, learns its
// [idempotency.Operation.ID] or an [idempotency.DeriveKey], or has not joined when a third of its lease is
// over. One whose function fails gets it before the rollback, and keeps its key until the handler returns. In the open transaction a step is refused with [store.ErrTransactionOpen], and an ID does not make
// the claim durable: learn one that leaves the database before.
//
// A run holds a connection of the pool from its claim on. A quarter of the pool is left to others: when the
// rest is taken, or all of the pool is by others, claims are of the usual kind. [New] refuses a pool of one connection. The transaction may be idle for no longer than the lease.
func WithOneCommit(level pgx.TxIsoLevel) Option { return func(c *config) { c.oneCommit = &level } }

// oneCommitLevel returns the level at which claims are transactions, and "" for a store without them.
func oneCommitLevel(c *config, byDefault string, conns int32) (pgx.TxIsoLevel, error) {
	switch {
	case c.oneCommit == nil:
		return "", nil
	case conns < 2:
		return "", errors.New("WithOneCommit: the pool needs two connections at least, one for others than the run that holds one")
	}
	level := cmp.Or(*c.oneCommit, pgx.TxIsoLevel(byDefault))
	switch level {
	case pgx.ReadUncommitted, pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable:
		return level, nil
	default:
		return "", fmt.Errorf("WithOneCommit: PostgreSQL has no isolation level %q", level)
	}
}

// fitsOneCommit reports whether a transaction with the options is like that of an open claim.
func (s *Store) fitsOneCommit(opts pgx.TxOptions) bool {
	opts.IsoLevel = cmp.Or(opts.IsoLevel, s.usual)
	return opts == pgx.TxOptions{IsoLevel: s.oneCommit}
}

// lockOf returns the advisory lock of a key. Those of a database share one space with the locks of programs.
func (s *Store) lockOf(key string) int64 {
	sum := sha256.Sum256([]byte(s.table + "\x00" + key))
	return int64(binary.BigEndian.Uint64(sum[:]))
}
