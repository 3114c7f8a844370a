package sqlitestore_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
	"example.com/idempotency/stores/sqlitestore"
)

// Files that are moved, replaced or deleted while a store has them open.

// beforeMoving skips where nobody can do that.
func beforeMoving(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows moves no file that is open")
	}
}

// backUp makes a backup as the documentation has it.
func backUp(t testing.TB, path string) (backup string) {
	t.Helper()
	backup = filepath.Join(filepath.Dir(path), "backup.db")
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)")
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	require.NoError(t, os.WriteFile(backup, nil, 0o600))
	_, err = db.ExecContext(t.Context(), "VACUUM INTO ?", backup)
	require.NoError(t, err)
	return backup
}

// keep puts the file that is at path back at the end, so that the guard's own calls end.
func keep(t testing.TB, path string) {
	t.Helper()
	require.NoError(t, os.Link(path, path+"-kept"))
	t.Cleanup(func() { require.NoError(t, os.Rename(path+"-kept", path)) })
}

// takeAway removes the files that SQLite has put beside the one at path.
func takeAway(t testing.TB, path string) {
	t.Helper()
	for _, beside := range []string{"-wal", "-shm"} {
		if err := os.Remove(path + beside); !os.IsNotExist(err) {
			require.NoError(t, err)
		}
	}
}

func TestMovedFileIsRefused(t *testing.T) {
	beforeMoving(t)
	t.Parallel()
	for name, move := range map[string]func(t *testing.T, path string){
		"moved":   func(t *testing.T, path string) { require.NoError(t, os.Rename(path, path+"-away")) },
		"deleted": func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) },
		"replaced": func(t *testing.T, path string) {
			require.NoError(t, os.Rename(backUp(t, path), path))
		},
		"another target": func(t *testing.T, path string) {
			require.NoError(t, os.Symlink(backUp(t, path), path+"-new"))
			require.NoError(t, os.Rename(path+"-new", path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "records.db")
			if name == "another target" {
				require.NoError(t, os.Symlink(path+"-target", path))
			}
			s := open(t, path)
			answered, held := newClaim(), newClaim()
			for key, c := range map[string]store.Claim{"answered": answered, "held": held} {
				guardtest.Claim(t, s, key, c)
			}
			completion := store.Completion{Status: 200, TTL: time.Hour}
			require.NoError(t, s.Complete(t.Context(), "answered", answered.Owner, completion))
			require.NoError(t, s.Hold(t.Context(), "held", held.Owner, nil))
			mine, seen := newClaim(), guardtest.HeldBy(held.Owner, 1)
			guardtest.Claim(t, s, "mine", mine)
			move(t, path)
			claim := func(key string, c store.Claim) error {
				_, err := s.Claim(t.Context(), key, c)
				return err
			}
			for call, f := range map[string]func() error{
				"claim":             func() error { return claim("new", newClaim()) },
				"claim of one run":  func() error { return claim("whole", mayBeLost()) },
				"replay":            func() error { return claim("answered", newClaim()) },
				"renew":             func() error { return s.Renew(t.Context(), "mine", mine.Owner) },
				"step":              func() error { return s.SaveStep(t.Context(), "mine", mine.Owner, "a", nil) },
				"complete":          func() error { return s.Complete(t.Context(), "mine", mine.Owner, completion) },
				"complete again":    func() error { return s.Complete(t.Context(), "answered", answered.Owner, completion) },
				"release":           func() error { return s.Release(t.Context(), "mine", mine.Owner, store.Release{}) },
				"hold":              func() error { return s.Hold(t.Context(), "mine", mine.Owner, nil) },
				"resolve":           func() error { return s.Resolve(t.Context(), "held", seen, store.Settlement{}) },
				"forget":            func() error { return s.Forget(t.Context(), "held", seen) },
				"sweep":             func() error { _, err := s.Sweep(t.Context(), 1); return err },
				"get":               func() error { _, err := s.Get(t.Context(), "mine"); return err },
				"list":              func() error { _, err := s.List(t.Context(), store.Query{}); return err },
				"other transaction": func() error { return s.InTx(t.Context(), func(*sql.Tx) error { return nil }) },
				"transaction":       func() error { _, err := s.Begin(t.Context(), "mine", mine.Owner); return err },
			} {
				require.ErrorIs(t, f(), sqlitestore.ErrMoved, call)
			}
			if name == "moved" {
				require.NoError(t, os.Rename(path+"-away", path))
				r := guardtest.Get(t, s, "mine")
				require.Equal(t, store.Claimed, r.State)
				require.NoError(t, s.Complete(t.Context(), "mine", mine.Owner, completion))
				page, err := s.List(t.Context(), store.Query{})
				require.NoError(t, err)
				require.Len(t, page.Entries, 3)
			}
		})
	}
}

// The folder of a program may change after it has opened its file by a relative path.
func TestFolderChanges(t *testing.T) {
	t.Chdir(t.TempDir())
	s := open(t, "records.db")
	t.Chdir(t.TempDir())
	guardtest.Claim(t, s, "k", newClaim())
}

// A backup is moved to the path while a process has the file open, and another process begins with it. No key
// runs in both.
func TestReplacedFileHasOneRunOfAKey(t *testing.T) {
	beforeMoving(t)
	guardtest.Each(t, map[string]bool{"two commits": false, "one commit": true}, func(t *testing.T, whole bool) {
		runs := 0
		s := newShopOn(t, oneCommit(whole), func(s *shop, w http.ResponseWriter, r *http.Request) {
			runs++
			charge(s, w, r)
		})
		require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "before"}).Status)
		keep(t, s.path)
		require.NoError(t, os.Rename(backUp(t, s.path), s.path))
		takeAway(t, s.path)
		for _, key := range []string{"before", "key-0"} {
			guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: key}), http.StatusServiceUnavailable, problem.StoreUnavailable)
		}
		other := contest{Path: s.path, Keys: 3, Claimers: 1, Run: true, Whole: whole}
		p := start(t, "claimer")
		p.tell(t, other)
		require.NoError(t, p.hear(new(any)))
		other.once(t, []*process{p})
		guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "key-0"}), http.StatusServiceUnavailable, problem.StoreUnavailable)
		require.Equal(t, 1, runs)
		require.Equal(t, 1+other.Keys, s.rows(t))
	})
}

// moveAt makes stores use a driver that moves a file at its next commit, after it is made.
func moveAt(t *testing.T) func(path string) {
	d := &faultyDriver{Driver: &sqlite.Driver{}, commits: driver.Tx.Commit}
	sql.Register("sqlite that moves", d)
	sqlitestore.UseDriver("sqlite that moves")
	t.Cleanup(func() { sqlitestore.UseDriver("sqlite") })
	return func(path string) {
		d.commits = func(tx driver.Tx) error {
			d.commits = driver.Tx.Commit
			defer func() { require.NoError(t, os.Rename(path, path+"-away")) }()
			return tx.Commit()
		}
	}
}

// The file is moved while a call or a run is under way, before its commit or in it. Nobody is told of what is gone.
func TestFileIsMovedMeanwhile(t *testing.T) {
	beforeMoving(t)
	moveInCommit := moveAt(t)
	move := func(path string) { require.NoError(t, os.Rename(path, path+"-away")) }
	back := func(path string) { require.NoError(t, os.Rename(path+"-away", path)) }

	s := newShop(t, charge)
	c := newClaim()
	guardtest.Claim(t, s.store, "k", c)
	for name, call := range map[string]func() error{
		"claim": func() error { _, err := s.store.Claim(t.Context(), "new", newClaim()); return err },
		"complete": func() error {
			return s.store.Complete(t.Context(), "k", c.Owner, store.Completion{Status: 200, TTL: time.Hour})
		},
		"transaction": func() error { return s.store.InTx(t.Context(), func(*sql.Tx) error { return nil }) },
	} {
		moveInCommit(s.path)
		require.ErrorIs(t, call(), sqlitestore.ErrMoved, name)
		back(s.path)
	}
	require.ErrorIs(t, s.store.InTx(t.Context(), func(tx *sql.Tx) error {
		move(s.path)
		_, err := tx.ExecContext(t.Context(), "INSERT INTO charges VALUES ('gone')")
		return err
	}), sqlitestore.ErrMoved)
	back(s.path)
	require.Zero(t, s.rows(t), "it has written to a file that nobody finds again")

	for _, whole := range []bool{false, true} {
		for _, inCommit := range []bool{false, true} {
			s := newShopOn(t, oneCommit(whole), func(s *shop, w http.ResponseWriter, r *http.Request) {
				charge(s, w, r)
				if inCommit {
					moveInCommit(s.path)
				} else {
					move(s.path)
				}
			}, idempotency.WithRecovery(idempotency.Hold))
			keep(t, s.path)
			got := s.Do(t, guardtest.Call{Key: "k"})
			back(s.path)
			if inCommit {
				require.Contains(t, []problem.Code{problem.NoAnswer, problem.InFlight}, problem.Code(got.Header.Get("Idempotency-Error")))
				require.Equal(t, 1, s.rows(t))
			} else {
				guardtest.RequireProblem(t, got, http.StatusServiceUnavailable, problem.RolledBack)
				require.Zero(t, s.rows(t))
			}
		}
	}
}

// A movingDriver moves a file before it opens one.
type movingDriver struct {
	*sqlite.Driver
	path string
}

func (d *movingDriver) Open(name string) (driver.Conn, error) {
	if d.path != "" {
		if err := os.Rename(d.path, d.path+"-away"); err != nil {
			return nil, err
		}
		d.path = ""
	}
	return d.Driver.Open(name)
}

// A file that is moved while it is opened is not the one that others find.
func TestFileIsMovedInOpen(t *testing.T) {
	beforeMoving(t)
	path := filepath.Join(t.TempDir(), "records.db")
	open(t, path)
	d := &movingDriver{Driver: &sqlite.Driver{}, path: path}
	sql.Register("sqlite that opens another file", d)
	sqlitestore.UseDriver("sqlite that opens another file")
	t.Cleanup(func() { sqlitestore.UseDriver("sqlite") })
	_, err := sqlitestore.Open(t.Context(), path)
	require.ErrorIs(t, err, sqlitestore.ErrMoved)
}

// A connection that is made while another file is at the path does not stay.
func TestMovedFileComesBack(t *testing.T) {
	beforeMoving(t)
	t.Parallel()
	path := filepath.Join(t.TempDir(), "records.db")
	s := open(t, path)
	guardtest.Claim(t, s, "k", newClaim())
	require.NoError(t, open(t, path+"-other").Close())
	parts := []string{"", "-wal", "-shm"}
	for _, part := range parts {
		require.NoError(t, os.Rename(path+part, path+part+"-away"))
	}
	require.NoError(t, os.Rename(path+"-other", path))
	s.Reader().SetMaxIdleConns(0)
	s.Reader().SetMaxIdleConns(1)
	_, err := s.Get(t.Context(), "k")
	require.ErrorIs(t, err, sqlitestore.ErrMoved)
	for _, part := range parts {
		require.NoError(t, os.Rename(path+part+"-away", path+part))
	}
	guardtest.Get(t, s, "k")
}

// A hoarder makes a file and stays in a transaction of it.
func hoarder(ctx context.Context) func(line []byte) (any, error) {
	return func(line []byte) (any, error) {
		var path string
		if err := json.Unmarshal(line, &path); err != nil {
			return nil, err
		}
		db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)&_txlock=immediate")
		if err != nil {
			return nil, err
		}
		_, err = db.BeginTx(ctx, nil)
		return nil, err
	}
}

// Open does not wait without end for a process that never ends its transaction, nor for a file that was cut to nothing
// under another process. It says what is in the way.
func TestOpenDoesNotWaitForEver(t *testing.T) {
	for name, cause := range map[string]string{"transaction": "is the process stopped?", "truncated": "was it truncated?"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "records.db")
			p := start(t, "hoarder")
			p.tell(t, path)
			require.NoError(t, p.hear(new(any)))
			if name == "truncated" {
				require.NoError(t, os.Truncate(path, 0))
			}
			_, err := sqlitestore.Open(context.Background(), path, sqlitestore.WithPatience(50*time.Millisecond))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, cause)

			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			_, err = sqlitestore.Open(ctx, path, sqlitestore.WithPatience(time.Hour))
			require.ErrorContains(t, err, cause)

			ctx, stop := context.WithCancel(t.Context())
			time.AfterFunc(50*time.Millisecond, stop)
			_, err = sqlitestore.Open(ctx, path, sqlitestore.WithPatience(time.Hour))
			require.ErrorIs(t, err, context.Canceled)
		})
	}
}

// A file that has the table is opened beside such a process. Whatever writes waits, and a transaction outside of a run
// says so.
func TestTransactionDoesNotWaitForAnotherProcessForEver(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "records.db")
	open(t, path)
	p := start(t, "hoarder")
	p.tell(t, path)
	require.NoError(t, p.hear(new(any)))
	s := open(t, path, sqlitestore.WithPatience(50*time.Millisecond))
	err := s.InTx(context.Background(), func(*sql.Tx) error { return nil })
	require.ErrorContains(t, err, "another process is stopped in its transaction")
}
