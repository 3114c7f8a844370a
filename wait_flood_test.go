package idempotency_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/problem"
)

// How many requests of a process may wait for one key, and for all keys.
const (
	roomPerKey = 1024
	room       = 4096
)

// A client that repeats a request without end fills its own share of the room: the
// duplicates above it are told at once to come back, and those of other keys wait.
func TestFloodOfOneKeyLeavesRoomForOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := answering(20*time.Second, "done")
		p, _ := newWatchingProcess(t, idempotency.NewMemoryStore(), h, idempotency.WithWait(time.Minute))
		p.start(t, call{key: "flooded"})
		p.start(t, call{key: "other"})
		start := time.Now()
		flood := p.waiters(t, roomPerKey, call{key: "flooded"})
		for range 100 {
			requireProblem(t, p.do(t, call{key: "flooded"}), http.StatusConflict, problem.InFlight)
		}
		other := p.waiters(t, 1, call{key: "other"})
		require.Zero(t, time.Since(start))
		require.True(t, (<-other).replayed())
		for range roomPerKey {
			require.True(t, (<-flood).replayed())
		}
		require.EqualValues(t, 2, h.runs.Load())
	})
}

// Requests that wait hold a connection each, so that their number is bounded, and the
// places are given back: by those who got their answer, and by those who gave up.
func TestWaitingRoomIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := answering(20*time.Second, "done")
		p, _ := newWatchingProcess(t, idempotency.NewMemoryStore(), h, idempotency.WithWait(10*time.Second))
		patient := serveRecorder(t, p.guard.With(idempotency.WithWait(time.Minute)).Handler(h))
		late := call{key: "late"}
		p.start(t, late)
		replies := make(chan reply, room)
		for i := range room / roomPerKey {
			c := call{key: fmt.Sprintf("key-%d", i)}
			p.start(t, c)
			server := p.server
			if i%2 == 0 {
				server = patient
			}
			for range roomPerKey {
				go func() { replies <- server.attempt(t, c) }()
			}
		}
		synctest.Wait()
		start := time.Now()
		requireProblem(t, patient.do(t, late), http.StatusConflict, problem.InFlight)
		require.Zero(t, time.Since(start), "it waits where there is no room")

		for range room / 2 {
			requireProblem(t, <-replies, http.StatusConflict, problem.InFlight)
		}
		require.True(t, patient.do(t, late).replayed(), "those who gave up still take room")
		for range room / 2 {
			require.True(t, (<-replies).replayed())
		}
		require.EqualValues(t, room/roomPerKey+1, h.runs.Load())
	})
}
