package pgstore_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/stores/pgstore"
	"example.com/idempotency/stores/pgstore/internal/pgtest"
)

// A sweep removes what has expired and nothing else, in the hour after its end.
func TestSweep(t *testing.T) {
	t.Parallel()
	pool := pgtest.Shared(t).Pool(t)
	s, table := newStore(t, pool)
	for _, key := range keysOf(5) {
		guardtest.Claim(t, s, key, newClaim())
	}
	sweep := func(n int) int64 {
		removed, err := s.Sweep(t.Context(), n)
		require.NoError(t, err)
		return removed
	}
	require.Zero(t, sweep(10))
	clock(t, pool, table)(3 * time.Hour) // their retention is an hour
	guardtest.Claim(t, s, "lives", newClaim())
	require.EqualValues(t, 3, sweep(3))
	require.EqualValues(t, 2, sweep(3))
	require.Zero(t, sweep(3))
	guardtest.Get(t, s, "lives")
}

func TestTombstone(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t, pgtest.Shared(t).Pool(t))
	guardtest.RequireTombstone(t, s)
}

// The table is emptied, and the processes that know its birth tell. What they leave is swept like any record: not now.
func TestBirth(t *testing.T) {
	t.Parallel()
	pool := pgtest.Shared(t).Pool(t)
	s, table := newStore(t, pool)
	guardtest.RequireBirth(t, s, func() {
		removed, err := s.Sweep(t.Context(), 10)
		require.NoError(t, err)
		require.Zero(t, removed)
		pgtest.Exec(t, pool, "TRUNCATE "+table)
	})
}

// insertExpired inserts records that have ended one after another, the last one that long ago.
func insertExpired(t *testing.T, pool *pgxpool.Pool, table string, records int, ago time.Duration) {
	_, err := pool.Exec(t.Context(), fmt.Sprintf(`INSERT INTO %s (key, version, state, attempt, owner, fingerprint, hold, hold_ends,
			watched, marks, lease, retention, since, touched, expires, label, notes, sealed_key, steps, status, answer)
		SELECT md5(i || ' ' || now), 1, 'completed', 1, decode(md5(i::text), 'hex'), decode(md5(i::text) || md5(i::text), 'hex'), false, false,
			false, 0, 30000000, 86400000000, now - i, now - i, now - i, 'POST /orders', '', '', '', 201, decode(repeat(md5(i::text), 8), 'hex')
		FROM generate_series(1, %d) AS i, (SELECT (extract(epoch FROM now()) - %d)::int8 * 1000000 AS now) clock`, table, records, int(ago.Seconds())))
	require.NoError(t, err)
}

// Beside a snapshot that stays open, the index keeps what was removed. A sweep does not walk over that again
// and again.
func TestSweepBesideAnOldSnapshot(t *testing.T) {
	t.Parallel()
	const hours, each, batch = 3, 40_000, 2000
	pool := pgtest.Shared(t).Pool(t)
	s, table := newStore(t, pool, pgstore.WithConns(1))
	for h := range hours {
		insertExpired(t, pool, table, each, time.Duration(2+h)*time.Hour)
	}
	pgtest.Exec(t, pool, "VACUUM ANALYZE "+table)
	old, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	defer func() { _ = old.Rollback(context.Background()) }()
	pgtest.Exec(t, old, "SELECT 1")
	for range hours * each / batch {
		n, err := s.Sweep(t.Context(), batch)
		require.NoError(t, err)
		require.EqualValues(t, batch, n)
	}
	n, err := s.Sweep(t.Context(), batch)
	require.NoError(t, err)
	require.Zero(t, n)
	s.Close() // its connections tell what they have done
	var walked int64
	require.Eventually(t, func() bool {
		err := old.QueryRow(t.Context(), "SELECT pg_stat_clear_snapshot()::text, idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = $1", table+"_sweep").Scan(nil, &walked)
		return err == nil && walked > 0
	}, time.Minute, 20*time.Millisecond)
	require.Less(t, walked, int64(2*hours*each), "entries of the index")
}

// The sweep of a million records is done in time, and claims hardly notice it. It takes a minute, so it
// runs with PG_EXHAUSTIVE=1.
func TestSweepOfAMillion(t *testing.T) {
	if os.Getenv("PG_EXHAUSTIVE") != "1" {
		t.Skip("PG_EXHAUSTIVE=1 runs it")
	}
	const records, batch = 1_000_000, 1000
	pool := pgtest.Start(t, "shared_buffers=256MB", "max_wal_size=4GB").Pool(t)
	s, table := newStore(t, pool, pgstore.WithConns(8))
	insertExpired(t, pool, table, records, 2*time.Hour)
	pgtest.Exec(t, pool, "VACUUM ANALYZE "+table)

	claims(t, s, "warm", time.Second)
	before := claims(t, s, "before", 2*time.Second)
	ctx, done := context.WithCancel(t.Context())
	var meanwhile []time.Duration
	var claimer sync.WaitGroup
	claimer.Go(func() { meanwhile = claimsUntil(ctx, t, s, "meanwhile") })
	start := time.Now()
	var removed int64
	for {
		n, err := s.Sweep(t.Context(), batch)
		require.NoError(t, err)
		if removed += n; n < batch {
			break
		}
	}
	took := time.Since(start)
	done()
	claimer.Wait()
	after := claims(t, s, "after", 2*time.Second)
	alone := p99(append(before, after...))
	t.Logf("%d records swept in %v; p99 of %d claims meanwhile %v, of %d alone %v",
		removed, took, len(meanwhile), p99(meanwhile), len(before)+len(after), alone)
	require.EqualValues(t, records, removed)
	require.Less(t, took, 20*time.Second)
	require.Less(t, p99(meanwhile), max(3*alone, 50*time.Millisecond), "a busy machine has longer pauses than three times a quick claim")
}

// claims claims new keys for a while, and returns how long each claim took.
func claims(t *testing.T, s *pgstore.Store, name string, d time.Duration) []time.Duration {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	return claimsUntil(ctx, t, s, name)
}

// claimsUntil claims some hundred new keys a second, so that they do not keep the machine busy by
// themselves.
func claimsUntil(ctx context.Context, t *testing.T, s *pgstore.Store, name string) []time.Duration {
	var mu sync.Mutex
	var all []time.Duration
	guardtest.Together(4, func(c int) {
		pace := time.NewTicker(5 * time.Millisecond)
		defer pace.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			<-pace.C
			start := time.Now()
			r, err := s.Claim(context.Background(), fmt.Sprintf("%s-%d-%d", name, c, i), newClaim())
			took := time.Since(start)
			if err != nil || !r.Mine {
				t.Errorf("%+v: %v", r, err)
				return
			}
			mu.Lock()
			all = append(all, took)
			mu.Unlock()
		}
	})
	return all
}

// p99 returns what 99 of a hundred do not exceed.
func p99(all []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)*99/100]
}
