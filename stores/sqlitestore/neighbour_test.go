package sqlitestore_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/race"
	"example.com/idempotency/store"
	"example.com/idempotency/store/storetest"
	"example.com/idempotency/stores/sqlitestore"
)

// The contract, while another process uses the same file all the time.
func TestStoreKeepsTheContractBesideAnotherProcess(t *testing.T) {
	other := start(t, "neighbour")
	var mu sync.Mutex
	ask := func(t testing.TB, path string) (done use) {
		mu.Lock()
		defer mu.Unlock()
		other.tell(t, path)
		require.NoError(t, other.hear(&done))
		return done
	}
	var total use
	files := 0
	t.Run("store", func(t *testing.T) {
		storetest.Run(t, storetest.Harness{
			New: func(t testing.TB) (store.Store, func(time.Duration)) {
				path := filepath.Join(t.TempDir(), "records.db")
				s := open(t, path)
				ask(t, path)
				t.Cleanup(func() {
					done := ask(t, path)
					mu.Lock()
					defer mu.Unlock()
					total.add(done)
					files++
				})
				return alone{s}, clock(t, path)
			},
			Transactions: func(t testing.TB, s store.Store) storetest.Transactions {
				return newTransactions(t, s.(alone).Store)
			},
		})
	})
	t.Logf("the other process has made %d calls in %d files, of which %d wrote and the slowest took %v",
		total.Calls, files, total.Writes, total.Slowest)
	require.GreaterOrEqual(t, total.Writes, 5*files)
}

// othersPrefix is what the keys of the other process begin with.
const othersPrefix = "other-"

// An alone is a store that does not list the records of the other process.
type alone struct{ *sqlitestore.Store }

func (s alone) List(ctx context.Context, q store.Query) (store.Page, error) {
	page, err := s.Store.List(ctx, q)
	page.Entries = slices.DeleteFunc(page.Entries, func(e store.Entry) bool { return strings.HasPrefix(e.Key, othersPrefix) })
	return page, err
}

// A use is what a process has done with a file.
type use struct {
	Calls, Writes int
	Slowest       time.Duration
}

func (u *use) add(o use) {
	u.Calls, u.Writes, u.Slowest = u.Calls+o.Calls, u.Writes+o.Writes, max(u.Slowest, o.Slowest)
}

// A neighbour uses files. The line is a path; the second time, it leaves the file alone again.
func neighbour(ctx context.Context) func(line []byte) (any, error) {
	type visit struct {
		cancel context.CancelFunc
		done   chan struct{}
		use    use
		err    error
	}
	visits := map[string]*visit{}
	return func(line []byte) (any, error) {
		var path string
		if err := json.Unmarshal(line, &path); err != nil {
			return nil, err
		}
		if v, ok := visits[path]; ok {
			delete(visits, path)
			v.cancel()
			<-v.done
			return v.use, v.err
		}
		s, err := sqlitestore.Open(ctx, path)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithCancel(ctx)
		v := &visit{cancel: cancel, done: make(chan struct{})}
		visits[path] = v
		go func() {
			defer close(v.done)
			defer func() { v.err = errors.Join(v.err, s.Close()) }()
			var all sync.WaitGroup
			uses, errs := make([]use, 2), make([]error, 2)
			for i := range uses {
				all.Go(func() { uses[i], errs[i] = haunt(ctx, s, fmt.Sprint(othersPrefix, i)) })
			}
			all.Wait()
			for i := range uses {
				v.use.add(uses[i])
			}
			v.err = errors.Join(errs...)
		}()
		return use{}, nil
	}
}

// haunt makes all kinds of calls for a key until the context ends. Whoever has the file may let time
// pass there, so its claims may lapse and its records end.
func haunt(ctx context.Context, s *sqlitestore.Store, key string) (u use, err error) {
	c := newClaim()
	calls := []func() error{
		func() error { _, err := s.Claim(ctx, key, c); return err },
		func() error { return s.Renew(ctx, key, c.Owner) },
		func() error { return s.SaveStep(ctx, key, c.Owner, "step", []byte("value")) },
		func() error { return s.Release(ctx, key, c.Owner, store.Release{}) },
		func() error { _, err := s.Claim(ctx, key, c); return err },
		func() error {
			return s.Complete(ctx, key, c.Owner, store.Completion{Answer: make([]byte, 3000), Status: 200, TTL: time.Hour})
		},
		func() error {
			return s.InTx(ctx, func(tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS others (n); INSERT INTO others VALUES (1); DELETE FROM others")
				return err
			})
		},
		func() error { _, err := s.Sweep(ctx, 10); return err },
		func() error {
			r, err := s.Get(ctx, key)
			if err == nil {
				err = s.Forget(ctx, key, r.Seen())
			}
			return err
		},
	}
	for ; ctx.Err() == nil; c = newClaim() {
		for i, call := range slices.Concat(calls, calls[:1], calls[8:]) {
			start := time.Now()
			err := call()
			u.add(use{1, 1, time.Since(start)})
			expected := []error{nil, store.ErrNotOwner, store.ErrNotFound, store.ErrChanged}
			if !slices.ContainsFunc(expected, func(want error) bool { return errors.Is(err, want) }) && ctx.Err() == nil {
				return u, fmt.Errorf("call %d: %w", i, err)
			}
			if _, err := s.GetAnswer(ctx, key); err != nil && !errors.Is(err, store.ErrNotFound) && ctx.Err() == nil {
				return u, err
			}
			u.Calls++
			if race.Enabled { // which leaves little of the machine to the test
				time.Sleep(5 * time.Millisecond) // the pace of this process, in real time
			}
		}
	}
	return u, nil
}
