package security

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
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
		guardtest.RequireReplays(t, roomPerKey, flood, "done")
		require.EqualValues(t, 2, h.Runs.Load())
	})
}

// A client that repeats requests with many keys fills the share of its scope, and other
// tenants still wait.
func TestFloodOfOneScopeLeavesRoomForOthers(t *testing.T) {
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
			guardtest.RequireReplays(t, roomPerKey/2, replies, "done")
		}
	})
}

// A waiting request keeps its body. Those of one key take 16 MiB at most, and those of one scope 32.
func TestWaitingBodiesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := guardtest.Answering(20*time.Second, "done")
		p, _ := guardtest.NewWatchingProcess(t, idempotency.NewMemoryStore(), h, idempotency.WithWait(time.Minute))
		const each = (1 << 20) + (16-3)<<10 // what a waiting request counts, with its header
		body := strings.Repeat("x", 1<<20)
		var replies []<-chan guardtest.Reply
		flood := func(key string, n int) {
			large := guardtest.Call{Key: key, Tenant: "flooding", Body: body}
			p.Start(t, large)
			replies = append(replies, p.Waiters(t, n, large))
			guardtest.RequireProblem(t, p.Do(t, large), http.StatusConflict, problem.InFlight)
		}
		const ofKey, ofScope = (16 << 20) / each, (32 << 20) / each
		flood("a", ofKey)
		flood("b", ofKey)
		flood("c", ofScope-2*ofKey)
		other := guardtest.Call{Key: "k", Tenant: "other", Body: body}
		p.Start(t, other)
		require.True(t, (<-p.Waiters(t, 1, other)).Replayed())
		for i, n := range []int{ofKey, ofKey, ofScope - 2*ofKey} {
			guardtest.RequireReplays(t, n, replies[i], "done")
		}
	})
}

// A waiting request keeps its target and its header too. Many short fields take more memory than they are
// long.
func TestWaitingHeadsAreBounded(t *testing.T) {
	fields := http.Header{}
	for i := range 2000 {
		fields.Set(fmt.Sprint("X-", i), "")
	}
	values := http.Header{"X-Many": make([]string, 8000)}
	for name, tt := range map[string]struct {
		call guardtest.Call
		each int // what it counts at least
	}{
		"header":      {guardtest.Call{Header: http.Header{"X-Large": {strings.Repeat("x", 1<<20)}}}, 1 << 20},
		"many fields": {guardtest.Call{Header: fields}, 2000 * (128 + 32)},
		"many values": {guardtest.Call{Header: values}, 8000 * 32},
		"target":      {guardtest.Call{Path: "/charges?" + strings.Repeat("x", 1<<20)}, 1 << 20},
	} {
		guardtest.Bubble(t, name, func(t *testing.T) {
			h := guardtest.Answering(20*time.Second, "done")
			p, _ := guardtest.NewWatchingProcess(t, idempotency.NewMemoryStore(), h, idempotency.WithWait(time.Minute))
			tt.call.Key = "k"
			p.Start(t, tt.call)
			const ofKey = 16 << 20
			replies := p.Waiters(t, ofKey/(tt.each+40<<10), tt.call)
			for range ofKey / tt.each / 10 { // as many as there may be more room for
				go func() { p.Attempt(t, tt.call) }()
			}
			synctest.Wait()
			require.LessOrEqual(t, p.Guard.Stats().Waiting, ofKey/tt.each)
			guardtest.RequireProblem(t, p.Do(t, tt.call), http.StatusConflict, problem.InFlight)
			guardtest.RequireReplays(t, ofKey/(tt.each+40<<10), replies, "done")
		})
	}
}

// A call of Do that waits keeps its payload: what waits for a message of 1 MiB is as much as for a request.
func TestWaitingCallsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithWait(time.Minute))
		payload := make([]byte, 1<<20)
		do := func() error {
			_, _, err := idempotency.Do(t.Context(), guard, idempotency.Key{Scope: "queue", Value: "k"}, func(context.Context) (int, error) {
				time.Sleep(20 * time.Second)
				return 1, nil
			}, idempotency.WithPayload(payload))
			return err
		}
		const ofKey = (16 << 20) / (1<<20 + (16-4)<<10)
		errs := make(chan error, 100)
		for range cap(errs) {
			go func() { errs <- do() }()
			synctest.Wait()
		}
		require.Equal(t, ofKey, guard.Stats().Waiting)
		for range cap(errs) - ofKey - 1 {
			require.ErrorIs(t, <-errs, idempotency.ErrInFlight)
		}
		for range ofKey + 1 {
			require.NoError(t, <-errs)
		}
	})
}

// The room is as large as the memory that it is given: here it holds five thousand requests with one
// key, which get a quarter of it, and five thousand with a key each.
func TestWaitingRoomGrowsWithItsMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const waiters = 5_000
		h := guardtest.Answering(20*time.Second, "done")
		p, _ := guardtest.NewWatchingProcess(t, idempotency.NewMemoryStore(), h,
			idempotency.WithWait(time.Minute), idempotency.WithLimits(idempotency.Limits{WaitingBytes: 4 * waiters * 16 << 10}))
		one := guardtest.Call{Key: "one"}
		p.Start(t, one)
		ofOne := p.Waiters(t, waiters, one)
		require.Equal(t, waiters, p.Guard.Stats().Waiting)
		guardtest.RequireProblem(t, p.Do(t, one), http.StatusConflict, problem.InFlight)

		replies := make(chan guardtest.Reply, 2*waiters)
		for range 2 { // the run, then the one that waits for it
			for i := range waiters {
				go func() { replies <- p.Attempt(t, guardtest.Call{Key: fmt.Sprintf("key-%d", i)}) }()
			}
			synctest.Wait()
		}
		require.Equal(t, 2*waiters, p.Guard.Stats().Waiting)
		guardtest.RequireReplays(t, waiters, ofOne, "done")
		replayed := 0
		for range 2 * waiters {
			if (<-replies).Replayed() {
				replayed++
			}
		}
		require.Equal(t, waiters, replayed)
		require.EqualValues(t, waiters+1, h.Runs.Load())
		require.Zero(t, p.Guard.Stats().Waiting)
	})
}

// Each waiting request holds a connection, so their number is bounded. A request gives its
// place back when it gets its answer, and when it gives up.
func TestWaitingRoomIsBounded(t *testing.T) {
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

		guardtest.RequireProblems(t, room/2, replies, http.StatusConflict, problem.InFlight)
		require.True(t, patient.Do(t, late).Replayed(), "those who gave up still take room")
		guardtest.RequireReplays(t, room/2, replies, "done")
		require.EqualValues(t, room/roomPerKey+1, h.Runs.Load())
	})
}

// shares are stores that a tenant can fill: with many records, or with few large answers.
var shares = map[string]struct {
	limit  idempotency.MemoryOption
	answer int
}{
	"entries": {idempotency.WithMaxEntries(100), 10},
	"bytes":   {idempotency.WithMaxBytes(256 << 10), 8 << 10},
}

// flood sends ever new keys of a tenant and returns those that were accepted.
func flood(t *testing.T, s *guardtest.Server, tenant string, n int) (accepted []string) {
	t.Helper()
	for i := range n {
		key := fmt.Sprint(i)
		got := s.Do(t, guardtest.Call{Key: key, Tenant: tenant})
		if got.Status == http.StatusCreated {
			accepted = append(accepted, key)
			continue
		}
		guardtest.RequireProblem(t, got, http.StatusServiceUnavailable, problem.StoreUnavailable)
	}
	return accepted
}

// newcomers returns how many records four tenants with a name like this get, who each ask for
// some. One of them may have to share with the tenant that has filled the store.
func newcomers(t *testing.T, s *guardtest.Server, name string, each int) (n int) {
	t.Helper()
	for i := range 4 {
		n += len(flood(t, s, strings.Repeat(name, i+1), each))
	}
	return n
}

func answering(bytes int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, strings.Repeat("x", bytes))
	})
}

// One tenant fills the store. It is refused, and the others still get in.
func TestTenantThatFillsTheStoreIsRefusedBeforeOthers(t *testing.T) {
	for name, share := range shares {
		t.Run(name, func(t *testing.T) {
			s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, idempotency.NewMemoryStore(share.limit)).Handler(answering(share.answer)))
			own := flood(t, s, "greedy", 400)
			require.NotEmpty(t, own)
			require.GreaterOrEqual(t, newcomers(t, s, "other", 1), 3)
			require.Empty(t, flood(t, s, "greedy", 400)[len(own):], "its own records are still answered, and no more of them")
		})
	}
}

// Tenants have more than their share, and give it back. They get in again when somebody else has
// filled the store.
func TestRoomThatIsGivenBackIsInNoShare(t *testing.T) {
	st := idempotency.NewMemoryStore(idempotency.WithMaxEntries(100))
	s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, st).Handler(answering(10)))
	require.Equal(t, 60, newcomers(t, s, "former", 15))
	for _, e := range guardtest.List(t, st, store.Query{}) {
		require.NoError(t, st.Forget(t.Context(), e.Key, e.Record.Seen()))
	}
	require.Len(t, flood(t, s, "greedy", 400), 75)
	require.GreaterOrEqual(t, newcomers(t, s, "former", 1), 3)
}

// Callers that share one scope share all of the room.
func TestSharedScopeHasAllTheRoom(t *testing.T) {
	guard, err := idempotency.New(idempotency.NewMemoryStore(idempotency.WithMaxEntries(100)), idempotency.SharedScope,
		idempotency.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	s := guardtest.ServeRecorder(t, guard.Handler(answering(10)))
	require.Len(t, flood(t, s, "", 400), 100)
}
