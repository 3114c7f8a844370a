package microbench

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/redistest"
)

// BenchmarkRedis compares the store with the least that its round trips can cost. Beside
// the time of an operation it reports the ratio of its median to that of as many pings in
// between.
func BenchmarkRedis(b *testing.B) {
	server := redistest.Start(b)
	client := guardtest.RedisClient(b, server.Addr)
	s := guardtest.RedisStore(b, client)
	ctx := context.Background()
	run := func(key string, answer []byte) {
		c := guardtest.RedisClaim()
		if _, err := s.Claim(ctx, key, c); err != nil {
			b.Fatal(err)
		}
		if err := s.Complete(ctx, key, c.Owner, idempotency.Completion{Answer: answer, TTL: time.Hour}); err != nil {
			b.Fatal(err)
		}
	}
	measure := func(name string, trips int, f func(key string)) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var times, pings []time.Duration
			for b.Loop() {
				key := guardtest.RedisKey()
				begin := time.Now()
				f(key)
				middle := time.Now()
				for range trips {
					client.Ping(ctx)
				}
				times, pings = append(times, middle.Sub(begin)), append(pings, time.Since(middle))
				client.Unlink(ctx, "idem:"+key)
			}
			slices.Sort(times)
			slices.Sort(pings)
			p50, floor := times[len(times)/2], pings[len(pings)/2]
			b.ReportMetric(float64(p50.Nanoseconds()), "p50-ns")
			b.ReportMetric(float64(p50)/float64(floor), "x-ping")
		})
	}
	measure("set", 1, func(key string) { client.Set(ctx, "idem:"+key, "x", time.Minute) })
	measure("claim", 1, func(key string) { _, _ = s.Claim(ctx, key, guardtest.RedisClaim()) })
	taken := guardtest.RedisKey()
	_, _ = s.Claim(ctx, taken, guardtest.RedisClaim())
	measure("conflict", 1, func(string) { _, _ = s.Claim(ctx, taken, guardtest.RedisClaim()) })
	for _, size := range []int{512, 8 << 10, 64 << 10, 1 << 20} {
		answer := make([]byte, size)
		measure(fmt.Sprintf("run/%d", size), 2, func(key string) { run(key, answer) })
		done, c := guardtest.RedisKey(), guardtest.RedisClaim()
		run(done, answer)
		measure(fmt.Sprintf("replay/%d", size), 1, func(string) {
			if r, err := s.Claim(ctx, done, c); err != nil || len(r.Answer) != size {
				b.Fatal(r, err)
			}
		})
	}
}
