package security

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
)

// The numbers of requests of one process that may wait for one key, and for all keys.
const (
	roomPerKey = 1024
	room       = 4096
)

// A client that repeats a request without end fills only its own share of the room. The
// guard tells the duplicates above it at once to come back, and requests with other keys
// still wait.
func TestFloodOfOneKeyLeavesRoomForOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := guardtest.Answering(20*time.Second, "done")
		p, _ := guardtest.NewWatchingProcess(t, idempotency.NewMemoryStore(), h, idempotency.WithWait(time.Minute))
		p.Start(t, guardtest.Call{Key: "flooded"})
		p.Start(t, guardtest.Call{Key: "other"})
		start := time.Now()
		flood := p.Waiters(t, roomPerKey, guardtest.Call{Key: "flooded"})
		for range 100 {
			guardtest.RequireProblem(t, p.Do(t, guardtest.Call{Key: "flooded"}), http.StatusConflict, problem.InFlight)
		}
		other := p.Waiters(t, 1, guardtest.Call{Key: "other"})
		require.Zero(t, time.Since(start))
		require.True(t, (<-other).Replayed())
		for range roomPerKey {
			require.True(t, (<-flood).Replayed())
		}
		require.EqualValues(t, 2, h.Runs.Load())
	})
}

// A client that repeats requests with many keys fills the share of its scope, and other
// tenants still wait.
func TestFloodOfOneScopeLeavesRoomForOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := guardtest.Answering(20*time.Second, "done")
		p, _ := guardtest.NewWatchingProcess(t, idempotency.NewMemoryStore(), h, idempotency.WithWait(time.Minute))
		flooding := make([]<-chan guardtest.Reply, 0, room/roomPerKey)
		for i := range cap(flooding) {
			c := guardtest.Call{Key: fmt.Sprintf("key-%d", i), Tenant: "flooding"}
			p.Start(t, c)
			flooding = append(flooding, p.Waiters(t, roomPerKey/2, c))
			if i == cap(flooding)-1 {
				guardtest.RequireProblem(t, p.Do(t, c), http.StatusConflict, problem.InFlight)
			}
		}
		other := guardtest.Call{Key: "k", Tenant: "other"}
		p.Start(t, other)
		require.True(t, (<-p.Waiters(t, 1, other)).Replayed())
		for _, replies := range flooding {
			for range roomPerKey / 2 {
				require.True(t, (<-replies).Replayed())
			}
		}
	})
}

// A waiting request keeps its body. Those of one scope take 32 MiB at most.
func TestWaitingBodiesAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := guardtest.Answering(20*time.Second, "done")
		p, _ := guardtest.NewWatchingProcess(t, idempotency.NewMemoryStore(), h, idempotency.WithWait(time.Minute))
		large := guardtest.Call{Key: "k", Tenant: "flooding", Body: strings.Repeat("x", 1<<20)}
		p.Start(t, large)
		replies := p.Waiters(t, 32, large)
		guardtest.RequireProblem(t, p.Do(t, large), http.StatusConflict, problem.InFlight)
		other := guardtest.Call{Key: "k", Tenant: "other", Body: large.Body}
		p.Start(t, other)
		require.True(t, (<-p.Waiters(t, 1, other)).Replayed())
		for range 32 {
			require.True(t, (<-replies).Replayed())
		}
	})
}

// Each waiting request holds a connection, so their number is bounded. A request gives its
// place back when it gets its answer, and when it gives up.
func TestWaitingRoomIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := guardtest.Answering(20*time.Second, "done")
		p, _ := guardtest.NewWatchingProcess(t, idempotency.NewMemoryStore(), h, idempotency.WithWait(10*time.Second))
		patient := guardtest.ServeRecorder(t, p.Guard.With(idempotency.WithWait(time.Minute)).Handler(h))
		late := guardtest.Call{Key: "late"}
		p.Start(t, late)
		replies := make(chan guardtest.Reply, room)
		for i := range room / roomPerKey {
			c := guardtest.Call{Key: fmt.Sprintf("key-%d", i), Tenant: fmt.Sprintf("tenant-%d", i)}
			p.Start(t, c)
			server := p.Server
			if i%2 == 0 {
				server = patient
			}
			for range roomPerKey {
				go func() { replies <- server.Attempt(t, c) }()
			}
		}
		synctest.Wait()
		start := time.Now()
		guardtest.RequireProblem(t, patient.Do(t, late), http.StatusConflict, problem.InFlight)
		require.Zero(t, time.Since(start), "it waits where there is no room")

		for range room / 2 {
			guardtest.RequireProblem(t, <-replies, http.StatusConflict, problem.InFlight)
		}
		require.True(t, patient.Do(t, late).Replayed(), "those who gave up still take room")
		for range room / 2 {
			require.True(t, (<-replies).Replayed())
		}
		require.EqualValues(t, room/roomPerKey+1, h.Runs.Load())
	})
}
