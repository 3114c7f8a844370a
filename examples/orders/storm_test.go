//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/examples/orders/db"
	"example.com/idempotency/internal/pgserver"
	"example.com/idempotency/problem"
)

// A storm kills services while clients order, and every tenth time the database server, too.
type storm struct {
	home    home
	mu      sync.Mutex
	service [2]process

	over    atomic.Bool
	answers sync.Map // of orders, by key
	refused sync.Map // how often a client was told what, by status and code
}

// get returns one of the services.
func (s *storm) get(n int) process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.service[n%len(s.service)]
}

// client orders until the storm is over, and each order until it is made.
func (s *storm) client(t *testing.T, name int) {
	for n := 0; !s.over.Load(); n++ {
		key := fmt.Sprintf("order-%d-%d", name, n)
		for tries := 0; ; tries++ {
			got, err := s.get(name+tries).order(t.Context(), key)
			if err == nil && got.Status == http.StatusCreated {
				s.answers.Store(key, got.Body)
				break
			}
			what := "no answer"
			if err == nil {
				what = fmt.Sprint(got.Status, " ", got.Problem.Code)
				if got.Status < 500 && got.Problem.Code != problem.InFlight {
					t.Errorf("%s: %s %s", key, what, got.Body)
					return
				}
			}
			count, _ := s.refused.LoadOrStore(what, new(atomic.Int64))
			count.(*atomic.Int64).Add(1)
			if t.Context().Err() != nil {
				return
			}
			time.Sleep(20 * time.Millisecond) // a client that retries
		}
	}
}

// ORDERS_KILLS=300 makes 300 kills and 30 restarts of the server, in each way to commit. On two busy cores that takes
// 20 minutes.
func TestOneOrderInAStormOfKillsAndRestarts(t *testing.T) {
	set := os.Getenv("ORDERS_KILLS")
	if set == "" {
		t.Skip("ORDERS_KILLS is not set")
	}
	kills, err := strconv.Atoi(set)
	require.NoError(t, err)
	for _, oneCommit := range []bool{false, true} {
		t.Run(fmt.Sprintf("one commit %t", oneCommit), func(t *testing.T) {
			t.Parallel()
			server := pgserver.Start(t)
			h := home{dir: t.TempDir(), args: []string{"-postgres", server.DSN, fmt.Sprintf("-one-commit=%t", oneCommit)}}
			var err error
			h.db, err = openPostgres(t.Context(), server.DSN, false)
			s := storm{home: h.opened(t, err)}
			for i := range s.service {
				s.service[i] = s.home.start(t, "")
			}
			var clients sync.WaitGroup
			for name := range 6 {
				clients.Go(func() { s.client(t, name) })
			}
			s.blow(t, server, kills)
			s.over.Store(true)
			clients.Wait()
			s.check(t)
		})
	}
}

// blow kills a service so many times, each at a moment of its own, and starts another in its place.
func (s *storm) blow(t *testing.T, server *pgserver.Server, kills int) {
	t.Helper()
	for n := range kills {
		time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond) // the moment of a kill is what is varied
		dying := s.get(n)
		dying.Kill()
		dying.RequireKilled(t)
		if n%10 == 4 {
			server.Crash()
			server.Restart(t)
		}
		started := s.home.start(t, "")
		s.mu.Lock()
		s.service[n%len(s.service)] = started
		s.mu.Unlock()
	}
}

// check compares what the clients were told with what is in the database.
func (s *storm) check(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return s.home.count(t, "outbox WHERE published IS NULL") == 0 }, time.Minute, 50*time.Millisecond)
	rows := make(map[string]bool)
	found, err := s.home.db.read.QueryContext(t.Context(), "SELECT id FROM orders")
	require.NoError(t, err)
	defer func() { _ = found.Close() }()
	for found.Next() {
		var id string
		require.NoError(t, found.Scan(&id))
		rows[id] = true
	}
	require.NoError(t, found.Err())
	told := 0
	s.answers.Range(func(key, body any) bool {
		var order db.Order
		require.NoError(t, json.Unmarshal([]byte(body.(string)), &order), "%s", key)
		require.True(t, rows[order.ID], "the answer to %s tells of %s, which is no row", key, order.ID)
		delete(rows, order.ID)
		told++
		return true
	})
	require.Empty(t, slices.Collect(maps.Keys(rows)), "orders that no client was told of")
	require.Equal(t, told, s.home.count(t, "outbox"))
	messages, _ := s.home.published(t)
	require.Equal(t, told, messages)
	refused := make(map[any]int64)
	s.refused.Range(func(what, n any) bool { refused[what] = n.(*atomic.Int64).Load(); return true })
	t.Logf("%d orders; %v", told, refused)
}
