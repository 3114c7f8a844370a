package runtest

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
)

// onEachWakeup runs the test in a bubble, with a store that wakes those who wait, and with one that they ask. start
// makes a process over such a store.
func onEachWakeup(t *testing.T, test func(t *testing.T, wakes bool, start startFunc)) {
	for name, wakes := range map[string]bool{"woken": true, "asking": false} {
		t.Run(name, func(t *testing.T) { // not parallel: see TestWaitersShareOneWait
			synctest.Test(t, func(t *testing.T) {
				test(t, wakes, func(t *testing.T, shared idempotency.Store, h http.Handler) *guardtest.Process {
					opt := idempotency.WithWait(5 * time.Minute)
					if wakes {
						p, _ := guardtest.NewWatchingProcess(t, shared, h, opt)
						return p
					}
					return guardtest.NewProcess(t, shared, h, opt)
				})
			})
		})
	}
}

type startFunc func(t *testing.T, shared idempotency.Store, h http.Handler) *guardtest.Process

// A thousand duplicates cost the store one claim each, as any request does, and a handful
// of calls for all of them together, however long they wait. They cost the process the
// goroutines that they come with.
func TestWaitersShareOneWait(t *testing.T) {
	onEachWakeup(t, func(t *testing.T, wakes bool, start startFunc) { // not parallel: it counts goroutines
		const n = 1000
		h := guardtest.Answering(20*time.Second, "done")
		p := start(t, idempotency.NewMemoryStore(), h)
		owner := p.Start(t, guardtest.Call{Key: "k"})
		before := runtime.NumGoroutine()
		replies := p.Waiters(t, n, guardtest.Call{Key: "k"})
		require.LessOrEqual(t, runtime.NumGoroutine()-before, n+2)
		require.Equal(t, 1+n+boolInt(wakes), p.Store.Count("claim"), "the leader's claim after watching says that it waits")

		begun := time.Now()
		require.Equal(t, "done", (<-owner).Body)
		for range n {
			got := <-replies
			require.True(t, got.Replayed())
			require.Equal(t, "done", got.Body)
		}
		late := time.Second // the longest pause of one who asks
		if wakes {
			late = 0
		}
		require.LessOrEqual(t, time.Since(begun)-20*time.Second, late)
		require.Less(t, p.Store.Count("claim"), 1+n+30)
		require.EqualValues(t, 1, h.Runs.Load())
		p.RequireQuiet(t)
	})
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// The run ends after a request has found it in flight and before that request watches for
// its end, so that nobody is woken.
func TestEndBeforeTheWatchIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leave := make(chan struct{})
		h := &guardtest.Counter{Handler: func(http.ResponseWriter, *http.Request, int64) { <-leave }}
		p, store := guardtest.NewWatchingProcess(t, idempotency.NewMemoryStore(), h, idempotency.WithWait(time.Minute))
		owner := p.Start(t, guardtest.Call{Key: "k"})
		store.BeforeWatch = func() {
			close(leave)
			synctest.Wait()
		}
		start := time.Now()
		require.True(t, p.Do(t, guardtest.Call{Key: "k"}).Replayed())
		require.Zero(t, time.Since(start))
		<-owner
	})
}

// The leader's time is up before that of the others: one of them leads on, and is woken
// as the leader would have been.
func TestAnotherLeadsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := guardtest.Answering(20*time.Second, "done")
		p, store := guardtest.NewWatchingProcess(t, idempotency.NewMemoryStore(), h, idempotency.WithWait(5*time.Second))
		patient := guardtest.ServeRecorder(t, p.Guard.With(idempotency.WithWait(time.Minute)).Handler(h))
		start := time.Now()
		owner := p.Start(t, guardtest.Call{Key: "k"})
		leader := p.Start(t, guardtest.Call{Key: "k"})
		followers := make(chan guardtest.Reply, 3)
		for range cap(followers) {
			go func() { followers <- patient.Attempt(t, guardtest.Call{Key: "k"}) }()
		}
		guardtest.RequireProblem(t, <-leader, http.StatusConflict, problem.InFlight)
		require.Equal(t, 5*time.Second, time.Since(start))
		synctest.Wait()
		require.EqualValues(t, 1, store.Watching.Load())
		require.EqualValues(t, 2, store.Watches.Load())

		<-owner
		for range cap(followers) {
			require.Equal(t, "done", (<-followers).Body)
		}
		require.Equal(t, 20*time.Second, time.Since(start))
		require.Zero(t, store.Watching.Load(), "a watch is left behind")
	})
}

// runInDeadProcess starts a run of the key "k" whose process then loses the store for good.
func runInDeadProcess(t *testing.T, shared idempotency.Store) {
	t.Helper()
	leave := make(chan struct{})
	dead := guardtest.NewProcess(t, shared, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-leave }))
	owner := dead.Start(t, guardtest.Call{Key: "k"})
	dead.Store.Fail(guardtest.Refuse)
	t.Cleanup(func() {
		close(leave)
		<-owner
		_ = dead.Guard.Shutdown(guardtest.Shortly(t))
	})
}

// The owner dies. Of those who wait for it one takes the record over, and the others wait
// on, for that one.
func TestLeaderTakesOverAndOthersWaitOn(t *testing.T) {
	onEachWakeup(t, func(t *testing.T, _ bool, start startFunc) {
		shared := idempotency.NewMemoryStore()
		runInDeadProcess(t, shared)
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
			time.Sleep(time.Minute) // of the bubble
			_, _ = io.WriteString(w, string(rune('0'+guardtest.Op(r.Context()).Attempt())))
		}}
		p, begun := start(t, shared, h), time.Now()
		replies := p.Waiters(t, 10, guardtest.Call{Key: "k"})
		guardtest.RequireOneRun(t, 10, replies, "2")
		require.EqualValues(t, 1, h.Runs.Load())
		require.LessOrEqual(t, time.Since(begun), guardtest.LeaseTime+time.Minute+time.Second)
	})
}

// The run that is waited for ends without an answer. Nobody has retried, so nothing runs again until
// somebody does.
func TestWaitersDoNotRepeatAFailure(t *testing.T) {
	for _, status := range []int{http.StatusInternalServerError, http.StatusTooManyRequests} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			onEachWakeup(t, func(t *testing.T, _ bool, start startFunc) {
				h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, run int64) {
					time.Sleep(time.Minute) // longer than a lease, of the bubble
					if run == 1 {
						w.WriteHeader(status)
					}
				}}
				shared := idempotency.NewMemoryStore()
				p, other, begun := start(t, shared, h), start(t, shared, h), time.Now()
				owner := p.Start(t, guardtest.Call{Key: "k"})
				here := p.Waiters(t, 5, guardtest.Call{Key: "k"})
				there := other.Waiters(t, 5, guardtest.Call{Key: "k"})
				require.Equal(t, status, (<-owner).Status)
				for range 5 {
					guardtest.RequireProblem(t, <-here, http.StatusConflict, problem.InFlight)
					guardtest.RequireProblem(t, <-there, http.StatusConflict, problem.InFlight)
				}
				require.LessOrEqual(t, time.Since(begun), time.Minute+2*time.Second)
				require.EqualValues(t, 1, h.Runs.Load())
				require.Equal(t, http.StatusOK, p.Do(t, guardtest.Call{Key: "k"}).Status)
				require.True(t, other.Do(t, guardtest.Call{Key: "k"}).Replayed())
				require.EqualValues(t, 2, h.Runs.Load())
			})
		})
	}
}

// The owner dies, and the request that takes the record over fails at once. None of the others tries
// in its turn: this run has ended, and its process lives.
func TestWaitersDoNotRepeatTheFailureOfATakeover(t *testing.T) {
	onEachWakeup(t, func(t *testing.T, _ bool, start startFunc) {
		shared := idempotency.NewMemoryStore()
		runInDeadProcess(t, shared)
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			w.WriteHeader(http.StatusBadGateway)
		}}
		p := start(t, shared, h)
		replies := p.Waiters(t, 10, guardtest.Call{Key: "k"})
		for range 10 {
			if got := <-replies; got.Status != http.StatusBadGateway {
				guardtest.RequireProblem(t, got, http.StatusConflict, problem.InFlight)
			}
		}
		require.EqualValues(t, 1, h.Runs.Load())
	})
}

// Those who wait lead in the order in which they came, also when one hangs up.
func TestWaitersLeadInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := idempotency.NewMemoryStore()
		runInDeadProcess(t, shared)
		echo := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
			_, _ = io.WriteString(w, r.Header.Get("Turn"))
		}}
		p, _ := guardtest.NewWatchingProcess(t, shared, echo, idempotency.WithWait(5*time.Minute))
		const waiters = 20
		var replies [waiters]<-chan guardtest.Reply
		for i := range replies {
			c := guardtest.Call{Key: "k", Header: http.Header{"Turn": {strconv.Itoa(i)}}}
			if i > 0 {
				replies[i] = p.Waiters(t, 1, c)
				continue
			}
			ctx, hangUp := context.WithTimeout(t.Context(), time.Millisecond)
			defer hangUp()
			go func() { _, _ = p.TryAlone(ctx, c) }()
			synctest.Wait()
		}
		for i := 1; i < waiters; i++ {
			got := <-replies[i]
			require.Equal(t, "1", got.Body)
			require.Equal(t, i > 1, got.Replayed())
		}
	})
}

func TestHoldEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			time.Sleep(time.Second)
			w.WriteHeader(http.StatusBadGateway)
		}}
		p, _ := guardtest.NewWatchingProcess(t, idempotency.NewMemoryStore(), h,
			idempotency.WithWait(time.Minute), idempotency.WithRecovery(idempotency.Hold))
		owner := p.Start(t, guardtest.Call{Key: "k"})
		replies := p.Waiters(t, 5, guardtest.Call{Key: "k"})
		require.Equal(t, http.StatusBadGateway, (<-owner).Status)
		guardtest.RequireProblems(t, 5, replies, http.StatusConflict, problem.OutcomeUnknown)
	})
}

func TestClientGoneStopsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := guardtest.Answering(20*time.Second, "done")
		p, store := guardtest.NewWatchingProcess(t, idempotency.NewMemoryStore(), h, idempotency.WithWait(time.Minute))
		owner := p.Start(t, guardtest.Call{Key: "k"})
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan guardtest.Reply, 2)
		for range cap(gone) { // one of them leads
			go func() {
				got, _ := p.Try(ctx, guardtest.Call{Key: "k"})
				gone <- got
			}()
		}
		synctest.Wait()
		stays := p.Waiters(t, 1, guardtest.Call{Key: "k"})
		start := time.Now()
		cancel()
		guardtest.RequireProblems(t, cap(gone), gone, http.StatusConflict, problem.InFlight)
		require.Zero(t, time.Since(start))
		require.Equal(t, "done", (<-owner).Body)
		require.Equal(t, "done", (<-stays).Body)
		require.Equal(t, 20*time.Second, time.Since(start))
		require.Zero(t, store.Watching.Load())
		require.EqualValues(t, 1, h.Runs.Load())
	})
}

// The store goes away while requests wait: they wait on, and a watch that cannot be had
// is replaced by asking.
func TestWaitSurvivesTheStore(t *testing.T) {
	for name, f := range map[string]guardtest.Fault{"refused": guardtest.Refuse, "reply lost": guardtest.LoseReply, "hanging": guardtest.Hang} {
		guardtest.Bubble(t, name, func(t *testing.T) {
			shared := idempotency.NewMemoryStore()
			h := guardtest.Answering(40*time.Second, "done")
			owner := guardtest.NewProcess(t, shared, h)
			p, store := guardtest.NewWatchingProcess(t, shared, h, idempotency.WithWait(2*time.Minute))
			err := error(guardtest.ErrDown)
			store.WatchFault.Store(&err)
			done := owner.Start(t, guardtest.Call{Key: "k"})
			replies := p.Waiters(t, 5, guardtest.Call{Key: "k"})
			p.Store.On("claim", guardtest.Always(f))
			time.Sleep(30 * time.Second)
			p.Store.Heal()
			start := time.Now()
			require.Equal(t, "done", (<-done).Body)
			for range 5 {
				require.Equal(t, "done", (<-replies).Body)
			}
			require.LessOrEqual(t, time.Since(start), 14*time.Second)
			require.EqualValues(t, 1, h.Runs.Load())
		})
	}
}

// What cannot be read will not become readable by waiting.
func TestWaitEndsWithTheStoresAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := guardtest.Answering(20*time.Second, "done")
		shared := idempotency.NewMemoryStore()
		owner := guardtest.NewProcess(t, shared, h)
		p := guardtest.NewProcess(t, shared, h, idempotency.WithWait(time.Minute))
		done := owner.Start(t, guardtest.Call{Key: "k"})
		replies := p.Waiters(t, 3, guardtest.Call{Key: "k"})
		start := time.Now()
		p.Store.On("claim", guardtest.Always(guardtest.FailWith(idempotency.ErrCorrupt)))
		guardtest.RequireProblems(t, 3, replies, http.StatusInternalServerError, problem.AnswerUnreadable)
		require.LessOrEqual(t, time.Since(start), time.Second)
		<-done
	})
}

// The record that is waited for is forgotten, and the key used for another payload. That
// is not what was waited for.
func TestWaitEndsWhenTheKeyIsUsedForAnotherPayload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := guardtest.Answering(20*time.Second, "done")
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), h, idempotency.WithWait(time.Minute))
		owner := p.Start(t, guardtest.Call{Key: "k"})
		replies := p.Waiters(t, 3, guardtest.Call{Key: "k"})
		p.Store.Replace(idempotency.NewMemoryStore())
		other := p.Start(t, guardtest.Call{Key: "k", Body: "other"})
		start := time.Now()
		guardtest.RequireProblems(t, 3, replies, http.StatusConflict, problem.KeyReused)
		require.LessOrEqual(t, time.Since(start), time.Second)
		require.Equal(t, "done", (<-other).Body)
		require.Equal(t, "done", (<-owner).Body, "the other payload's record says nothing about it")
	})
}
