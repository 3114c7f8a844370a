package pgstore_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/store"
	"example.com/idempotency/stores/pgstore"
	"example.com/idempotency/stores/pgstore/internal/pgtest"
)

// A claim of a new owner.
func newClaim() store.Claim {
	c := store.Claim{Lease: 30 * time.Second, Retention: time.Hour}
	_, _ = rand.Read(c.Owner[:])
	return c
}

// claimers lets n owners claim each of the keys at the same time, and returns how many got each.
func claimers(t *testing.T, s *pgstore.Store, keys []string, n int) map[string]int {
	t.Helper()
	var mu sync.Mutex
	won := make(map[string]int)
	var failed atomic.Pointer[error]
	guardtest.Together(n, func(int) {
		for _, key := range keys {
			r, err := s.Claim(t.Context(), key, newClaim())
			if err != nil {
				failed.Store(&err)
				return
			}
			if r.Mine {
				mu.Lock()
				won[key]++
				mu.Unlock()
			}
		}
	})
	if err := failed.Load(); err != nil {
		t.Fatal(*err)
	}
	return won
}

func keysOf(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("key-%d", i)
	}
	return keys
}

// However many claim a key, new or lapsed, one gets it.
func TestClaimHasOneWinner(t *testing.T) {
	t.Parallel()
	pool := pgtest.Shared(t).Pool(t)
	s, table := newStore(t, pool, pgstore.WithConns(32))
	keys := keysOf(300)
	for key, n := range claimers(t, s, keys, 32) {
		require.Equal(t, 1, n, key)
	}

	clock(t, pool, table)(time.Minute)
	won := claimers(t, s, keys[:200], 16)
	require.Len(t, won, 200)
	for key, n := range won {
		require.Equal(t, 1, n, key)
	}
	for _, key := range keys[:200] {
		r := guardtest.Get(t, s, key)
		require.Equal(t, 2, r.Attempt)
	}
}

// Where the default isolation is strict, conflicts roll back calls of the store. They are made
// again.
func TestStrictDefaultIsolation(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "default_transaction_isolation=serializable")
	s, _ := newStore(t, server.Pool(t), pgstore.WithConns(16))
	for key, n := range claimers(t, s, keysOf(50), 16) {
		require.Equal(t, 1, n, key)
	}
}

// Somebody else has the row in hand: a sweep, another claim, the transaction of a run. A claim does
// not wait for it, and never gets what has expired or is free as if it were somebody's answer, or as if
// it were bound to another payload.
func TestClaimOfALockedRow(t *testing.T) {
	t.Parallel()
	pool := pgtest.Shared(t).Pool(t)
	for _, state := range []string{"completed", "released", "unbound", "claimed"} {
		s, table := newStore(t, pool)
		key, c := "key", newClaim()
		guardtest.Claim(t, s, key, c)
		switch state {
		case "completed":
			require.NoError(t, s.Complete(t.Context(), key, c.Owner, store.Completion{Answer: []byte("old"), TTL: time.Minute}))
		case "released":
			require.NoError(t, s.Release(t.Context(), key, c.Owner, store.Release{}))
		case "unbound":
			require.NoError(t, s.Release(t.Context(), key, c.Owner, store.Release{Undone: true, Unbind: true}))
		}
		if state == "completed" || state == "claimed" {
			clock(t, pool, table)(2 * time.Minute) // the answer has expired, or the lease has ended
		}
		c = newClaim()
		if state == "completed" || state == "unbound" {
			c.Fingerprint[0]++
		}
		tx, err := pool.Begin(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { _ = tx.Rollback(context.Background()) }) // or the pool would wait for a test that has failed
		pgtest.Exec(t, tx, "SELECT FROM "+table+" FOR UPDATE")
		r := guardtest.Claim(t, s, key, c)
		require.Equal(t, store.Claimed, r.State, state)
		require.Equal(t, c.Fingerprint, r.Fingerprint, state)
		require.False(t, r.Mine)
		require.Positive(t, r.Lease)
		require.Nil(t, r.Answer)
		require.NoError(t, tx.Rollback(t.Context()))
		r = guardtest.Claim(t, s, key, c)
		require.True(t, r.Mine, state)
	}
}

// Between the look of a claim and its write, a sweep removes the record, which has expired, and another claims the
// key. The row of the other is a new one, and nobody takes it over.
func TestClaimOfARowThatWasReplaced(t *testing.T) {
	t.Parallel()
	pool := pgtest.Shared(t).Pool(t)
	s, table := newStore(t, pool)
	guardtest.Claim(t, s, "key", newClaim())
	_, err := pool.Exec(t.Context(), "UPDATE "+table+" SET expires = 0") // and nobody has changed it before
	require.NoError(t, err)

	var replaced store.Record
	config := pool.Config()
	config.ConnConfig.Tracer = beforeQuery(func(sql string) {
		if !strings.Contains(sql, "SKIP LOCKED") || replaced.Mine {
			return
		}
		n, err := s.Sweep(t.Context(), 10)
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
		replaced = guardtest.Claim(t, s, "key", newClaim())
		require.True(t, replaced.Mine)
	})
	slow := openStore(t, pool, pgstore.WithTable(table), pgstore.WithPoolConfig(config))
	r := guardtest.Claim(t, slow, "key", newClaim())
	require.True(t, replaced.Mine)
	require.False(t, r.Mine)
	require.Equal(t, replaced.Owner, r.Owner)
}

// beforeQuery is called before each query of a connection.
type beforeQuery func(sql string)

func (f beforeQuery) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	f(q.SQL)
	return ctx
}

func (beforeQuery) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// Transactions that nobody ends keep records locked. The calls that wait for them leave connections for
// the claims and the renewals of others.
func TestWaitingForLockedRowsLeavesConnections(t *testing.T) {
	t.Parallel()
	pool := pgtest.Shared(t).Pool(t)
	for name, call := range map[string]func(ctx context.Context, s *pgstore.Store, key string, o store.Owner) error{
		"Renew": func(ctx context.Context, s *pgstore.Store, key string, o store.Owner) error {
			return s.Renew(ctx, key, o)
		},
		"Complete": func(ctx context.Context, s *pgstore.Store, key string, o store.Owner) error {
			return s.Complete(ctx, key, o, store.Completion{TTL: time.Minute})
		},
		"Release": func(ctx context.Context, s *pgstore.Store, key string, o store.Owner) error {
			return s.Release(ctx, key, o, store.Release{})
		},
		"Hold": func(ctx context.Context, s *pgstore.Store, key string, o store.Owner) error {
			return s.Hold(ctx, key, o, nil)
		},
		"SaveStep": func(ctx context.Context, s *pgstore.Store, key string, o store.Owner) error {
			return s.SaveStep(ctx, key, o, "step", nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, table := newStore(t, pool, pgstore.WithConns(3))
			owner, keys := newClaim(), keysOf(6)
			for _, key := range keys {
				guardtest.Claim(t, s, key, owner)
			}
			tx, err := pool.Begin(t.Context())
			require.NoError(t, err)
			defer func() { _ = tx.Rollback(context.Background()) }()
			pgtest.Exec(t, tx, "SELECT FROM "+table+" FOR UPDATE")

			waiting, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			errs := make(chan error, len(keys))
			for _, key := range keys {
				go func() { errs <- call(waiting, s, key, owner.Owner) }()
			}
			for i := range 50 {
				r, err := s.Claim(waiting, fmt.Sprint("other-", i), owner)
				require.NoError(t, err)
				require.True(t, r.Mine)
				require.NoError(t, s.Renew(waiting, fmt.Sprint("other-", i), owner.Owner))
			}
			require.NoError(t, tx.Rollback(t.Context()))
			for range keys {
				require.NoError(t, <-errs)
			}
		})
	}
}
