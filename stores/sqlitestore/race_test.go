package sqlitestore_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/store"
	"example.com/idempotency/stores/sqlitestore"
)

// This file lets two processes race for the same keys.

// newClaim returns the claim of a new owner.
func newClaim() store.Claim {
	c := store.Claim{Lease: 30 * time.Second, Retention: time.Hour}
	_, _ = rand.Read(c.Owner[:])
	return c
}

// patience is how long an order comes again. Only one that fails takes so long.
const patience = 2 * time.Minute

// A contest is what processes do at the same time: each has as many claimers on the same keys.
type contest struct {
	Path           string
	Keys, Claimers int
	Run            bool // each runs under its claim, and inserts a row with the answer
	Whole          bool // such a run is one commit
}

// A result says how often each key was won, and how slow the slowest call was.
type result struct {
	Won     map[string]int
	Slowest time.Duration
	WAL     int64 // bytes of the log at the end
}

// A claimer opens the file at the first line, and races at the second.
func claimer(ctx context.Context) func(line []byte) (any, error) {
	var s *sqlitestore.Store
	return func(line []byte) (_ any, err error) {
		var r contest
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, err
		}
		if s == nil {
			s, err = sqlitestore.Open(ctx, r.Path, oneCommit(r.Whole)...)
			return nil, err
		}
		return r.run(ctx, s)
	}
}

func (r contest) run(ctx context.Context, s *sqlitestore.Store) (result, error) {
	g, err := idempotency.New(s, idempotency.SharedScope, idempotency.WithTransaction(true), idempotency.WithRecovery(idempotency.Hold))
	if err != nil {
		return result{}, err
	}
	var mu sync.Mutex
	var errs []error
	out := result{Won: map[string]int{}}
	var all sync.WaitGroup
	for i := range r.Claimers {
		all.Go(func() {
			for k := range r.Keys {
				if r.Run { // others run for other keys meanwhile
					k = (k + i*r.Keys/r.Claimers) % r.Keys
				}
				key := fmt.Sprintf("key-%d", k)
				start := time.Now()
				won, err := false, error(nil)
				if r.Run {
					won, err = order(ctx, g, s, key)
				} else {
					rec, failed := s.Claim(ctx, key, newClaim())
					won, err = rec.Mine, failed
				}
				took := time.Since(start)
				mu.Lock()
				if won {
					out.Won[key]++
				}
				out.Slowest = max(out.Slowest, took)
				errs = append(errs, err)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if info, err := os.Stat(r.Path + "-wal"); err == nil {
		out.WAL = info.Size()
	}
	return out, errors.Join(append(errs, g.Shutdown(ctx))...)
}

// order runs until it has an answer, and reports whether this run has given it. On a busy machine, the
// store may not answer the guard in time. Then nothing was run, or nothing of it was committed, and the
// caller comes again.
func order(ctx context.Context, g *idempotency.Guard, s *sqlitestore.Store, key string) (won bool, err error) {
	for start := time.Now(); ; time.Sleep(time.Millisecond) { // a caller that comes again
		ran := false
		_, result, err := idempotency.Do(ctx, g, idempotency.Key{Scope: "shop", Value: key}, func(ctx context.Context) (int, error) {
			ran = true
			return 1, s.InTx(ctx, func(tx *sql.Tx) error {
				var n int // what it has read is still so when it writes
				if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM charges").Scan(&n); err != nil {
					return err
				}
				return insert(ctx, tx)
			})
		})
		if err == nil || ran && !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > patience {
			return err == nil && !result.Replayed, err
		}
	}
}

// However many claim a key in two processes, new or lapsed, one gets it.
func TestTwoProcessesHaveOneWinner(t *testing.T) {
	t.Parallel()
	r := contest{Path: filepath.Join(t.TempDir(), "records.db"), Keys: 200, Claimers: 8}
	processes := r.racers(t)
	s := open(t, r.Path)
	for attempt := 1; attempt <= 3; attempt++ {
		for key := range r.once(t, processes) {
			rec, err := s.Get(t.Context(), key)
			require.NoError(t, err)
			require.Equal(t, attempt, rec.Attempt)
		}
		clock(t, r.Path)(time.Minute)
	}
}

// However many run a handler for a key in two processes, there is one row, and one answer.
func TestTwoProcessesHaveOneRow(t *testing.T) {
	for name, whole := range map[string][2]bool{"two commits": {}, "one commit": {true, true}, "one commit beside two": {true, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, charge)
			r := contest{Path: s.path, Keys: 60, Claimers: 4, Run: true}
			r.once(t, r.racers(t, whole[:]...))
			require.Equal(t, r.Keys, s.rows(t))
		})
	}
}

// racers returns two processes that have opened the file, which neither may have found there.
func (r contest) racers(t testing.TB, whole ...bool) []*process {
	t.Helper()
	processes := []*process{start(t, "claimer"), start(t, "claimer")}
	for i, p := range processes {
		r.Whole = len(whole) > i && whole[i]
		p.tell(t, r)
	}
	for _, p := range processes {
		require.NoError(t, p.hear(new(any)))
	}
	return processes
}

// once lets the processes race, and returns the keys. Each was won once.
func (r contest) once(t testing.TB, processes []*process) map[string]int {
	t.Helper()
	for _, p := range processes {
		p.tell(t, r)
	}
	won := map[string]int{}
	for i, p := range processes {
		var got result
		require.NoError(t, p.hear(&got))
		for key, n := range got.Won {
			won[key] += n
		}
		t.Logf("process %d has won %d of %d keys; its slowest call took %v, and the log has %d KiB",
			i, len(got.Won), r.Keys, got.Slowest, got.WAL>>10)
	}
	require.Len(t, won, r.Keys)
	for key, n := range won {
		require.Equal(t, 1, n, key)
	}
	return won
}
