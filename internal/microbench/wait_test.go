package microbench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/load"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/store"
)

// BenchmarkWaiters holds a thousand duplicates until their runs end. It reports the median
// time from the end of the last run to the last answer, and the connections that waiting
// needs beside those of the claims. No goroutine may be left over.
func BenchmarkWaiters(b *testing.B) {
	server := redistest.Start(b)
	for name, st := range map[string]func(b *testing.B) watchedStore{
		"memory": func(*testing.B) watchedStore { return idempotency.NewMemoryStore() },
		"redis": func(b *testing.B) watchedStore {
			b.Helper()
			return guardtest.RedisStore(b, guardtest.RedisClient(b, server.Addr))
		},
	} {
		for _, keys := range []int{1, 1000} {
			b.Run(fmt.Sprintf("%s/keys=%d", name, keys), func(b *testing.B) {
				measureWaiters(b, st(b), server, keys)
			})
		}
	}
}

// A countedStore counts claims.
type countedStore struct {
	watchedStore
	claims atomic.Int64
}

type watchedStore interface {
	idempotency.Store
	store.Watcher
	ObeysContext() bool
}

func (s *countedStore) Claim(ctx context.Context, key string, c store.Claim) (store.Record, error) {
	s.claims.Add(1)
	return s.watchedStore.Claim(ctx, key, c)
}

func measureWaiters(b *testing.B, shared watchedStore, server *redistest.Server, keys int) {
	b.Helper()
	const waiters = 1000
	runs := make(chan struct{})
	var ended sync.WaitGroup
	st := &countedStore{watchedStore: shared}
	guard := guardtest.NewGuard(b, st, idempotency.WithWait(time.Minute))
	h := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		<-runs
		_, _ = io.WriteString(w, "done")
		ended.Done()
	}))
	listeners := func() int64 {
		return server.Do(b, "PUBSUB", "NUMSUB", "idem:settled").([]any)[1].(int64)
	}
	var times []time.Duration
	var connections int64
	for b.Loop() {
		runs = make(chan struct{})
		names := load.Keys(keys)
		claimed := st.claims.Load()
		before := runtime.NumGoroutine()
		var requests sync.WaitGroup
		send := func(key string) {
			requests.Go(func() {
				if c := load.NewCaller(load.Small); c.Send(h, key) != http.StatusOK {
					b.Errorf("key %s: %d", key, c.Answer.Status)
				}
			})
		}
		ended.Add(keys)
		for _, key := range names {
			send(key)
		}
		for n := range waiters {
			send(names[n%keys])
		}
		// Every request has claimed once. For each key, the one that leads the wait has
		// claimed again since it watches.
		want := claimed + int64(waiters+2*keys)
		require.Eventually(b, func() bool { return st.claims.Load() >= want }, time.Minute, time.Millisecond)
		connections = max(connections, listeners())
		close(runs)
		ended.Wait()
		start := time.Now()
		requests.Wait()
		times = append(times, time.Since(start))
		// The connections of the client and the subscription remain.
		require.Eventually(b, func() bool { return runtime.NumGoroutine() <= before+2 }, time.Minute, time.Millisecond)
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(connections), "listeners")
}
