package redisfaults

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// Servers that come back, or go on, without what they held.

// A store that was emptied during a run cannot prevent a second run. It can still keep both
// from lying to their clients. If nobody came in between, the first run finds its answer
// recorded. Otherwise it does not touch the record of the other run, and does not show an
// answer that no other client will see.
func TestRedisFlushedDuringRun(t *testing.T) {
	t.Parallel()
	answers := map[string]string{"small": "first", "large": strings.Repeat("first ", 5000)}
	for _, flush := range []string{"FLUSHALL", "FLUSHDB"} {
		for size, first := range answers {
			t.Run(flush+" "+size, func(t *testing.T) {
				t.Parallel()
				redisFlushedDuringRun(t, redistest.Start(t), flush, first)
			})
		}
	}
}

func redisFlushedDuringRun(t *testing.T, server *redistest.Server, flush, first string) {
	begin := func(t *testing.T, key string, then http.Handler) (h *interrupted, a, b *redisProcess, done <-chan guardtest.Reply) {
		h = interrupt(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, first) })
		st := guardtest.RedisAt(t, server)
		a = newRedisProcess(t, st, h)
		b = newRedisProcess(t, st, then)
		done = h.start(t, a, guardtest.Call{Key: key})
		server.Do(t, flush)
		return h, a, b, done
	}
	t.Run("nobody came", func(t *testing.T) {
		h, _, b, done := begin(t, "k1", http.NotFoundHandler())
		h.goOn()
		require.Equal(t, first, (<-done).Body)
		b.requireReplay(t, guardtest.Call{Key: "k1"}, first)
	})
	t.Run("another run is completed", func(t *testing.T) {
		h, a, b, done := begin(t, "k2", guardtest.Answering(0, "second"))
		require.Equal(t, "second", b.Do(t, guardtest.Call{Key: "k2"}).Body, "not guaranteed after a flush: a second run")
		h.goOn()
		got := <-done
		require.Equal(t, "second", got.Body, "one answer for all")
		require.True(t, got.Replayed())
		a.requireReplay(t, guardtest.Call{Key: "k2"}, "second")
	})
	t.Run("another run is in flight", func(t *testing.T) {
		second := interrupt(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "second") })
		h, a, b, done := begin(t, "k3", second)
		other := second.start(t, b, guardtest.Call{Key: "k3"})
		h.goOn()
		guardtest.RequireProblem(t, <-done, http.StatusConflict, problem.InFlight)
		second.goOn()
		require.Equal(t, "second", (<-other).Body)
		a.requireReplay(t, guardtest.Call{Key: "k3"}, "second")
	})
	t.Run("another payload has the key", func(t *testing.T) {
		h, a, b, done := begin(t, "k4", guardtest.Answering(0, "second"))
		require.Equal(t, "second", b.Do(t, guardtest.Call{Key: "k4", Body: `{"amount":2}`}).Body)
		h.goOn()
		require.Equal(t, first, (<-done).Body, "the record is about another request")
		a.requireReplay(t, guardtest.Call{Key: "k4", Body: `{"amount":2}`}, "second")
	})
}

// The next renewal or step tells a run that its record is gone. The run does not release
// the claim of another.
func TestRedisFlushedRunIsStopped(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	st := guardtest.RedisAt(t, server)
	second := interrupt(func(w http.ResponseWriter, r *http.Request) {
		_, err := idempotency.Step(r.Context(), "charge", func(context.Context) (int, error) { return 2, nil })
		assert.NoError(t, err)
		_, _ = io.WriteString(w, "second")
	})
	b := newRedisProcess(t, st, second)
	var a *redisProcess
	first := interrupt(func(_ http.ResponseWriter, r *http.Request) {
		_, err := idempotency.Step(r.Context(), "charge", func(context.Context) (int, error) { return 1, nil })
		assert.ErrorIs(t, err, idempotency.ErrNotRecorded, "a step that others would find")
		assert.ErrorIs(t, err, store.ErrNotOwner, "a step that others would find")
		select {
		case <-r.Context().Done():
		case <-time.After(guardtest.Patience):
			t.Error("the run is not stopped")
		}
		if err := context.Cause(r.Context()); !errors.Is(err, idempotency.ErrLeaseLost) {
			t.Error(err)
		}
		panic(http.ErrAbortHandler) // released
	})
	a = newRedisProcess(t, st, first, idempotency.WithLease(3*time.Second))
	ended := make(chan any, 1)
	go func() {
		defer func() { ended <- recover() }()
		_, _ = a.Try(t.Context(), guardtest.Call{Key: "k"})
	}()
	<-first.begun
	server.Do(t, "FLUSHALL")
	done := second.start(t, b, guardtest.Call{Key: "k"})
	first.goOn()
	require.Equal(t, http.ErrAbortHandler, <-ended)
	require.Eventually(t, func() bool { // the run is told first
		return a.events.Count(event.LeaseLost) == 1
	}, guardtest.Patience, time.Millisecond)
	guardtest.RequireProblem(t, a.Do(t, guardtest.Call{Key: "k"}), http.StatusConflict, problem.InFlight)
	second.goOn()
	require.Equal(t, "second", (<-done).Body)
	a.requireReplay(t, guardtest.Call{Key: "k"}, "second")
	require.EqualValues(t, 1, first.Runs.Load())
	require.EqualValues(t, 1, second.Runs.Load())
}

// A run that finds its record gone claims the key anew in order to record its answer. If
// the replicas are gone too, nobody confirms the claim, but it exists: the answer follows
// it.
func TestRedisFlushedWithoutReplicas(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t)
	replica := redistest.StartReplica(t, master)
	_, err := guardtest.RedisAt(t, master, idempotency.WithReplicas(1, guardtest.Patience)).Claim(t.Context(), guardtest.RedisKey(), guardtest.RedisClaim())
	require.NoError(t, err, "the replica has caught up")
	h := interrupt(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "first") })
	t.Cleanup(h.goOn)
	p := newRedisProcess(t, guardtest.RedisAt(t, master, idempotency.WithReplicas(1, 200*time.Millisecond)), h)
	var done <-chan guardtest.Reply
	for begun := false; !begun; {
		done = p.Begin(t, guardtest.Call{Key: "k"})
		select {
		case <-h.begun:
			begun = true
		case <-done: // a busy machine confirms later than that
		}
	}
	master.Do(t, "FLUSHALL")
	replica.Pause(t)
	h.goOn()
	require.Equal(t, "first", (<-done).Body)
	onMaster := guardtest.RedisAt(t, master)
	require.Eventually(t, func() bool {
		page, err := onMaster.List(t.Context(), store.Query{States: []store.State{store.Completed}})
		return err == nil && len(page.Entries) == 1
	}, guardtest.Patience, 20*time.Millisecond, "the master has the answer, whoever else has not")
	replica.Resume(t)
	p.requireReplay(t, guardtest.Call{Key: "k"}, "first")
	require.EqualValues(t, 1, h.Runs.Load())
}

// A server dies during a run and comes back. Whether it had persisted anything makes no
// difference to that run, as long as nobody asks for the key before it ends.
func TestRedisRestartDuringRun(t *testing.T) {
	t.Parallel()
	sideBySide(t, map[string]bool{"appendonly yes": true, "appendonly no": false}, func(t *testing.T, persistent bool) {
		var args []string
		if persistent {
			args = []string{"--appendonly", "yes", "--appendfsync", "always"}
		}
		server := redistest.Start(t, args...)
		t.Run("the run ends afterwards", func(t *testing.T) {
			h := interrupt(nil)
			a, b := newRedisProcess(t, guardtest.RedisAt(t, server), h), newRedisProcess(t, guardtest.RedisAt(t, server), h)
			done := h.start(t, a, guardtest.Call{Key: "after"})
			server.Kill()
			guardtest.RequireProblem(t, b.Do(t, guardtest.Call{Key: "after"}), http.StatusServiceUnavailable, problem.StoreUnavailable)
			server.Restart(t)
			if persistent {
				guardtest.RequireProblem(t, b.Do(t, guardtest.Call{Key: "after"}), http.StatusConflict, problem.InFlight)
			}
			h.goOn()
			require.Equal(t, "run 1", (<-done).Body)
			b.requireReplay(t, guardtest.Call{Key: "after"}, "run 1")
			require.EqualValues(t, 1, h.Runs.Load())
		})
		t.Run("the run ends meanwhile", func(t *testing.T) {
			h := interrupt(nil)
			a, b := newRedisProcess(t, guardtest.RedisAt(t, server), h), newRedisProcess(t, guardtest.RedisAt(t, server), h)
			done := h.start(t, a, guardtest.Call{Key: "meanwhile"})
			server.Kill()
			h.goOn()
			require.Equal(t, "run 1", (<-done).Body, "the client gets the answer that there is")
			require.Equal(t, 1, a.events.Count(event.RecordingDelayed))
			guardtest.RequireProblem(t, b.Do(t, guardtest.Call{Key: "meanwhile"}), http.StatusServiceUnavailable, problem.StoreUnavailable)
			server.Restart(t)
			// Without persistence the key is free until the answer has been recorded.
			require.NoError(t, a.guard.Shutdown(t.Context()))
			b.requireReplay(t, guardtest.Call{Key: "meanwhile"}, "run 1")
			require.EqualValues(t, 1, h.Runs.Load())
		})
	})
}

// What kill -9 of a server costs. Without an append-only file it loses everything. With one
// that is synced before each reply it loses nothing. In between, a server may postpone a
// write while it syncs earlier ones, and then it loses writes that it has acknowledged.
func TestRedisKillUnderLoad(t *testing.T) {
	t.Parallel()
	type row struct {
		args      []string
		all, none bool
	}
	guardtest.Each(t, map[string]row{
		"no persistence":       {nil, true, false},
		"appendfsync everysec": {[]string{"--appendonly", "yes", "--appendfsync", "everysec"}, false, false},
		"appendfsync always":   {[]string{"--appendonly", "yes", "--appendfsync", "always"}, false, true},
	}, func(t *testing.T, test row) {
		server := redistest.Start(t, test.args...)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := guardtest.RedisAt(t, server)
		acknowledged := acknowledge(ctx, s, 50)
		time.AfterFunc(500*time.Millisecond, func() { server.Kill(); cancel() })
		maps.Copy(acknowledged, acknowledge(ctx, s, -1))
		server.Restart(t)
		lost := countLost(t, guardtest.RedisAt(t, server), acknowledged)
		t.Logf("%d of %d acknowledged claims lost", lost, len(acknowledged))
		if test.all {
			require.Equal(t, len(acknowledged), lost)
		}
		if test.none {
			require.Zero(t, lost)
		}
	})
}
