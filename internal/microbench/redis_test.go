package microbench

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/store"
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
		if err := s.Complete(ctx, key, c.Owner, store.Completion{Answer: answer, TTL: time.Hour}); err != nil {
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

// BenchmarkRedisNote compares claims that leave a note and a label with claims that leave none,
// and replays of the records that they make.
func BenchmarkRedisNote(b *testing.B) {
	client := guardtest.RedisClient(b, redistest.Start(b).Addr)
	s := guardtest.RedisStore(b, client)
	ctx := context.Background()
	claim := func(key string, note int) store.Claim {
		c := guardtest.RedisClaim()
		if note > 0 {
			c.Note, c.Label = make([]byte, note), "POST /charges"
		}
		if _, err := s.Claim(ctx, key, c); err != nil {
			b.Fatal(err)
		}
		return c
	}
	// timed returns how long f takes on a new key, which is gone afterwards.
	timed := func(f func(key string)) time.Duration {
		key := guardtest.RedisKey()
		begin := time.Now()
		f(key)
		took := time.Since(begin)
		client.Unlink(ctx, "idem:"+key)
		return took
	}
	report := func(b *testing.B, plain, noted []time.Duration) {
		b.Helper()
		slices.Sort(plain)
		slices.Sort(noted)
		b.ReportMetric(float64(noted[len(noted)/2].Nanoseconds()), "p50-ns")
		b.ReportMetric(float64(noted[len(noted)/2])/float64(plain[len(plain)/2]), "x-plain")
		b.ReportMetric(0, "ns/op") // of both
	}
	for _, note := range []int{21, 46} {
		b.Run(fmt.Sprintf("claim/%d", note), func(b *testing.B) {
			var plain, noted []time.Duration
			for b.Loop() {
				plain = append(plain, timed(func(key string) { claim(key, 0) }))
				noted = append(noted, timed(func(key string) { claim(key, note) }))
			}
			report(b, plain, noted)
		})
		b.Run(fmt.Sprintf("replay/%d", note), func(b *testing.B) {
			recorded := func(note int) string {
				key := guardtest.RedisKey()
				c := claim(key, note)
				if err := s.Complete(ctx, key, c.Owner, store.Completion{Answer: make([]byte, 512), TTL: time.Hour}); err != nil {
					b.Fatal(err)
				}
				return key
			}
			without, with := recorded(0), recorded(note)
			var plain, noted []time.Duration
			for b.Loop() {
				plain = append(plain, timed(func(string) { claim(without, note) }))
				noted = append(noted, timed(func(string) { claim(with, note) }))
			}
			report(b, plain, noted)
		})
	}
}
