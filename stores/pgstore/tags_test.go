package pgstore_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/formtest/rows"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/store"
	"example.com/idempotency/stores/pgstore"
	"example.com/idempotency/stores/pgstore/internal/pgtest"
)

// taggedClaim returns the claim of a new owner with a tag.
func taggedClaim(tags ...store.Tag) store.Claim {
	c := newClaim()
	c.Tags = tags
	return c
}

// Tags are a part of the claim, and none costs a round trip.
func TestRoundTripsOfTags(t *testing.T) {
	t.Parallel()
	onEachMode(t, func(t *testing.T, wire *pgtest.Wire, pool *pgxpool.Pool) {
		s, _ := newStore(t, pool, pgstore.WithConns(1))
		tag, late := store.Tag{1}, func(d time.Duration) store.Claim {
			c := taggedClaim(store.Tag{1})
			c.Lease = d
			return c
		}
		claim := func(key string, c store.Claim) {
			r := guardtest.Claim(t, s, key, c)
			require.True(t, r.Mine)
		}
		claim("warm", late(time.Microsecond)) // each statement is prepared once
		claim("warm", late(time.Minute))
		require.Equal(t, int64(1), wire.Count(func() { claim("new", late(time.Microsecond)) }))
		require.Equal(t, int64(2), wire.Count(func() { claim("new", late(time.Minute)) }), "as without tags")
		guardtest.RequireFound(t, s, tag, "new", "warm")
	})
}

// A run that is one commit leaves its tags with its record, and otherwise none.
func TestOneCommitLeavesTags(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t, pgtest.Shared(t).Pool(t), pgstore.WithOneCommit(pgx.ReadCommitted))
	guardtest.RequireTagsOfCommits(t, s, mayBeLost)
}

// Tags go with their record. A program of an earlier version leaves them, and a sweep removes them later: until then
// they may be those of a claim that is being made.
func TestSweepRemovesTags(t *testing.T) {
	t.Parallel()
	pool := pgtest.Shared(t).Pool(t)
	s, table := newStore(t, pool)
	later := clock(t, pool, table)
	exec := func(sql string) {
		pgtest.Exec(t, pool, sql)
	}
	requireLeft := func(want int) {
		t.Helper()
		var left int
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM "+table+"_tags").Scan(&left))
		require.Equal(t, want, left)
	}
	sweep := func(want int64) {
		t.Helper()
		removed, err := s.Sweep(t.Context(), 100)
		require.NoError(t, err)
		require.Equal(t, want, removed)
	}
	for _, key := range []string{"expired", "stays", "left"} {
		if key == "stays" {
			later(3 * time.Hour) // the retention is one
		}
		guardtest.Claim(t, s, key, taggedClaim(store.Tag{1}, store.Tag{2}))
	}
	sweep(1)
	requireLeft(4)
	exec("DELETE FROM " + table + " WHERE key = 'left'")
	sweep(0) // one looks at all that are left, and one begins again
	sweep(0)
	requireLeft(4)
	exec("UPDATE " + table + "_tags SET tagged = tagged - 3700000000")
	sweep(0)
	sweep(0)
	requireLeft(2)
	guardtest.RequireFound(t, s, store.Tag{1}, "stays")
}

func TestStoredFormOfTags(t *testing.T) {
	t.Parallel()
	pool := pgtest.Shared(t).Pool(t)
	s, table := newStore(t, pool)
	rows.CheckTags(t, s, func() [][3]string {
		r, err := pool.Query(t.Context(), "SELECT ARRAY[encode(tag, 'hex'), record, encode(bound_to, 'hex')] FROM "+table+"_tags ORDER BY tag")
		require.NoError(t, err)
		all, err := pgx.CollectRows(r, pgx.RowTo[[3]string])
		require.NoError(t, err)
		return all
	}, func(tag, record, boundTo string) error {
		_, err := pool.Exec(t.Context(), "INSERT INTO "+table+"_tags VALUES (decode($1, 'hex'), $2, decode($3, 'hex'), 0)", tag, record, boundTo)
		return err
	})
}
