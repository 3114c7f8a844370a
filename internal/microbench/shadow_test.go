package microbench

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
)

// BenchmarkShadowOfAStoreThatHangs sends requests over connections to a handler that takes 2 ms, and
// in turn to the same handler beside a guard that only looks on and whose store hangs. Both take
// turns request by request, so what disturbs one disturbs the other. The guard writes its log.
func BenchmarkShadowOfAStoreThatHangs(b *testing.B) {
	store := &guardtest.FaultStore{Behind: idempotency.NewMemoryStore()}
	store.Fail(guardtest.Hang)
	var log discard // formats what it throws away
	guard, err := idempotency.New(store, idempotency.SharedScope, idempotency.WithShadow(true),
		idempotency.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	require.NoError(b, err)
	work := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		time.Sleep(2 * time.Millisecond) // the work that is measured
		_, _ = io.WriteString(w, `{"id":1}`)
	})
	servers := []*httptest.Server{httptest.NewServer(work), httptest.NewServer(guard.Handler(work))}
	body := bytes.Repeat([]byte("x"), 1<<10)
	const clients = 8
	transport := &http.Transport{MaxIdleConnsPerHost: clients}
	defer transport.CloseIdleConnections()
	for _, s := range servers {
		defer s.Close()
	}
	var keys atomic.Int64
	var mu sync.Mutex
	var times [2][]time.Duration
	b.ResetTimer()
	guardtest.Together(clients, func(int) {
		var own [2][]time.Duration
		for i := range b.N / clients * 2 {
			r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, servers[i%2].URL, bytes.NewReader(body))
			if err != nil {
				panic(err)
			}
			r.Header.Set("Idempotency-Key", strconv.FormatInt(keys.Add(1), 10))
			start := time.Now()
			resp, err := transport.RoundTrip(r)
			if err != nil {
				panic(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			own[i%2] = append(own[i%2], time.Since(start))
		}
		mu.Lock()
		defer mu.Unlock()
		for i := range times {
			times[i] = append(times[i], own[i]...)
		}
	})
	b.StopTimer()
	store.Fail(nil)
	require.NoError(b, guard.Shutdown(b.Context()))
	for i, name := range []string{"bare", "shadow"} {
		if slices.Sort(times[i]); len(times[i]) == 0 {
			return
		}
		b.ReportMetric(float64(times[i][len(times[i])/2].Microseconds()), name+"-p50-µs")
		b.ReportMetric(float64(times[i][len(times[i])*99/100].Microseconds()), name+"-p99-µs")
	}
}

// A discard is a writer that is not known to throw away what it gets.
type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
