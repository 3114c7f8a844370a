package redisfaults

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// Servers that have no room, or take no message of that size.

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
		assert.NoError(t, err)
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
	claimed(t, s, key, c)
	require.NoError(t, s.Complete(ctx, key, c.Owner, store.Completion{Answer: guardtest.LargeAnswer, TTL: time.Hour}))
	server.Do(t, "CONFIG", "SET", "maxmemory", "100")
	require.Equal(t, guardtest.LargeAnswer, claimed(t, s, key, guardtest.RedisClaim()).Answer)
	r, err := s.GetAnswer(ctx, key)
	require.NoError(t, err)
	require.Equal(t, guardtest.LargeAnswer, r.Answer)
	require.InDelta(t, time.Hour, r.TTL, float64(time.Minute))
	_, err = s.GetAnswer(ctx, guardtest.RedisKey())
	require.ErrorIs(t, err, idempotency.ErrNotFound)

	full := guardtest.RedisClient(t, server.Addr).Set(ctx, "k", "v", 0).Err()
	require.True(t, redis.IsOOMError(full))
	filling := newClient(t, &redis.Options{Addr: server.Addr}, func(ctx context.Context, s sending) error {
		for _, cmd := range s.cmds {
			if cmd.Name() == "hgetall" { // the memory has run out behind the first command
				cmd.SetErr(full)
				return errHook
			}
		}
		return s.next(ctx)
	})
	r, err = guardtest.RedisStore(t, filling).GetAnswer(ctx, key)
	require.NoError(t, err)
	require.Equal(t, guardtest.LargeAnswer, r.Answer)
}

// turnAway answers that nothing was done, and says so: otherwise the step would outvote the
// status.
func turnAway(w http.ResponseWriter, r *http.Request) {
	if op, ok := idempotency.FromContext(r.Context()); ok {
		op.SetOutcome(idempotency.NotExecuted)
	}
	w.WriteHeader(http.StatusTooManyRequests)
}

// A server that also serves as a cache evicts records as its policy says. Check refuses
// every policy but one. This test counts the records that each of the others loses;
// docs/explanation/durability.md shows its figures.
func TestRedisEviction(t *testing.T) {
	t.Parallel()
	const claims, room = 500, 2 << 20
	server := redistest.Start(t)
	client := guardtest.RedisClient(t, server.Addr)
	st := guardtest.RedisStore(t, client)
	for policy, atLeast := range map[string]int{
		"noeviction":  0,
		"allkeys-lru": 1, "allkeys-random": 1,
		"allkeys-lfu":  0, // a record is used twice when it is made, and this cache never
		"volatile-lru": claims, "volatile-lfu": claims, "volatile-random": claims, "volatile-ttl": claims,
	} {
		ctx := t.Context()
		server.Do(t, "FLUSHALL")
		server.Do(t, "CONFIG", "SET", "maxmemory", "0")
		server.Do(t, "CONFIG", "SET", "maxmemory-policy", policy)
		if policy == "noeviction" {
			require.NoError(t, st.Check(ctx))
		} else {
			require.ErrorContains(t, st.Check(ctx), policy)
		}
		acknowledged := make(map[string]store.Claim)
		for range claims {
			key, c := guardtest.RedisKey(), guardtest.RedisClaim()
			claimed(t, st, key, c)
			acknowledged[key] = c
		}
		used, err := strconv.Atoi(server.Info(t, "memory")["used_memory"])
		require.NoError(t, err)
		server.Do(t, "CONFIG", "SET", "maxmemory", used+room)
		cached := strings.Repeat("x", 4<<10)
		for range 4 { // four times as much as there is room for
			pipe := client.Pipeline()
			for range room / len(cached) {
				pipe.Set(ctx, "cache:"+guardtest.RedisKey(), cached, 0)
			}
			_, err := pipe.Exec(ctx)
			if err != nil {
				require.True(t, redis.IsOOMError(err), "%v", err)
			}
		}
		server.Do(t, "CONFIG", "SET", "maxmemory", "0")
		lost := countLost(t, st, acknowledged)
		t.Logf("%-15s %d of %d live claims would run again", policy, lost, claims)
		require.GreaterOrEqual(t, lost, atLeast, policy)
		if policy == "noeviction" {
			require.Zero(t, lost)
		}
	}
}

// A server with a small proto-max-bulk-len refuses a large value, and closes the connection. A
// run is recorded all the same: without its answer.
func TestRedisWithSmallBulkLength(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20 // the smallest that a server accepts
	server := redistest.Start(t, "--proto-max-bulk-len", "1mb")
	replica := redistest.StartReplica(t, server)
	require.Equal(t, "up", replica.Info(t, "replication")["master_link_status"])
	stores := map[string]*idempotency.RedisStore{
		"transaction": guardtest.RedisAt(t, server),
		"script":      guardtest.RedisAt(t, server, idempotency.WithReplicas(1, time.Second)),
	}
	for name, st := range stores {
		for size, n := range map[string]int{"just above": limit + 1, "far above": 12 << 20} {
			t.Run(name+"/"+size, func(t *testing.T) {
				t.Parallel()
				h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
					w.Header().Set("Location", "/charges/1")
					w.WriteHeader(http.StatusCreated)
					_, _ = w.Write([]byte(strings.Repeat("x", n)))
				}}
				p := newRedisProcess(t, st, h, idempotency.WithLimits(idempotency.Limits{ResponseBody: 16 << 20}))
				call := guardtest.Call{Key: strings.ReplaceAll(name+" "+size, " ", "-")}
				require.Len(t, p.Do(t, call).Body, n)
				var again guardtest.Reply
				require.Eventually(t, func() bool {
					again = p.Do(t, call)
					return again.Problem.Code != problem.InFlight
				}, guardtest.Patience, 50*time.Millisecond)
				guardtest.RequireProblem(t, again, http.StatusConflict, problem.ResponseNotKept)
				require.Equal(t, "/charges/1", again.Problem.OriginalLocation)
				require.EqualValues(t, 1, h.Runs.Load())
				require.Equal(t, 1, p.events.Count(event.NotKept))
				require.Zero(t, p.events.Count(event.RecordingLost))
				for _, err := range p.events.Errors() {
					require.NotContains(t, err.Error(), "xxx")
				}
			})
		}
		t.Run(name+"/calls", func(t *testing.T) {
			t.Parallel()
			key, c := guardtest.RedisKey(), guardtest.RedisClaim()
			// The server closes the connection after its reply, which is lost sometimes, and a busy
			// replica may be late.
			eventually := func(want error, call func() error) {
				t.Helper()
				require.Eventually(t, func() bool { return errors.Is(call(), want) }, guardtest.Patience, time.Millisecond)
			}
			complete := func(answer []byte) func() error {
				return func() error {
					return st.Complete(t.Context(), key, c.Owner, store.Completion{Answer: answer, TTL: time.Hour})
				}
			}
			eventually(nil, func() error {
				_, err := st.Claim(t.Context(), key, c)
				return err
			})
			eventually(store.ErrTooLarge, func() error {
				return st.SaveStep(t.Context(), key, c.Owner, "step", make([]byte, limit+1))
			})
			eventually(store.ErrTooLarge, complete(make([]byte, limit+1)))
			eventually(nil, complete([]byte("small")))
		})
	}
}

// paddingSealer makes a sealed value a MiB longer.
type paddingSealer struct{}

func (paddingSealer) Seal(plain, _ []byte) ([]byte, error) {
	return append(plain[:len(plain):len(plain)], make([]byte, 1<<20)...), nil
}

func (paddingSealer) Open(sealed, _ []byte) ([]byte, error) { return sealed[:len(sealed)-1<<20], nil }

// A step that is larger than the server takes has happened, and the handler learns that it is
// not recorded.
func TestRedisStepAboveTheBulkLength(t *testing.T) {
	t.Parallel()
	st := guardtest.RedisAt(t, redistest.Start(t, "--proto-max-bulk-len", "1mb"))
	var err error
	p := newRedisProcess(t, st, &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
		_, err = idempotency.Step(r.Context(), "charge", func(context.Context) (string, error) { return "ch_1", nil })
		w.WriteHeader(http.StatusInternalServerError)
	}}, idempotency.WithSealer(paddingSealer{}))
	p.Do(t, guardtest.Call{Key: "k"})
	require.ErrorIs(t, err, idempotency.ErrNotRecorded)
	require.ErrorIs(t, err, store.ErrTooLarge)
}
