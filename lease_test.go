package idempotency_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/problem"
)

// The tests of this file run in bubbles with a fake clock: ten minutes take no time, and
// a goroutine that is left over is a failure. Two guards on one store are two processes.

const leaseTime = 30 * time.Second

// A process is a guard with a handler of its own on a store that others share, and that
// can be cut off from it.
type process struct {
	*server
	store  *faultStore
	guard  *idempotency.Guard
	events *events
}

func newProcess(t *testing.T, shared idempotency.Store, h http.Handler, opts ...idempotency.Option) *process {
	t.Helper()
	p := &process{store: &faultStore{behind: shared}, events: &events{}}
	opts = append([]idempotency.Option{idempotency.WithLease(leaseTime), idempotency.WithObserver(p.events.observe)}, opts...)
	p.guard = newGuard(t, p.store, opts...)
	p.server = serveRecorder(t, p.guard.Handler(h))
	return p
}

// attempt is do for other goroutines than the test's own.
func (s *server) attempt(t *testing.T, c call) reply {
	t.Helper()
	got, err := s.try(t.Context(), c)
	if err != nil {
		t.Error(err)
	}
	return got
}

// start makes a request that the test does not wait for, and returns when it is under
// way. In a bubble.
func (s *server) start(t *testing.T, c call) <-chan reply {
	t.Helper()
	done := make(chan reply, 1)
	go func() { done <- s.attempt(t, c) }()
	synctest.Wait()
	return done
}

// answering is a handler that takes d and then answers body.
func answering(d time.Duration, body string) *counter {
	return &counter{handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
		time.Sleep(d)
		_, _ = io.WriteString(w, body)
	}}
}

// requireQuiet checks that no timer is left that would call the store.
func (p *process) requireQuiet(t *testing.T) {
	t.Helper()
	synctest.Wait()
	before := p.store.total()
	time.Sleep(24 * time.Hour)
	require.Equal(t, before, p.store.total(), "the store is still being called")
}

func TestSlowRunIsNeverOvertaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := idempotency.NewMemoryStore()
		slow, eager := answering(10*time.Minute, "slow"), answering(0, "eager")
		a, b := newProcess(t, shared, slow), newProcess(t, shared, eager)
		done := a.start(t, call{key: "k"})
		end := time.Now().Add(10 * time.Minute)
		for time.Now().Before(end) {
			requireProblem(t, b.do(t, call{key: "k"}), http.StatusConflict, problem.InFlight)
			time.Sleep(700 * time.Millisecond)
		}
		require.Equal(t, "slow", (<-done).body)
		got := b.do(t, call{key: "k"})
		require.True(t, got.replayed())
		require.Equal(t, "slow", got.body)
		require.Zero(t, eager.runs.Load())
		require.InDelta(t, 600/10, a.store.count("renew"), 2, "one renewal for each third of the lease")
		a.requireQuiet(t)
	})
}

// A run shorter than a third of the lease costs a claim and a completion and nothing
// else, then or later.
func TestFastRunIsNotRenewed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(t, idempotency.NewMemoryStore(), answering(leaseTime/3-time.Millisecond, "fast"))
		p.do(t, call{key: "k"})
		p.requireQuiet(t)
		require.Equal(t, 2, p.store.total())
	})
}

// What a renewal reports that is under way when the run ends no longer matters.
func TestRunEndsDuringARenewal(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]fault{"slow": late(time.Second), "slow and refused": func(context.Context, func() error) error {
		time.Sleep(time.Second)
		return idempotency.ErrNotOwner
	}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newProcess(t, idempotency.NewMemoryStore(), answering(leaseTime/3+time.Second/2, "done"))
				p.store.on("renew", always(f))
				require.Equal(t, "done", p.do(t, call{key: "k"}).body)
				time.Sleep(time.Second)
				require.True(t, p.do(t, call{key: "k"}).replayed())
				require.NotContains(t, p.events.kinds(), idempotency.EventLeaseLost)
				require.Equal(t, 1, p.store.count("renew"))
				p.requireQuiet(t)
			})
		})
	}
}

// The process dies: what reaches the store from it ends, and its run never does.
func TestClaimOfADeadProcessLapses(t *testing.T) {
	t.Parallel()
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
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				shared := idempotency.NewMemoryStore()
				leave := make(chan struct{})
				dead := newProcess(t, shared, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-leave }),
					idempotency.WithRecovery(tt.dead))
				attempt := 0
				next := newProcess(t, shared, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					op, _ := idempotency.FromContext(r.Context())
					attempt = op.Attempt()
				}), idempotency.WithRecovery(tt.next))

				done := dead.start(t, call{key: "k"})
				dead.store.fail(refuse)
				defer func() { // the test cannot leave a dead process behind
					close(leave)
					<-done
					require.ErrorIs(t, dead.guard.Shutdown(shortly(t)), context.DeadlineExceeded)
				}()
				time.Sleep(leaseTime - time.Nanosecond)
				requireProblem(t, next.do(t, call{key: "k"}), http.StatusConflict, problem.InFlight)
				time.Sleep(time.Nanosecond)
				got := next.do(t, call{key: "k"})
				if tt.held {
					requireProblem(t, got, http.StatusConflict, problem.OutcomeUnknown)
					require.Zero(t, attempt)
				} else {
					require.Equal(t, http.StatusOK, got.status)
					require.Equal(t, 2, attempt)
				}
			})
		})
	}
}

// shortly is a context that gives a shutdown a second.
func shortly(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	t.Cleanup(cancel)
	return ctx
}

// A run that is told to stop may say so with any status. That is no answer to the request,
// whereas one that went through is.
func TestRefusalOfACancelledRunIsNotRecorded(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]fate{
		http.StatusConflict: runsNext, http.StatusBadRequest: runsNext, http.StatusServiceUnavailable: runsNext,
		http.StatusCreated: replays,
	} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := &counter{handler: func(w http.ResponseWriter, r *http.Request, run int64) {
					if run == 1 {
						<-r.Context().Done()
						w.WriteHeader(status)
					}
				}}
				p := newProcess(t, idempotency.NewMemoryStore(), h)
				p.store.on("renew", always(refuse))
				require.Equal(t, status, p.do(t, call{key: "k"}).status)
				requireFate(t, p.server, h, call{key: "k"}, want)
			})
		})
	}
}

// A paused owner: nothing reaches the store from it for longer than its lease, and
// another run takes over. When it wakes up, its client gets what everybody gets.
func TestPausedOwnerDoesNotShowItsAnswer(t *testing.T) {
	t.Parallel()
	pause := func(t *testing.T, second *counter, opts ...idempotency.Option) (owner, other *process, done <-chan reply) {
		shared := idempotency.NewMemoryStore()
		asleep := make(chan struct{})
		owner = newProcess(t, shared, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			<-asleep // and does not look at its context
			_, _ = io.WriteString(w, "first")
		}), opts...)
		owner.store.on("renew", always(deaf(asleep)))
		other = newProcess(t, shared, second)
		done = owner.start(t, call{key: "k"})
		time.AfterFunc(leaseTime+time.Second, func() { close(asleep) })
		time.Sleep(leaseTime)
		return owner, other, done
	}
	t.Run("the other has finished", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			owner, other, done := pause(t, answering(0, "second"))
			require.Equal(t, "second", other.do(t, call{key: "k"}).body)
			got := <-done
			require.True(t, got.replayed())
			require.Equal(t, "second", got.body)
			require.Equal(t, "second", owner.do(t, call{key: "k"}).body)
			owner.requireQuiet(t)
		})
	})
	t.Run("the other is in flight", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			_, other, done := pause(t, answering(time.Minute, "second"))
			second := other.start(t, call{key: "k"})
			requireProblem(t, <-done, http.StatusConflict, problem.InFlight)
			require.Equal(t, "second", (<-second).body)
			require.Equal(t, "second", other.do(t, call{key: "k"}).body)
		})
	})
	t.Run("the other has given up", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			failing := &counter{handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
				w.WriteHeader(http.StatusInternalServerError)
			}}
			_, other, done := pause(t, failing)
			require.Equal(t, http.StatusInternalServerError, other.do(t, call{key: "k"}).status)
			require.Equal(t, "first", (<-done).body, "an effect that happened is recorded while nobody runs")
			got := other.do(t, call{key: "k"})
			require.True(t, got.replayed())
			require.Equal(t, "first", got.body)
			require.EqualValues(t, 1, failing.runs.Load())
		})
	})
	t.Run("nobody came", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			_, other, done := pause(t, answering(0, "second"))
			require.Equal(t, "first", (<-done).body)
			require.Equal(t, "first", other.do(t, call{key: "k"}).body)
		})
	})
	t.Run("the other has finished, and the store does not say so", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			owner, other, done := pause(t, answering(0, "second"))
			owner.store.on("complete", first(2, hang))
			require.Equal(t, "second", other.do(t, call{key: "k"}).body)
			requireProblem(t, <-done, http.StatusConflict, problem.InFlight)
			require.Equal(t, "second", owner.do(t, call{key: "k"}).body)
		})
	})
	t.Run("the key is held", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			_, other, done := pause(t, answering(0, "second"), idempotency.WithRecovery(idempotency.Hold))
			requireProblem(t, other.do(t, call{key: "k"}), http.StatusConflict, problem.OutcomeUnknown)
			require.Equal(t, "first", (<-done).body, "its own outcome is no longer unknown")
			require.Equal(t, "first", other.do(t, call{key: "k"}).body)
		})
	})
}

// A store that loses a record in the middle of the run (FLUSHALL, a restart without
// persistence): the effect is recorded afresh, or held afresh.
func TestRecordThatIsLostDuringTheRunIsMadeAnew(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status   int
		recovery idempotency.Recovery
		want     fate
	}{
		"final":            {http.StatusCreated, idempotency.Rerun, replays},
		"final under hold": {http.StatusCreated, idempotency.Hold, replays},
		"unknown":          {http.StatusBadGateway, idempotency.Rerun, runsNext},
		"held":             {http.StatusBadGateway, idempotency.Hold, isHeld},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := &counter{handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
					time.Sleep(time.Second)
					w.WriteHeader(tt.status)
				}}
				p := newProcess(t, idempotency.NewMemoryStore(), h, idempotency.WithRecovery(tt.recovery))
				done := p.start(t, call{key: "k"})
				p.store.replace(idempotency.NewMemoryStore())
				require.Equal(t, tt.status, (<-done).status)
				requireFate(t, p.server, h, call{key: "k"}, tt.want)
				p.requireQuiet(t)
			})
		})
	}
}

// A client is kept waiting for two seconds and no longer, however many calls it takes to
// record its answer, and however slow each of them is.
func TestClientIsAnsweredInTimeByASlowStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := answering(time.Second, "done")
		p := newProcess(t, idempotency.NewMemoryStore(), h)
		done := p.start(t, call{key: "k"})
		fresh := &faultStore{behind: idempotency.NewMemoryStore()} // it has lost the record
		p.store.replace(fresh)
		fresh.fail(late(900 * time.Millisecond))
		start := time.Now()
		require.Equal(t, "done", (<-done).body)
		require.LessOrEqual(t, time.Since(start), 3*time.Second, "one of which is the run's")
		fresh.heal()
		time.Sleep(5 * time.Second)
		require.True(t, p.do(t, call{key: "k"}).replayed())
		require.EqualValues(t, 1, h.runs.Load())
	})
}

// Making the record anew takes two calls, and each may fail: it is still one run that is
// being recorded, and it is not in its own way.
func TestRecordIsMadeAnewThroughFailures(t *testing.T) {
	t.Parallel()
	for name, faults := range map[string]map[string]func(int) fault{
		"claim refused":         {"claim": first(3, refuse)},
		"claim's reply lost":    {"claim": first(3, loseReply)},
		"complete refused":      {"complete": between(2, 4, refuse)},
		"complete's reply lost": {"complete": between(2, 4, loseReply)},
		"complete away":         {"complete": between(2, 50, refuse)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := answering(15*time.Second, "done") // a renewal has noticed, too
				p := newProcess(t, idempotency.NewMemoryStore(), h)
				done := p.start(t, call{key: "k"})
				fresh := &faultStore{behind: idempotency.NewMemoryStore()}
				for op, f := range faults {
					fresh.on(op, f)
				}
				p.store.replace(fresh)
				other := newProcess(t, fresh.behind, h)
				require.Equal(t, "done", (<-done).body)
				for range 200 {
					got := other.do(t, call{key: "k"})
					if !got.replayed() {
						requireProblem(t, got, http.StatusConflict, problem.InFlight)
					}
					time.Sleep(time.Second)
				}
				require.True(t, other.do(t, call{key: "k"}).replayed())
				require.EqualValues(t, 1, h.runs.Load())
			})
		})
	}
}
