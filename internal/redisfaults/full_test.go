package redisfaults

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// A server that is out of memory begins no run. Runs that have begun continue
// undisturbed: they record steps, renew their leases, end in every way, and are replayed.
func TestRedisFullDuringRuns(t *testing.T) {
	slow(t)
	t.Parallel()
	const lease = 9 * time.Second
	large := strings.Repeat("large ", 5000)
	server := redistest.Start(t)
	st := guardtest.RedisAt(t, server)
	step := func(r *http.Request) {
		_, err := idempotency.Step(r.Context(), "charge", func(context.Context) (string, error) { return "ch_1", nil })
		if err != nil {
			t.Error(err)
		}
	}
	tests := map[string]struct {
		end   func(w http.ResponseWriter, r *http.Request)
		next  int // status of the next request, and of one when there is memory again
		later int
	}{
		"completed":       {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("small")) }, 200, 200},
		"completed large": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(large)) }, 200, 200},
		"released":        {turnAway, 503, 200},
		"held":            {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }, 409, 409},
	}
	type begun struct {
		h    *interrupted
		p    *redisProcess
		done <-chan guardtest.Reply
	}
	runs := make(map[string]begun)
	for name, test := range tests {
		h := interrupt(func(w http.ResponseWriter, r *http.Request) {
			step(r)
			test.end(w, r)
		})
		p := newRedisProcess(t, st, h, idempotency.WithLease(lease), idempotency.WithRecovery(idempotency.Hold))
		runs[name] = begun{h, p, h.start(t, p, guardtest.Call{Key: strings.ReplaceAll(name, " ", "-")})}
	}
	server.Do(t, "CONFIG", "SET", "maxmemory", "100")
	t.Cleanup(func() { server.Do(t, "CONFIG", "SET", "maxmemory", "0") }) // or what has failed would be tried for ever

	unused := &guardtest.Counter{}
	p := newRedisProcess(t, st, unused)
	for range 3 {
		guardtest.RequireProblem(t, p.Do(t, guardtest.Call{Key: "new"}), http.StatusServiceUnavailable, problem.StoreUnavailable)
	}
	require.Zero(t, unused.Runs.Load())
	for _, e := range p.events.All() {
		if e.Kind == event.StoreError {
			require.ErrorIs(t, e.Err, idempotency.ErrStoreFull)
		}
	}

	time.Sleep(lease + lease/2) // they are kept, by nothing but their renewals
	for name, test := range tests {
		run := runs[name]
		run.h.goOn()
		first := <-run.done
		next := run.p.Do(t, guardtest.Call{Key: strings.ReplaceAll(name, " ", "-")})
		require.Equal(t, test.next, next.Status, name)
		if test.next == http.StatusOK {
			require.True(t, next.Replayed(), name)
			require.Equal(t, first.Body, next.Body, name)
		}
		require.EqualValues(t, 1, run.h.Runs.Load(), name)
		for _, e := range run.p.events.All() {
			switch e.Kind {
			case event.StoreError:
				require.ErrorIs(t, e.Err, idempotency.ErrStoreFull, name)
				require.Equal(t, http.StatusServiceUnavailable, test.next, name)
			case event.LeaseLost, event.RecordingDelayed:
				t.Errorf("%s: %s", name, e.Kind)
			}
		}
	}
	server.Do(t, "CONFIG", "SET", "maxmemory", "0")
	for name, test := range tests {
		run := runs[name]
		require.Equal(t, test.later, run.p.Do(t, guardtest.Call{Key: strings.ReplaceAll(name, " ", "-")}).Status, name)
		require.Equal(t, test.later != test.next, run.h.Runs.Load() == 2, name)
	}
	require.Equal(t, http.StatusCreated, p.Do(t, guardtest.Call{Key: "new"}).Status)
}

// A large answer that was recorded before is replayed, and shown to an operator.
func TestRedisFullServerReplaysLargeAnswers(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := guardtest.RedisAt(t, server)
	ctx, key, c := t.Context(), guardtest.RedisKey(), guardtest.RedisClaim()
	_, err := s.Claim(ctx, key, c)
	require.NoError(t, err)
	require.NoError(t, s.Complete(ctx, key, c.Owner, store.Completion{Answer: guardtest.LargeAnswer, TTL: time.Hour}))
	server.Do(t, "CONFIG", "SET", "maxmemory", "100")
	r, err := s.Claim(ctx, key, guardtest.RedisClaim())
	require.NoError(t, err)
	require.Equal(t, guardtest.LargeAnswer, r.Answer)
	r, err = s.GetAnswer(ctx, key)
	require.NoError(t, err)
	require.Equal(t, guardtest.LargeAnswer, r.Answer)
	require.InDelta(t, time.Hour, r.TTL, float64(time.Minute))
	_, err = s.GetAnswer(ctx, guardtest.RedisKey())
	require.ErrorIs(t, err, idempotency.ErrNotFound)
}

// turnAway answers that nothing was done, and says so: otherwise the step would outvote the
// status.
func turnAway(w http.ResponseWriter, r *http.Request) {
	if op, ok := idempotency.FromContext(r.Context()); ok {
		op.SetOutcome(idempotency.NotExecuted)
	}
	w.WriteHeader(http.StatusTooManyRequests)
}
