package runtest

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// Tests of what is left of a run that ends without an answer while requests wait for it.

// The key is bound anew while requests wait for its first payload. Duplicates of the other payload
// wait for their own run.
func TestPayloadsOfOneKeyDoNotWaitTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, run int64) {
			if run == 1 {
				time.Sleep(20*time.Second + 10*time.Millisecond) // not when the store is asked
				w.WriteHeader(http.StatusTooManyRequests)
				return
			}
			time.Sleep(5 * time.Second)
			_, _ = w.Write([]byte("done"))
		}}
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), h, idempotency.WithWait(time.Minute), idempotency.WithRebinding(true))
		one, two := guardtest.Call{Key: "k", Body: "one"}, guardtest.Call{Key: "k", Body: "two"}
		first := p.Start(t, one)
		ofFirst := p.Waiters(t, 1, one)
		require.Equal(t, http.StatusTooManyRequests, (<-first).Status)
		second := p.Start(t, two)
		ofSecond := p.Waiters(t, 3, two)
		guardtest.RequireProblem(t, <-ofFirst, http.StatusConflict, problem.KeyReused)
		require.Equal(t, "done", (<-second).Body)
		guardtest.RequireReplays(t, 3, ofSecond, "done")
	})
}

// The process of those who wait cannot reach the store until the run, which lives longer than the
// lease that they have seen, has failed elsewhere.
func TestWaitersDoNotRepeatAFailureThatTheyHaveNotSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := idempotency.NewMemoryStore()
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			time.Sleep(guardtest.LeaseTime + 10*time.Second)
			w.WriteHeader(http.StatusBadGateway)
		}}
		owner, p := guardtest.NewProcess(t, shared, h), guardtest.NewProcess(t, shared, h, idempotency.WithWait(5*time.Minute))
		run := owner.Start(t, guardtest.Call{Key: "k"})
		replies := p.Waiters(t, 3, guardtest.Call{Key: "k"})
		time.Sleep(5 * time.Second)
		p.Store.Fail(guardtest.Refuse)
		require.Equal(t, http.StatusBadGateway, (<-run).Status)
		p.Store.Heal()
		guardtest.RequireProblems(t, 3, replies, http.StatusConflict, problem.InFlight)
		require.EqualValues(t, 1, h.Runs.Load())
	})
}

// Those who wait change nothing: the key stays bound to its request, and the next attempt has the next
// number. A key whose attempts are counted would be held before its time.
func TestWaitersLeaveAFailedKeyAsItIs(t *testing.T) {
	for _, status := range []int{http.StatusInternalServerError, http.StatusTooManyRequests} {
		guardtest.Bubble(t, http.StatusText(status), func(t *testing.T) {
			var attempts []int
			h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
				attempts = append(attempts, guardtest.Op(r.Context()).Attempt())
				time.Sleep(time.Second)
				w.WriteHeader(status)
			}}
			shared := idempotency.NewMemoryStore()
			p, _ := guardtest.NewWatchingProcess(t, shared, h, idempotency.WithWait(time.Minute))
			other := guardtest.NewProcess(t, shared, h, idempotency.WithWait(time.Minute))
			for range 3 {
				owner := p.Start(t, guardtest.Call{Key: "k", Body: "one"})
				here, there := p.Waiters(t, 2, guardtest.Call{Key: "k", Body: "one"}), other.Waiters(t, 2, guardtest.Call{Key: "k", Body: "one"})
				require.Equal(t, status, (<-owner).Status)
				for range 2 {
					guardtest.RequireProblem(t, <-here, http.StatusConflict, problem.InFlight)
					guardtest.RequireProblem(t, <-there, http.StatusConflict, problem.InFlight)
				}
			}
			require.Equal(t, []int{1, 2, 3}, attempts)
			guardtest.RequireProblem(t, p.Do(t, guardtest.Call{Key: "k", Body: "two"}), http.StatusConflict, problem.KeyReused)
		})
	}
}

// leadAndLeave makes a request whose client hangs up as soon as it has taken the record of a dead
// process over.
func leadAndLeave(t *testing.T, p *guardtest.Process, shared *idempotency.MemoryStore) {
	t.Helper()
	ctx, hangUp := context.WithCancel(t.Context())
	t.Cleanup(hangUp)
	go func() { _, _ = p.TryAlone(ctx, guardtest.Call{Key: "k"}) }()
	synctest.Wait()
	p.Store.On("claim", func(int) guardtest.Fault {
		return func(_ context.Context, proceed func() error) error {
			err := proceed()
			if page, _ := shared.List(t.Context(), store.Query{}); page.Entries[0].Record.Attempt > 1 {
				hangUp()
			}
			return err
		}
	})
}

// The process of a run dies, and the client of the one that takes its record over hangs up before the
// handler has begun. Another of those who wait runs.
func TestTakeoverThatIsGivenBackIsTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := idempotency.NewMemoryStore()
		runInDeadProcess(t, shared)
		h := guardtest.Answering(time.Second, "done")
		p := guardtest.NewProcess(t, shared, h, idempotency.WithWait(5*time.Minute), idempotency.WithClientCancel(true))
		leadAndLeave(t, p, shared)
		replies := p.Waiters(t, 3, guardtest.Call{Key: "k"})
		guardtest.RequireOneRun(t, 3, replies, "done")
		require.EqualValues(t, 1, h.Runs.Load())
	})
}

// As above, but a request that has not waited is faster, and its run fails. Then nobody runs, also if
// the lead has changed meanwhile.
func TestTakeoverThatIsGivenBackIsTakenOverOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := idempotency.NewMemoryStore()
		runInDeadProcess(t, shared)
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			time.Sleep(20 * time.Second)
			w.WriteHeader(http.StatusBadGateway)
		}}
		p := guardtest.NewProcess(t, shared, h, idempotency.WithWait(5*time.Minute), idempotency.WithClientCancel(true))
		leadAndLeave(t, p, shared)
		brief := guardtest.ServeRecorder(t, p.Guard.With(idempotency.WithWait(guardtest.LeaseTime+10*time.Second)).Handler(h))
		next := make(chan guardtest.Reply, 1)
		go func() { next <- brief.Attempt(t, guardtest.Call{Key: "k"}) }()
		synctest.Wait()
		replies := p.Waiters(t, 3, guardtest.Call{Key: "k"})

		other := guardtest.NewProcess(t, shared, h)
		for page, _ := shared.List(t.Context(), store.Query{}); page.Entries[0].Record.State != store.Released; page, _ = shared.List(t.Context(), store.Query{}) {
			time.Sleep(20 * time.Millisecond)
		}
		faster := other.Start(t, guardtest.Call{Key: "k"})
		guardtest.RequireProblem(t, <-next, http.StatusConflict, problem.InFlight)
		require.Equal(t, http.StatusBadGateway, (<-faster).Status)
		guardtest.RequireProblems(t, 3, replies, http.StatusConflict, problem.InFlight)
		require.EqualValues(t, 1, h.Runs.Load())
	})
}

// While the process of those who wait cannot reach the store, the key is bound to another payload, and
// set free by its run too. It is nobody's then, so it is not used for another payload.
func TestWaitersMeetAKeyThatIsFreeForAnyPayload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := idempotency.NewMemoryStore()
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, run int64) {
			if run <= 2 {
				time.Sleep(10 * time.Second)
				w.WriteHeader(http.StatusTooManyRequests)
			}
		}}
		rebinding := idempotency.WithRebinding(true)
		owner, p := guardtest.NewProcess(t, shared, h, rebinding), guardtest.NewProcess(t, shared, h, rebinding, idempotency.WithWait(5*time.Minute))
		one, two := guardtest.Call{Key: "k", Body: "one"}, guardtest.Call{Key: "k", Body: "two"}
		run := owner.Start(t, one)
		replies := p.Waiters(t, 2, one)
		p.Store.Fail(guardtest.Refuse)
		require.Equal(t, http.StatusTooManyRequests, (<-run).Status)
		require.Equal(t, http.StatusTooManyRequests, (<-owner.Start(t, two)).Status)
		p.Store.Heal()
		guardtest.RequireProblems(t, 2, replies, http.StatusConflict, problem.InFlight)
		require.Equal(t, http.StatusOK, (<-p.Start(t, one)).Status)
	})
}
