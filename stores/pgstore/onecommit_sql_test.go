package pgstore_test

import (
	"context"
	"database/sql"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/stores/pgstore"
)

// One commit through database/sql, whose connections have a life of their own.

// A database that keeps connections of its own gets that of the claim all the same.
func TestOneCommitOnADatabaseThatKeepsConnections(t *testing.T) {
	t.Parallel()
	earlier := 0
	s := inOneCommit(t, "", func(s *shop, w http.ResponseWriter, r *http.Request) {
		require.NoError(t, ways["InSQLTx"](s, r.Context(), "read committed", func(exec execer) error {
			require.Equal(t, earlier, s.recorded(t))
			return s.insert(r.Context(), exec)
		}))
		w.WriteHeader(http.StatusCreated)
	})
	s.db.SetMaxIdleConns(3)
	for _, key := range keysOf(3) {
		var kept []*sql.Conn
		for range 2 {
			conn, err := s.db.Conn(t.Context())
			require.NoError(t, err)
			kept = append(kept, conn)
		}
		for _, conn := range kept {
			require.NoError(t, conn.Close())
		}
		require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: key}).Status)
		require.EqualValues(t, s.db.Stats().OpenConnections, s.pool.Stat().AcquiredConns(), "the database keeps them, and nobody else has them")
		require.True(t, s.Do(t, guardtest.Call{Key: key}).Replayed())
		require.Equal(t, 1, s.rows(t, key))
		earlier++
	}
}

// When a database gives other connections again and again, as under a limit of its own, the claim becomes a record.
func TestOneCommitWithoutItsConnection(t *testing.T) {
	t.Parallel()
	onEachLevel(t, func(t *testing.T, level string) {
		s := inOneCommit(t, level, func(s *shop, w http.ResponseWriter, r *http.Request) {
			charge(ways["InSQLTx"], level)(s, w, r)
			require.Equal(t, 1, s.recorded(t))
		})
		s.db = pgstore.OpenDeafDB(s.pool)
		t.Cleanup(func() { _ = s.db.Close() })
		require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
		require.True(t, s.Do(t, guardtest.Call{Key: "k"}).Replayed())
		require.Equal(t, 1, s.rows(t, "k"))
		require.Zero(t, s.pool.Stat().AcquiredConns())
	})
}

// A handler that waits in vain for a connection of the database may refuse, and that is recorded.
func TestOneCommitWaitsInVainForADatabase(t *testing.T) {
	t.Parallel()
	s := inOneCommit(t, "", func(s *shop, w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		time.AfterFunc(0, func() {
			for s.db.Stats().WaitCount == 0 {
				time.Sleep(time.Millisecond) // a poll
			}
			cancel()
		})
		err := s.store.InSQLTx(ctx, s.db, nil, func(*sql.Tx) error { return nil })
		require.ErrorIs(t, err, context.Canceled)
		w.WriteHeader(http.StatusConflict)
	})
	s.db.SetMaxOpenConns(1)
	conn, err := s.db.Conn(t.Context())
	require.NoError(t, err)
	require.Equal(t, http.StatusConflict, s.Do(t, guardtest.Call{Key: "k"}).Status)
	require.NoError(t, conn.Close())
	require.True(t, s.Do(t, guardtest.Call{Key: "k"}).Replayed())
	require.Zero(t, s.pool.Stat().AcquiredConns())
}

// A statement in the way of another transaction rolls back, and the function runs again. Its claim is a record then.
func TestOneCommitRunsAgain(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"InTx", "InSQLTx"} {
		tries := 0
		s := inOneCommit(t, "serializable", func(s *shop, w http.ResponseWriter, r *http.Request) {
			require.NoError(t, ways[name](s, r.Context(), "serializable", func(exec execer) error {
				require.Equal(t, tries, s.recorded(t))
				if err := s.insert(r.Context(), exec); err != nil || tries > 0 {
					return err
				}
				tries++
				return exec(r.Context(), "DO $$ BEGIN RAISE EXCEPTION 'in the way' USING ERRCODE = '40001'; END $$")
			}))
			w.WriteHeader(http.StatusCreated)
		}, idempotency.WithLease(time.Hour))
		require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
		require.Equal(t, 1, s.rows(t, "k"))
		require.Equal(t, 1, tries)
		require.Zero(t, s.pool.Stat().AcquiredConns())
	}
}
