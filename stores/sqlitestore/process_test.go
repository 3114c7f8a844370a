package sqlitestore_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/race"
	"example.com/idempotency/store"
	"example.com/idempotency/store/storetest"
	"example.com/idempotency/stores/sqlitestore"
)

// This file starts other processes, which are this binary again. Such a process plays one of the
// parts. It is told what to do line by line, and answers each line with one.

// partVariable names the part that a process plays.
const partVariable = "SQLITESTORE_PART"

// parts are what a process can be. A part returns what to do with a line.
var parts = map[string]func(ctx context.Context) func(line []byte) (any, error){
	"neighbour": neighbour,
	"claimer":   claimer,
	"victim":    victim,
	"hoarder":   hoarder,
}

func TestMain(m *testing.M) {
	if part := os.Getenv(partVariable); part != "" {
		play(parts[part](context.Background()))
		return
	}
	os.Exit(guardtest.Main(m))
}

// oneCommit returns the options of a store that has the option, or none.
func oneCommit(with bool) []sqlitestore.Option {
	if !with {
		return nil
	}
	return []sqlitestore.Option{sqlitestore.WithOneCommit()}
}

// A reply is what a process answers.
type reply struct {
	Value json.RawMessage
	Error string
}

func play(part func(line []byte) (any, error)) {
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return // its test is over
		}
		var r reply
		value, err := part(line)
		if err == nil {
			r.Value, err = json.Marshal(value)
		}
		if err != nil {
			r.Error = err.Error()
		}
		if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
			return
		}
	}
}

// A process is another process.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

// start starts a process that ends with the test at the latest.
func start(t testing.TB, part string, env ...string) *process {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(append(os.Environ(), partVariable+"="+part), env...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	p := &process{cmd, in, json.NewDecoder(out)}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	return p
}

// tell sends the process something to do, as JSON. Its answer is waited for by hear.
func (p *process) tell(t testing.TB, what any) {
	t.Helper()
	require.NoError(t, json.NewEncoder(p.in).Encode(what))
}

// hear waits for the answer of a process.
func (p *process) hear(into any) error {
	var r reply
	if err := p.out.Decode(&r); err != nil {
		return fmt.Errorf("the process is gone: %w", err)
	}
	if r.Error != "" {
		return fmt.Errorf("the process: %s", r.Error)
	}
	return json.Unmarshal(r.Value, into)
}

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
			uses, errs := make([]use, 2), make([]error, 2)
			guardtest.Together(len(uses), func(i int) { uses[i], errs[i] = haunt(ctx, s, fmt.Sprint(othersPrefix, i)) })
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
	guardtest.Together(r.Claimers, func(i int) {
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
			rec := guardtest.Get(t, s, key)
			require.Equal(t, attempt, rec.Attempt)
		}
		clock(t, r.Path)(time.Minute)
	}
}

// However many run a handler for a key in two processes, there is one row, and one answer.
func TestTwoProcessesHaveOneRow(t *testing.T) {
	guardtest.Each(t, map[string][2]bool{"two commits": {}, "one commit": {true, true}, "one commit beside two": {true, false}}, func(t *testing.T, whole [2]bool) {
		s := newShop(t, charge)
		r := contest{Path: s.path, Keys: 60, Claimers: 4, Run: true}
		r.once(t, r.racers(t, whole[:]...))
		require.Equal(t, r.Keys, s.rows(t))
	})
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
