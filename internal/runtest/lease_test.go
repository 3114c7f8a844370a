package runtest

import (
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// The tests of this file run in bubbles with a fake clock: ten minutes take no time, and
// a goroutine that is left over is a failure. Two guards on one store are two processes.

func TestSlowRunIsNeverOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := idempotency.NewMemoryStore()
		slow, eager := guardtest.Answering(10*time.Minute, "slow"), guardtest.Answering(0, "eager")
		a, b := guardtest.NewProcess(t, shared, slow), guardtest.NewProcess(t, shared, eager)
		done := a.Start(t, guardtest.Call{Key: "k"})
		end := time.Now().Add(10 * time.Minute)
		for time.Now().Before(end) {
			guardtest.RequireProblem(t, b.Do(t, guardtest.Call{Key: "k"}), http.StatusConflict, problem.InFlight)
			time.Sleep(700 * time.Millisecond)
		}
		require.Equal(t, "slow", (<-done).Body)
		got := b.Do(t, guardtest.Call{Key: "k"})
		require.True(t, got.Replayed())
		require.Equal(t, "slow", got.Body)
		require.Zero(t, eager.Runs.Load())
		require.InDelta(t, 600/10, a.Store.Count("renew"), 2, "one renewal for each third of the lease")
		a.RequireQuiet(t)
	})
}

// A run shorter than a third of the lease costs a claim and a completion and nothing
// else, then or later.
func TestFastRunIsNotRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), guardtest.Answering(guardtest.LeaseTime/3-time.Millisecond, "fast"))
		p.Do(t, guardtest.Call{Key: "k"})
		p.RequireQuiet(t)
		require.Equal(t, 2, p.Store.Total())
	})
}

// What a renewal reports that is under way when the run ends no longer matters.
func TestRunEndsDuringARenewal(t *testing.T) {
	for name, f := range map[string]guardtest.Fault{"slow": guardtest.Late(time.Second), "slow and refused": func(context.Context, func() error) error {
		time.Sleep(time.Second)
		return store.ErrNotOwner
	}} {
		guardtest.Bubble(t, name, func(t *testing.T) {
			p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), guardtest.Answering(guardtest.LeaseTime/3+time.Second/2, "done"))
			p.Store.On("renew", guardtest.Always(f))
			require.Equal(t, "done", p.Do(t, guardtest.Call{Key: "k"}).Body)
			time.Sleep(time.Second)
			require.True(t, p.Do(t, guardtest.Call{Key: "k"}).Replayed())
			require.NotContains(t, p.Events.Kinds(), event.LeaseLost)
			require.Equal(t, 1, p.Store.Count("renew"))
			p.RequireQuiet(t)
		})
	}
}

// The process dies: what reaches the store from it ends, and its run never does.
func TestClaimOfADeadProcessLapses(t *testing.T) {
	tests := map[string]struct {
		dead, next idempotency.Recovery
		held       bool
	}{
		"rerun":                     {idempotency.Rerun, idempotency.Rerun, false},
		"hold":                      {idempotency.Hold, idempotency.Hold, true},
		"hold said by the dead one": {idempotency.Hold, idempotency.Rerun, true},
		"hold said by the next":     {idempotency.Rerun, idempotency.Hold, true},
	}
	for name, tt := range tests {
		guardtest.Bubble(t, name, func(t *testing.T) {
			shared := idempotency.NewMemoryStore()
			leave := make(chan struct{})
			dead := guardtest.NewProcess(t, shared, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-leave }),
				idempotency.WithRecovery(tt.dead))
			attempt := 0
			next := guardtest.NewProcess(t, shared, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				attempt = guardtest.Op(r.Context()).Attempt()
			}), idempotency.WithRecovery(tt.next))

			done := dead.Start(t, guardtest.Call{Key: "k"})
			dead.Store.Fail(guardtest.Refuse)
			defer func() { // the test cannot leave a dead process behind
				close(leave)
				<-done
				require.ErrorIs(t, dead.Guard.Shutdown(guardtest.Shortly(t)), context.DeadlineExceeded)
			}()
			time.Sleep(guardtest.LeaseTime - time.Nanosecond)
			guardtest.RequireProblem(t, next.Do(t, guardtest.Call{Key: "k"}), http.StatusConflict, problem.InFlight)
			time.Sleep(time.Nanosecond)
			got := next.Do(t, guardtest.Call{Key: "k"})
			if tt.held {
				guardtest.RequireProblem(t, got, http.StatusConflict, problem.OutcomeUnknown)
				require.Zero(t, attempt)
			} else {
				require.Equal(t, http.StatusOK, got.Status)
				require.Equal(t, 2, attempt)
			}
		})
	}
}

// A run that is told to stop may say so with any status. That is no answer to the request,
// whereas one that went through is.
func TestRefusalOfACancelledRunIsNotRecorded(t *testing.T) {
	for status, want := range map[int]guardtest.Fate{
		http.StatusConflict: guardtest.RunsNext, http.StatusBadRequest: guardtest.RunsNext, http.StatusServiceUnavailable: guardtest.RunsNext,
		http.StatusCreated: guardtest.Replays,
	} {
		guardtest.Bubble(t, http.StatusText(status), func(t *testing.T) {
			h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, run int64) {
				if run == 1 {
					<-r.Context().Done()
					w.WriteHeader(status)
				}
			}}
			p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), h)
			p.Store.On("renew", guardtest.Always(guardtest.Refuse))
			shown := status
			if want == guardtest.RunsNext {
				shown = http.StatusServiceUnavailable // no-answer: nothing is refused yet
			}
			require.Equal(t, shown, p.Do(t, guardtest.Call{Key: "k"}).Status)
			guardtest.RequireFate(t, p.Server, h, guardtest.Call{Key: "k"}, want)
		})
	}
}

// A paused owner: nothing reaches the store from it for longer than its lease, and
// another run takes over. When it wakes up, its client gets what everybody gets.
func TestPausedOwnerDoesNotShowItsAnswer(t *testing.T) {
	pause := func(t *testing.T, second *guardtest.Counter, opts ...idempotency.Option) (owner, other *guardtest.Process, done <-chan guardtest.Reply) {
		shared := idempotency.NewMemoryStore()
		asleep := make(chan struct{})
		owner = guardtest.NewProcess(t, shared, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			<-asleep // and does not look at its context
			_, _ = io.WriteString(w, "first")
		}), opts...)
		owner.Store.On("renew", guardtest.Always(guardtest.Deaf(asleep)))
		other = guardtest.NewProcess(t, shared, second)
		done = owner.Start(t, guardtest.Call{Key: "k"})
		time.AfterFunc(guardtest.LeaseTime+time.Second, func() { close(asleep) })
		time.Sleep(guardtest.LeaseTime)
		return owner, other, done
	}
	guardtest.Bubble(t, "the other has finished", func(t *testing.T) {
		owner, other, done := pause(t, guardtest.Answering(0, "second"))
		require.Equal(t, "second", other.Do(t, guardtest.Call{Key: "k"}).Body)
		got := <-done
		require.True(t, got.Replayed())
		require.Equal(t, "second", got.Body)
		require.Equal(t, "second", owner.Do(t, guardtest.Call{Key: "k"}).Body)
		owner.RequireQuiet(t)
	})
	guardtest.Bubble(t, "the other is in flight", func(t *testing.T) {
		_, other, done := pause(t, guardtest.Answering(time.Minute, "second"))
		second := other.Start(t, guardtest.Call{Key: "k"})
		guardtest.RequireProblem(t, <-done, http.StatusConflict, problem.InFlight)
		require.Equal(t, "second", (<-second).Body)
		require.Equal(t, "second", other.Do(t, guardtest.Call{Key: "k"}).Body)
	})
	guardtest.Bubble(t, "the other has given up", func(t *testing.T) {
		failing := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			w.WriteHeader(http.StatusInternalServerError)
		}}
		_, other, done := pause(t, failing)
		require.Equal(t, http.StatusInternalServerError, other.Do(t, guardtest.Call{Key: "k"}).Status)
		require.Equal(t, "first", (<-done).Body, "an effect that happened is recorded while nobody runs")
		got := other.Do(t, guardtest.Call{Key: "k"})
		require.True(t, got.Replayed())
		require.Equal(t, "first", got.Body)
		require.EqualValues(t, 1, failing.Runs.Load())
	})
	guardtest.Bubble(t, "nobody came", func(t *testing.T) {
		_, other, done := pause(t, guardtest.Answering(0, "second"))
		require.Equal(t, "first", (<-done).Body)
		require.Equal(t, "first", other.Do(t, guardtest.Call{Key: "k"}).Body)
	})
	guardtest.Bubble(t, "the other has finished, and the store does not say so", func(t *testing.T) {
		owner, other, done := pause(t, guardtest.Answering(0, "second"))
		owner.Store.On("complete", guardtest.First(2, guardtest.Hang))
		require.Equal(t, "second", other.Do(t, guardtest.Call{Key: "k"}).Body)
		guardtest.RequireProblem(t, <-done, http.StatusConflict, problem.InFlight)
		require.Equal(t, "second", owner.Do(t, guardtest.Call{Key: "k"}).Body)
	})
	guardtest.Bubble(t, "the key is held", func(t *testing.T) {
		_, other, done := pause(t, guardtest.Answering(0, "second"), idempotency.WithRecovery(idempotency.Hold))
		guardtest.RequireProblem(t, other.Do(t, guardtest.Call{Key: "k"}), http.StatusConflict, problem.OutcomeUnknown)
		require.Equal(t, "first", (<-done).Body, "its own outcome is no longer unknown")
		require.Equal(t, "first", other.Do(t, guardtest.Call{Key: "k"}).Body)
	})
}

// A store that loses a record in the middle of the run (FLUSHALL, a restart without
// persistence): the effect is recorded afresh, or held afresh.
func TestRecordThatIsLostDuringTheRunIsMadeAnew(t *testing.T) {
	for name, tt := range map[string]struct {
		status   int
		recovery idempotency.Recovery
		want     guardtest.Fate
	}{
		"final":            {http.StatusCreated, idempotency.Rerun, guardtest.Replays},
		"final under hold": {http.StatusCreated, idempotency.Hold, guardtest.Replays},
		"unknown":          {http.StatusBadGateway, idempotency.Rerun, guardtest.RunsNext},
		"held":             {http.StatusBadGateway, idempotency.Hold, guardtest.IsHeld},
	} {
		guardtest.Bubble(t, name, func(t *testing.T) {
			h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
				time.Sleep(time.Second)
				w.WriteHeader(tt.status)
			}}
			p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), h, idempotency.WithRecovery(tt.recovery))
			done := p.Start(t, guardtest.Call{Key: "k"})
			p.Store.Replace(idempotency.NewMemoryStore())
			require.Equal(t, tt.status, (<-done).Status)
			guardtest.RequireFate(t, p.Server, h, guardtest.Call{Key: "k"}, tt.want)
			p.RequireQuiet(t)
		})
	}
}

// A client is kept waiting for two seconds and no longer, however many calls it takes to
// record its answer, and however slow each of them is.
func TestClientIsAnsweredInTimeByASlowStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := guardtest.Answering(time.Second, "done")
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), h)
		done := p.Start(t, guardtest.Call{Key: "k"})
		fresh := &guardtest.FaultStore{Behind: idempotency.NewMemoryStore()} // it has lost the record
		p.Store.Replace(fresh)
		fresh.Fail(guardtest.Late(900 * time.Millisecond))
		start := time.Now()
		require.Equal(t, "done", (<-done).Body)
		require.LessOrEqual(t, time.Since(start), 3*time.Second, "one of which is the run's")
		fresh.Heal()
		time.Sleep(5 * time.Second)
		require.True(t, p.Do(t, guardtest.Call{Key: "k"}).Replayed())
		require.EqualValues(t, 1, h.Runs.Load())
	})
}

// Making the record anew takes two calls, and each may fail: it is still one run that is
// being recorded, and it is not in its own way.
func TestRecordIsMadeAnewThroughFailures(t *testing.T) {
	for name, faults := range map[string]map[string]func(int) guardtest.Fault{
		"claim refused":         {"claim": guardtest.First(3, guardtest.Refuse)},
		"claim's reply lost":    {"claim": guardtest.First(3, guardtest.LoseReply)},
		"complete refused":      {"complete": guardtest.Between(2, 4, guardtest.Refuse)},
		"complete's reply lost": {"complete": guardtest.Between(2, 4, guardtest.LoseReply)},
		"complete away":         {"complete": guardtest.Between(2, 50, guardtest.Refuse)},
	} {
		guardtest.Bubble(t, name, func(t *testing.T) {
			h := guardtest.Answering(15*time.Second, "done") // a renewal has noticed, too
			p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), h)
			done := p.Start(t, guardtest.Call{Key: "k"})
			fresh := &guardtest.FaultStore{Behind: idempotency.NewMemoryStore()}
			for op, f := range faults {
				fresh.On(op, f)
			}
			p.Store.Replace(fresh)
			other := guardtest.NewProcess(t, fresh.Behind, h)
			require.Equal(t, "done", (<-done).Body)
			for range 200 {
				got := other.Do(t, guardtest.Call{Key: "k"})
				if !got.Replayed() {
					guardtest.RequireProblem(t, got, http.StatusConflict, problem.InFlight)
				}
				time.Sleep(time.Second)
			}
			require.True(t, other.Do(t, guardtest.Call{Key: "k"}).Replayed())
			require.EqualValues(t, 1, h.Runs.Load())
		})
	}
}
