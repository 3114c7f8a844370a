//go:build unix

package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"example.com/idempotency/internal/faultproxy"
)

// torment makes what lasts longer than a lease, and throws records away: all of them, or one.
func (o *outside) torment(rng *rand.Rand, stop <-chan struct{}) {
	incidents := []func(*outsidePlace){o.stop, o.sever, o.slowDown, o.deploy, o.outage}
	for n := 0; ; n++ {
		for range 3 {
			if sleep(stop, between(rng, 100, 500)) {
				return
			}
			o.lose(rng)
		}
		incidents[n%len(incidents)](o.places[rng.IntN(len(o.places))])
	}
}

// lose makes Redis forget. The effects of the runs stand.
func (o *outside) lose(rng *rand.Rand) {
	ctx := context.Background()
	if rng.IntN(3) == 0 {
		if o.lossy.FlushDB(ctx).Err() == nil {
			o.count("times all records lost")
		}
		return
	}
	for range 1 + rng.IntN(5) {
		key, err := o.lossy.RandomKey(ctx).Result()
		if err == nil && o.lossy.Del(ctx, key).Val() == 1 {
			o.count("single records lost")
		}
	}
}

// stop lets a process stand still.
func (o *outside) stop(p *outsidePlace) {
	now := p.process()
	now.stop()
	sleep(nil, outsideLease*3/2)
	now.resume()
	o.count("processes stopped for more than a lease")
}

// sever takes a process its Redis right after calls that were executed: nobody has heard of claims
// that were granted.
func (o *outside) sever(p *outsidePlace) {
	p.proxy.Fail(faultproxy.LoseReply, -1, nil)
	sleep(nil, outsideLease/4)
	p.proxy.Refuse()
	sleep(nil, outsideLease*3/2)
	p.proxy.Heal()
	o.count("connections severed for more than a lease")
}

// slowDown makes the network slow. Redis is healthy, and too far away for large answers. Each is
// tried six times before it is given up, which a short soak has no time for.
func (o *outside) slowDown(*outsidePlace) {
	for _, p := range o.places {
		p.proxy.Throttle(64 << 10)
		for _, way := range []faultproxy.Direction{faultproxy.ToServer, faultproxy.ToClient} {
			p.proxy.Delay(way, 5*time.Millisecond)
		}
	}
	sleep(nil, o.slowFor)
	for _, p := range o.places {
		p.proxy.Heal()
	}
	o.count("times the network was slow")
}

// deploy puts the next version in place of a process: it starts, gets the requests, and the former one
// ends in an orderly way.
func (o *outside) deploy(p *outsidePlace) {
	former := p.process()
	o.start(p)
	former.terminate()
	o.count("deployments of another version")
}

func (o *outside) outage(*outsidePlace) {
	o.redis.Kill()
	sleep(nil, outsideLease*5/4)
	o.redis.Restart(o.t)
	o.count("outages of more than a lease")
}

// start starts the next process of a place, which is of the other version.
func (o *outside) start(p *outsidePlace) {
	p.version++
	next := launch(o.t, fmt.Sprintf("outside-%d.%d", p.n, p.version), "-redis", p.proxy.Addr(),
		"-ledger", o.bank, "-lease", outsideLease.String(), "-grace", grace.String(), "-version", fmt.Sprint(p.version))
	o.mu.Lock()
	o.processes = append(o.processes, next)
	o.mu.Unlock()
	p.mu.Lock()
	p.now = next
	p.mu.Unlock()
}
