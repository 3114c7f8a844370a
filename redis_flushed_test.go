package idempotency_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/problem"
)

// A store that has been emptied during a run cannot keep others from running too. What
// remains is that nobody is told something that is not so: a run finds its answer
// recorded if nobody came in between, and otherwise it neither changes the record of the
// other run nor shows an answer that nobody else will see.
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
	begin := func(t *testing.T, key string, then http.Handler) (h *interrupted, a, b *redisProcess, done <-chan reply) {
		h = interrupt(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, first) })
		store := redisAt(t, server)
		a = newRedisProcess(t, store, h)
		b = newRedisProcess(t, store, then)
		done = h.start(t, a, call{key: key})
		server.Do(t, flush)
		return h, a, b, done
	}
	t.Run("nobody came", func(t *testing.T) {
		h, _, b, done := begin(t, "k1", http.NotFoundHandler())
		h.goOn()
		require.Equal(t, first, (<-done).body)
		b.requireReplay(t, call{key: "k1"}, first)
	})
	t.Run("another run is completed", func(t *testing.T) {
		h, a, b, done := begin(t, "k2", answering(0, "second"))
		require.Equal(t, "second", b.do(t, call{key: "k2"}).body, "not guaranteed after a flush: a second run")
		h.goOn()
		got := <-done
		require.Equal(t, "second", got.body, "one answer for all")
		require.True(t, got.replayed())
		a.requireReplay(t, call{key: "k2"}, "second")
	})
	t.Run("another run is in flight", func(t *testing.T) {
		second := interrupt(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "second") })
		h, a, b, done := begin(t, "k3", second)
		other := second.start(t, b, call{key: "k3"})
		h.goOn()
		requireProblem(t, <-done, http.StatusConflict, problem.InFlight)
		second.goOn()
		require.Equal(t, "second", (<-other).body)
		a.requireReplay(t, call{key: "k3"}, "second")
	})
	t.Run("another payload has the key", func(t *testing.T) {
		h, a, b, done := begin(t, "k4", answering(0, "second"))
		require.Equal(t, "second", b.do(t, call{key: "k4", body: `{"amount":2}`}).body)
		h.goOn()
		requireProblem(t, <-done, http.StatusConflict, problem.KeyReused)
		a.requireReplay(t, call{key: "k4", body: `{"amount":2}`}, "second")
	})
}

// A run whose record is gone is told so by its next renewal or step, and what it gives
// back is not the claim of another.
func TestRedisFlushedRunIsStopped(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := redisAt(t, server)
	second := interrupt(func(w http.ResponseWriter, r *http.Request) {
		_, err := idempotency.Step(r.Context(), "charge", func(context.Context) (int, error) { return 2, nil })
		if err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(w, "second")
	})
	b := newRedisProcess(t, store, second)
	var a *redisProcess
	first := interrupt(func(_ http.ResponseWriter, r *http.Request) {
		_, err := idempotency.Step(r.Context(), "charge", func(context.Context) (int, error) { return 1, nil })
		var unrecorded *idempotency.NotRecordedError
		if !errors.As(err, &unrecorded) || !errors.Is(err, idempotency.ErrNotOwner) {
			t.Errorf("a step that others would find: %v", err)
		}
		select {
		case <-r.Context().Done():
		case <-time.After(redisPatience):
			t.Error("the run is not stopped")
		}
		if err := context.Cause(r.Context()); !errors.Is(err, idempotency.ErrLeaseLost) {
			t.Error(err)
		}
		panic(http.ErrAbortHandler) // released
	})
	a = newRedisProcess(t, store, first, idempotency.WithLease(3*time.Second))
	ended := make(chan any, 1)
	go func() {
		defer func() { ended <- recover() }()
		_, _ = a.try(t.Context(), call{key: "k"})
	}()
	<-first.begun
	server.Do(t, "FLUSHALL")
	done := second.start(t, b, call{key: "k"})
	first.goOn()
	require.Equal(t, http.ErrAbortHandler, <-ended)
	require.Eventually(t, func() bool { // the run is told first
		return countKind(a.events, idempotency.EventLeaseLost) == 1
	}, redisPatience, time.Millisecond)
	requireProblem(t, a.do(t, call{key: "k"}), http.StatusConflict, problem.InFlight)
	second.goOn()
	require.Equal(t, "second", (<-done).body)
	a.requireReplay(t, call{key: "k"}, "second")
	require.EqualValues(t, 1, first.runs.Load())
	require.EqualValues(t, 1, second.runs.Load())
}

// A run that finds its record gone claims it anew, to record its answer. Where the replicas
// are gone too, the claim is not confirmed, but it is there: the answer follows it.
func TestRedisFlushedWithoutReplicas(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t)
	replica := redistest.StartReplica(t, master)
	_, err := redisAt(t, master, idempotency.WithReplicas(1, redisPatience)).Claim(t.Context(), redisKey(), redisClaim())
	require.NoError(t, err, "the replica has caught up")
	h := interrupt(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "first") })
	t.Cleanup(h.goOn)
	p := newRedisProcess(t, redisAt(t, master, idempotency.WithReplicas(1, 200*time.Millisecond)), h)
	var done <-chan reply
	for begun := false; !begun; {
		done = p.begin(t, call{key: "k"})
		select {
		case <-h.begun:
			begun = true
		case <-done: // a busy machine confirms later than that
		}
	}
	master.Do(t, "FLUSHALL")
	replica.Pause(t)
	h.goOn()
	require.Equal(t, "first", (<-done).body)
	onMaster := redisAt(t, master)
	require.Eventually(t, func() (completed bool) {
		err := onMaster.List(t.Context(), func(_ string, r idempotency.Record) bool {
			completed = r.State == idempotency.StateCompleted
			return true
		})
		return err == nil && completed
	}, redisPatience, 20*time.Millisecond, "the master has the answer, whoever else has not")
	replica.Resume(t)
	p.requireReplay(t, call{key: "k"}, "first")
	require.EqualValues(t, 1, h.runs.Load())
}
