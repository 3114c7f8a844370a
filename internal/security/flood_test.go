package security

import (
	"fmt"
	"net/http"
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
			c := guardtest.Call{Key: fmt.Sprintf("key-%d", i)}
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
