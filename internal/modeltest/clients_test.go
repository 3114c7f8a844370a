package modeltest

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.com/idempotency/internal/guardtest"

	"github.com/anishathalye/porcupine"

	"example.com/idempotency"
	"example.com/idempotency/store"
)

// A setting is what clients make their calls with.
type setting struct {
	clients int
	calls   int           // in all
	lease   time.Duration // the other durations are multiples
	clock   clock
	pause   func(time.Duration)
	large   bool // some answers are large

	// perform makes a call of that client. It also returns how often the call may have
	// been executed without a reply.
	perform func(client int, rng *rand.Rand, c call) (got reply, lost int)
}

// large is larger than an answer that the Redis store sends through a script.
var large = strings.Repeat("large", 4<<10)

// callsPerKey keeps keys short-lived. Once a key is only replayed it is not interesting
// any more, and the time that a check takes grows quickly with the number of calls.
const callsPerKey = 40

// run lets clients make random calls, all at once, and returns their history.
//
// All clients share a few owners. So a call comes from the owner, from an earlier owner, or
// from a stranger, and is often a repeated one. Half of the calls that only an owner may
// make come from the owner that was last told so. Otherwise too little would happen.
func (s setting) run(seed uint64) *history {
	h := &history{
		seed: seed, clock: s.clock,
		keys: make(map[string][]porcupine.Operation), seen: make(map[string]int),
	}
	var made atomic.Int64
	var holders sync.Map // by key: the owner that was last told that it holds the claim
	var looks sync.Map   // by key: the last reply that showed the record
	guardtest.Together(s.clients, func(client int) {
		rng := rand.New(rand.NewPCG(seed, uint64(client)))
		perform := func(c call) (reply, int) { return s.perform(client, rng, c) }
		for n := int(made.Add(1)); n <= s.calls; n = int(made.Add(1)) {
			if rng.IntN(3) == 0 {
				s.pause(upTo(rng, 2*s.lease))
			}
			c := s.draw(rng, n)
			if holder, ok := holders.Load(c.key); ok && c.method != claim && rng.IntN(2) == 0 {
				c.owner = holder.(store.Owner)
			}
			if look, ok := looks.Load(c.key); ok && rng.IntN(3) > 0 {
				c.decideBy(look.(reply), rng)
			}
			got := h.do(client, c, perform)
			if got.lost && rng.IntN(2) == 0 {
				got = h.do(client, c, perform)
			}
			if got.state != 0 {
				looks.Store(c.key, got)
			}
			if !got.mine {
				continue
			}
			holders.Store(c.key, c.owner)
			var more []call
			switch rng.IntN(8) {
			case 0:
				more = c.inDoubt(got)
			case 1:
				more = s.unbound(c, rng)
			}
			for _, next := range more {
				_ = h.do(client, next, perform)
			}
			if rng.IntN(4) == 0 {
				s.pause(s.lease)
				c.method = late[rng.IntN(len(late))]
				_ = h.do(client, c, perform)
			}
		}
	})
	return h
}

// methods lists each method as often as it is drawn.
var methods = []method{
	claim, claim, claim, claim, claim, claim, claim, claim,
	complete, complete, release, release, hold, hold, renew, renew,
	saveStep, get, answer, resolve, resolve, forget,
}

// late are the methods that succeed for an owner even when its lease has ended.
var late = []method{claim, claim, complete, release, hold, renew, saveStep}

// draw returns the nth call.
func (s setting) draw(rng *rand.Rand, n int) call {
	keyNumber := n/callsPerKey + rng.IntN(2)
	c := newCall(methods[rng.IntN(len(methods))], keyOf(fmt.Sprint("key ", keyNumber)), rng.IntN(owners), s.lease)
	c.claim.Watch = rng.IntN(4) == 0
	c.step, c.note = rng.IntN(len(stepNames)), []string{"", "x", "y"}[rng.IntN(3)]
	c.seen = store.Seen{Owner: c.owner, Attempt: rng.IntN(3), State: states[rng.IntN(len(states))]}
	if c.method != resolve || rng.IntN(2) == 0 {
		c.answer = fmt.Sprint(n)
		if s.large && rng.IntN(4) == 0 {
			c.answer += large
		}
	}
	return c
}

// inDoubt returns the calls of a run that begins a step and ends in doubt, and of an operator
// who finds out that the step did not happen.
func (c call) inDoubt(granted reply) []call {
	calls := []call{c, c, c, c}
	for i, m := range []method{saveStep, hold, resolve, get} {
		calls[i].method, calls[i].answer = m, ""
	}
	calls[0].answer = "begun"
	calls[2].seen = store.Seen{Owner: c.owner, Attempt: granted.attempt, State: store.Held}
	calls[2].undone = steps{}
	calls[2].undone[c.step] = "begun"
	return calls
}

// unbound returns the calls of a run that leaves its key unbound, of a claim that finds it so and does
// not say Unbind, and of one with the other payload.
func (s setting) unbound(c call, rng *rand.Rand) []call {
	c.method, c.release = release, store.Release{Undone: true, Unbind: true}
	next, last := [...]int{0, 1, 3}[rng.IntN(3)], 4+rng.IntN(2)
	return []call{
		c, newCall(claim, c.key, next, s.lease), newCall(release, c.key, next, s.lease), newCall(claim, c.key, last, s.lease),
	}
}

// decideBy makes the caller decide by what it has seen of the record, or of one that differs in
// one respect, and undo a step that it has seen, or one with another value.
func (c *call) decideBy(look reply, rng *rand.Rand) {
	c.seen = store.Seen{Owner: look.owner, Attempt: look.attempt, State: look.state}
	switch rng.IntN(8) {
	case 0:
		c.seen.Attempt++
	case 1:
		c.seen.Owner[0] = byte(rng.IntN(owners) + 1)
	}
	if c.method == resolve {
		c.seen.State = store.Held
		i := rng.IntN(len(c.undone))
		if c.undone[i] = look.steps[i]; rng.IntN(4) == 0 {
			c.undone[i] = "another value"
		}
	}
}

// owners is how many owners a key has.
const owners = 6

// newCall returns a call by one of the owners of a key. An owner always claims and releases
// with the same arguments, as a request does. The last two owners have another payload, and the
// first one claims with Hold.
func newCall(m method, key string, owner int, lease time.Duration) call {
	c := call{method: m, key: key, owner: store.Owner{byte(owner + 1)}, ttl: 2 * lease}
	copy(c.owner[1:], key)
	c.claim = store.Claim{
		Owner: c.owner, Fingerprint: idempotency.Fingerprint{1},
		Lease: lease, Retention: 3 * lease, Hold: owner == 0, HoldEnds: owner == 1,
	}
	c.release = [...]store.Release{
		{Undone: true, Keep: lease},
		{Keep: lease, Unbind: true, Unused: true},
		{Undone: true, Keep: 2 * lease, Unbind: true},
		{Undone: true, Keep: 2 * lease, Unused: true},
		{Undone: true, Keep: 9 * lease, Unbind: true, Unused: true},
		{Undone: true, Unused: true},
	}[owner]
	if owner >= 4 {
		c.claim.Fingerprint[0] = 2
	}
	return c
}

// keyOf returns a key in the form that stores are given.
func keyOf(name string) string {
	sum := sha256.Sum256([]byte(name))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

func upTo(rng *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(rng.Int64N(int64(d)))
}
