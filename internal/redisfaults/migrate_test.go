package redisfaults

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// Records may be renamed to another prefix, or copied to another server, while no process
// uses them: docs/how-to/moving-records.md says how. Answers, held keys, attempts and leases survive.
func TestRedisRecordsMayBeRenamed(t *testing.T) {
	t.Parallel()
	for how, move := range map[string]func(t *testing.T, from, to redis.UniversalClient, name, newName string){
		"RENAME": func(t *testing.T, from, _ redis.UniversalClient, name, newName string) {
			t.Helper()
			require.NoError(t, from.Rename(t.Context(), name, newName).Err())
		},
		"DUMP and RESTORE": func(t *testing.T, from, to redis.UniversalClient, name, newName string) {
			t.Helper()
			left := max(from.PTTL(t.Context(), name).Val(), 0)
			dump := from.Dump(t.Context(), name).Val()
			require.NoError(t, to.Restore(t.Context(), newName, left, dump).Err())
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			from := guardtest.RedisClient(t, redistest.Start(t).Addr)
			to := from
			if how != "RENAME" {
				to = guardtest.RedisClient(t, redistest.Start(t).Addr)
			}
			h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
				switch r.Header.Get("Idempotency-Key") {
				case "held":
					w.WriteHeader(http.StatusBadGateway)
				case "large":
					_, _ = w.Write(guardtest.LargeAnswer)
				default:
					_, _ = w.Write([]byte("small"))
				}
			}}
			process := func(client redis.UniversalClient, prefix string) (*idempotency.RedisStore, *guardtest.Server) {
				st := guardtest.RedisStore(t, client, idempotency.WithPrefix(prefix))
				g := guardtest.NewGuard(t, st, idempotency.WithRecovery(idempotency.Hold))
				return st, guardtest.ServeRecorder(t, g.Handler(h))
			}
			st, before := process(from, "old:")
			small, large := before.Do(t, guardtest.Call{Key: "small"}), before.Do(t, guardtest.Call{Key: "large"})
			before.Do(t, guardtest.Call{Key: "held"})
			running, claim := guardtest.RedisKey(), guardtest.RedisClaim()
			claimed(t, st, running, claim)

			names, err := from.Keys(t.Context(), "old:*").Result()
			require.NoError(t, err)
			require.Len(t, names, 5, "the index of held records is one of them")
			for _, name := range names {
				move(t, from, to, name, "new:"+name[len("old:"):])
			}

			st, after := process(to, "new:")
			guardtest.RequireReplay(t, small, after.Do(t, guardtest.Call{Key: "small"}))
			guardtest.RequireReplay(t, large, after.Do(t, guardtest.Call{Key: "large"}))
			guardtest.RequireProblem(t, after.Do(t, guardtest.Call{Key: "held"}), http.StatusConflict, problem.OutcomeUnknown)
			require.EqualValues(t, 3, h.Runs.Load())
			rec := claimed(t, st, running, guardtest.RedisClaim())
			require.Equal(t, store.Claimed, rec.State)
			require.False(t, rec.Mine)
			require.InDelta(t, claim.Lease, rec.Lease, float64(5*time.Second))
			require.Len(t, guardtest.List(t, st, store.Query{Holding: true}), 1)
		})
	}
}

// An older process leaves a record of a newer version alone: it does not run, not even where
// it may fail open, and gives back no claim.
func TestRedisRecordOfANewerVersionIsLeftAlone(t *testing.T) {
	t.Parallel()
	client := guardtest.RedisClient(t, redistest.Start(t).Addr)
	st := guardtest.RedisStore(t, client)
	h := guardtest.Answering(0, "done")
	p := guardtest.NewProcess(t, st, h, idempotency.WithFailOpen(true))
	call := guardtest.Call{Key: "k"}
	require.Equal(t, "done", p.Do(t, call).Body)
	names, err := client.Keys(t.Context(), "idem:*").Result()
	require.NoError(t, err)
	require.Len(t, names, 1)
	header, err := client.HGet(t.Context(), names[0], "m").Result()
	require.NoError(t, err)
	require.NoError(t, client.HSet(t.Context(), names[0], "m", "\xf0"+header[1:]).Err())

	for range 3 {
		guardtest.RequireProblem(t, p.Do(t, call), http.StatusServiceUnavailable, problem.StoreUnavailable)
	}
	require.EqualValues(t, 1, h.Runs.Load())
	_, _, err = idempotency.Do(t.Context(), p.Guard, idempotency.Key{Scope: "acme", Value: "k"},
		func(context.Context) (int, error) { return 0, nil })
	require.ErrorIs(t, err, idempotency.ErrUnreadableHere)
	require.NoError(t, p.Guard.Shutdown(t.Context()))
	require.Zero(t, p.Store.Count("release"))
	require.Equal(t, 4, p.Events.Count(event.Corrupt))
	for _, err := range p.Events.Errors() {
		require.ErrorIs(t, err, idempotency.ErrUnreadableHere)
	}
}
