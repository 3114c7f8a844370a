//go:build unix

package soak

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSoak keeps several api processes busy while everything fails all the time, and
// looks at each effect and each answer.
//
//   - A final answer is the same for everybody; what was recorded never changes.
//   - Nothing happens twice where the route promises that. Elsewhere it happens twice
//     only if its process was killed or stopped in the middle.
//   - Every request is answered, and every key settles.
//   - Afterwards nothing is left behind: no goroutine, no memory, no pending recording.
//
// Beside it there is a second world, with what the first one cannot have: see [outside].
func TestSoak(t *testing.T) {
	length := soakLength(t)
	seed := soakSeed(t)
	t.Logf("SEED=%d SOAK=%s", seed, length)
	rng := rand.New(rand.NewPCG(seed, 0))
	s := &soak{world: newWorld(t, 2), seed: seed}

	// A first time without faults shows what is normal.
	busy := s.work(seed)
	time.Sleep(min(length/6, 5*time.Second)) // the length of the soak is real time
	busy.end()
	s.requireSettled(busy, patience)
	normal := s.rest(stats{Goroutines: 1 << 20, Heap: 1 << 40})

	busy = s.work(seed + 1)
	beyond, over, away := newOutside(t, length), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		beyond.run(seed, away)
	}()
	s.torment(rng, time.Now().Add(length))
	close(away)
	<-over
	busy.end()
	settling := s.requireSettled(busy, 3*lease)
	s.requireRecalled(rng)
	final := s.rest(stats{Goroutines: normal.Goroutines + 5, Heap: 2*normal.Heap + 4<<20})
	s.finish()
	s.summary(normal, final, settling)
	t.Log(beyond.summary())

	require.Empty(t, s.failures, "SEED=%d\n%s", seed, strings.Join(s.failures, "\n"))
	beyond.requireKept(length)
	s.requireSound()
	require.Positive(t, s.said(logDelayed), "no recording had to go on in the background")
}

func soakLength(t *testing.T) time.Duration {
	t.Helper()
	if set := os.Getenv("SOAK"); set != "" {
		d, err := time.ParseDuration(set)
		require.NoError(t, err, "SOAK")
		return d
	}
	if os.Getenv("REDIS_EXHAUSTIVE") == "" {
		t.Skip("REDIS_EXHAUSTIVE=1 runs it, and so does SOAK=5s")
	}
	return 21 * time.Second // from 20 on, each incident has its turn
}

func soakSeed(t *testing.T) uint64 {
	t.Helper()
	if set := os.Getenv("SEED"); set != "" {
		seed, err := strconv.ParseUint(set, 10, 64)
		require.NoError(t, err, "SEED")
		return seed
	}
	return rand.Uint64()
}

// A soak is a world, and what is done to it.
type soak struct {
	*world
	seed uint64
	next atomic.Uint64 // key

	redisKills, kills, stops, terms int
	storms                          atomic.Int64
	recovery                        time.Duration // the longest from a restart of Redis to the next effect
}

// Clients are busy until they are told to end.
type clients struct {
	stop, overdue chan struct{}
	done          sync.WaitGroup
}

// clientsAtOnce is how many keys are alive at a time.
const clientsAtOnce = 32

func (s *soak) work(seed uint64) *clients {
	c := &clients{stop: make(chan struct{}), overdue: make(chan struct{})}
	for i := range uint64(clientsAtOnce) {
		c.done.Go(func() {
			for rng := rand.New(rand.NewPCG(seed, i)); !sleep(c.stop, 0); {
				s.live(rng, s.next.Add(1), c.overdue)
			}
		})
	}
	return c
}

// end lets the clients settle what they have begun, and begin nothing new.
func (c *clients) end() { close(c.stop) }

// requireSettled waits for that, and returns how long it took.
func (s *soak) requireSettled(c *clients, limit time.Duration) time.Duration {
	start := time.Now()
	late := time.AfterFunc(limit, func() { close(c.overdue) })
	defer late.Stop()
	c.done.Wait()
	return time.Since(start)
}

// torment lets the weather rage, and kills, stops and terminates one process after the
// other, until a time and until each thing has happened that fits in. Then it heals
// everything.
func (s *soak) torment(rng *rand.Rand, end time.Time) {
	stop := make(chan struct{})
	var storms sync.WaitGroup
	var skies []*weather
	for _, p := range s.places {
		sky := &weather{proxy: p.proxy, storms: &s.storms}
		skies = append(skies, sky)
		own := rand.New(rand.NewPCG(s.seed, uint64(p.n)))
		storms.Go(func() { sky.rage(own, stop) })
	}
	s.calm.Store(end.UnixMilli())
	brief := func(*place) { s.killRedis(skies, between(rng, 0, 300)) }
	// So long that clients are answered before their answers are recorded.
	long := func(*place) { s.killRedis(skies, 2*lease/5) }
	incidents := []func(*place){
		brief, s.kill, long, s.overstop, brief, s.terminate, long, s.kill, brief, s.stop, long, s.terminate,
	}
	least := 3
	if time.Until(end) > 20*time.Second {
		least = len(incidents)
	}
	for n := 0; n < least || time.Now().Before(end); n++ {
		time.Sleep(between(rng, 300, 1000)) // between incidents, work goes on
		incidents[n%len(incidents)](s.places[rng.IntN(len(s.places))])
	}
	close(stop)
	storms.Wait()
}

// killRedis kills Redis, and starts it again after a while. There is no weather meanwhile:
// what is to be survived is an outage that is shorter than the lease, and not the sum of
// several.
func (s *soak) killRedis(skies []*weather, outage time.Duration) {
	s.redisKills++
	for _, sky := range skies {
		sky.mu.Lock()
		defer sky.mu.Unlock()
	}
	s.redis.Kill()
	time.Sleep(outage) // Redis is away for so long
	s.redis.Restart(s.t)
	restarted := time.Now()
	s.mu.Lock()
	effected := s.effected
	s.mu.Unlock()
	select {
	case <-effected:
		s.recovery = max(s.recovery, time.Since(restarted))
	case <-time.After(patience):
		for _, p := range s.places {
			s.t.Logf("%s\n%s", p.process().log(), p.process().stacks())
		}
		require.FailNow(s.t, "nothing happens after a restart of Redis")
	}
}

func (s *soak) kill(p *place) {
	s.kills++
	p.process().kill()
	s.start(p)
}

func (s *soak) terminate(p *place) {
	s.terms++
	p.process().terminate()
	s.start(p)
}

func (s *soak) stop(p *place) { s.stopFor(p, lease/6) }

// overstop stops a process for so long that others take over.
func (s *soak) overstop(p *place) { s.stopFor(p, lease+time.Second) }

func (s *soak) stopFor(p *place, d time.Duration) {
	s.stops++
	p.process().stop()
	time.Sleep(d) // the process stands still for so long
	p.process().resume()
}

// requireRecalled asks each process for keys that were settled, in peace.
func (s *soak) requireRecalled(rng *rand.Rand) {
	for range 100 {
		in := s.recall(rng)
		for _, p := range s.places {
			recorded := in.record != nil
			got := s.send(in, p.process(), in.body, patience)
			v, err := in.take(p.process(), got)
			if err != nil || v != settled || recorded && !got.replayed() {
				s.fail(in, "recalled: %v: %v from %s", err, got, p.process().name)
				return // where one key is broken many are, and slow to say so
			}
		}
	}
}

// rest waits until every process has come to rest within bounds, and returns the largest
// stats.
func (s *soak) rest(bounds stats) stats {
	s.client.CloseIdleConnections()
	var most stats
	for _, p := range s.places {
		got := p.process().stats(s.t)
		within := func() bool {
			return got.Goroutines <= bounds.Goroutines && got.Heap <= bounds.Heap && got.Settling == 0
		}
		for end := time.Now().Add(patience); !within() && time.Now().Before(end); got = p.process().stats(s.t) {
			time.Sleep(200 * time.Millisecond) // a poll
		}
		if !within() {
			s.fail(&intent{}, "%s does not come to rest within %+v: %+v", p.process().name, bounds, got)
		}
		most.Goroutines = max(most.Goroutines, got.Goroutines)
		most.Heap = max(most.Heap, got.Heap)
	}
	return most
}

// finish ends all processes.
func (s *soak) finish() {
	for _, p := range s.places {
		p.process().terminate()
	}
	for _, p := range s.processes {
		_ = p.exit(s.t)
	}
}

// requireSound checks what the processes have said of themselves: those that were asked
// to end did so in time and had recorded everything before.
func (s *soak) requireSound() {
	for _, p := range s.processes {
		require.Empty(s.t, p.losses, "%s gave recordings up:\n%s", p.name, strings.Join(p.losses, ""))
		if p.orderly {
			require.NoError(s.t, p.err, p.name)
		}
		p.requireSound(s.t)
	}
}

// said returns how often the processes have logged a message, altogether.
func (s *soak) said(message string) (n int) {
	for _, p := range s.processes {
		n += p.said(message)
	}
	return n
}

// summary prints what the soak was like, in one line.
func (s *soak) summary(normal, final stats, settling time.Duration) {
	fired := 0
	for _, p := range s.places {
		fired += p.proxy.Fired()
	}
	ms := func(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
	s.t.Log(strings.Join([]string{
		fmt.Sprintf("soak: %d requests for %d keys, %d clients hung up; %d effects, %d answers replayed",
			s.requests.Load(), s.keys.Load(), s.hangups.Load(), s.effects, s.replays.Load()),
		fmt.Sprintf("%d storms, %d messages failed in them, %d store calls failed", s.storms.Load(), fired, s.said(logStore)),
		fmt.Sprintf("Redis killed %d times, processes killed %d, stopped %d, terminated %d times",
			s.redisKills, s.kills, s.stops, s.terms),
		fmt.Sprintf("%d broken promises, %d recordings lost", len(s.failures), s.said(logLost)),
		fmt.Sprintf("because a process was killed or stopped: %d second effects, the last %v after the first request, "+
			"%d unrecorded answers replaced, %d keys held, %d leases lost",
			s.doubles.Load(), ms(s.takeover), s.replaced.Load(), s.heldKeys.Load(), s.said(logLease)),
		fmt.Sprintf("%d recordings went on in the background", s.said(logDelayed)),
		fmt.Sprintf("next effect at most %v after a restart of Redis, last key settled %v after the end of all faults",
			ms(s.recovery), ms(settling)),
		fmt.Sprintf("goroutines %d before and %d after, heap %d and %d KiB",
			normal.Goroutines, final.Goroutines, normal.Heap>>10, final.Heap>>10),
	}, "; "))
}
