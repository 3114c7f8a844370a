package modeltest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"example.com/idempotency"
	"example.com/idempotency/store"
)

func TestMemoryStoreFollowsTheModel(t *testing.T) {
	for range 5 {
		synctest.Test(t, func(t *testing.T) {
			// All checks run in one bubble, and not with a *testing.T. In a bubble it has no
			// deadline that rapid could ask for, and rapid's panics must not leave the bubble.
			rapid.Check(struct{ testing.TB }{t}, func(t *rapid.T) {
				start := time.Now()
				now := func() time.Duration { return time.Since(start) }
				newMachine(t, idempotency.NewMemoryStore(), now, time.Sleep, time.Nanosecond).run(t)
			})
		})
	}
}

func TestRedisStoreFollowsTheModel(t *testing.T) {
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	s := idempotency.NewRedisStore(client)
	rapid.Check(t, func(t *rapid.T) {
		server.FlushAll()
		var passed time.Duration
		now := func() time.Duration { return passed }
		advance := func(d time.Duration) {
			server.FastForward(d)
			passed += d
		}
		newMachine(t, s, now, advance, time.Millisecond).run(t)
	})
}

// A machine compares a store with the model, call by call.
type machine struct {
	store   fullStore
	now     func() time.Duration
	advance func(time.Duration)
	lease   time.Duration
	slack   time.Duration // how much later it may be than now says
	waits   *rapid.Generator[time.Duration]
	keys    map[string][]candidate
	owners  map[string]store.Owner // that were seen last, by key
}

func newMachine(t *rapid.T, s fullStore, now func() time.Duration, advance func(time.Duration), tick time.Duration) *machine {
	t.Helper()
	m := &machine{
		store: s, now: now, advance: advance, lease: 100 * tick,
		keys: make(map[string][]candidate), owners: make(map[string]store.Owner),
	}
	for i := range 2 {
		m.keys[keyOf(fmt.Sprint("key ", i))] = []candidate{{}}
	}
	// Something happens where a lease (100), a TTL (200) or a retention (300) ends.
	m.waits = rapid.Custom(func(t *rapid.T) time.Duration {
		until := rapid.SampledFrom([]int{0, 100, 200, 300}).Draw(t, "until")
		return time.Duration(until+rapid.IntRange(-1, 1).Draw(t, "and")) * tick
	})
	return m
}

// run makes the calls that t draws.
func (m *machine) run(t *rapid.T) {
	actions := map[string]func(*rapid.T){
		"wait": func(t *rapid.T) {
			if d := m.waits.Draw(t, "wait"); d > 0 {
				m.advance(d)
			}
		},
		"list": m.list,
	}
	for _, method := range methods {
		actions[string(method)] = func(t *rapid.T) {
			c := newCall(method, m.key(t), rapid.IntRange(0, owners-1).Draw(t, "owner"), m.lease)
			switch method {
			case claim:
				c.claim.Watch = rapid.IntRange(0, 3).Draw(t, "watch") == 0
			case saveStep:
				c.step = rapid.IntRange(0, len(stepNames)-1).Draw(t, "step")
				c.answer = rapid.SampledFrom([]string{"1", "2"}).Draw(t, "value")
			case complete:
				c.answer = rapid.SampledFrom([]string{"x", "y", large}).Draw(t, "answer")
			case resolve:
				c.answer = rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "answer")
				c.seen = m.seen(t, c, store.Held)
				c.note = rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "note")
				for i := range c.undone {
					c.undone[i] = rapid.SampledFrom([]string{"", "1", "2"}).Draw(t, "undone")
				}
			case forget:
				c.seen = m.seen(t, c, states...)
			}
			m.do(t, c)
			m.do(t, call{method: get, key: c.key})
		}
	}
	t.Repeat(actions)
}

// states are what a caller may have seen.
var states = []store.State{
	store.Claimed, store.Released, store.Completed, store.Held,
	store.Corrupt, 0,
}

// seen returns what the caller has seen, mostly the owner that there is and one of the likely
// states.
func (m *machine) seen(t *rapid.T, c call, likely ...store.State) store.Seen {
	if rapid.IntRange(0, 5).Draw(t, "unlikely") == 0 {
		likely = states
	}
	owner := m.owners[c.key]
	if rapid.IntRange(0, 3).Draw(t, "another owner") == 0 {
		owner = c.owner
	}
	return store.Seen{
		Owner:   owner,
		Attempt: rapid.IntRange(0, 3).Draw(t, "attempt"),
		State:   rapid.SampledFrom(likely).Draw(t, "state"),
	}
}

func (m *machine) key(t *rapid.T) string {
	return keyOf(rapid.SampledFrom([]string{"key 0", "key 1"}).Draw(t, "key"))
}

// do makes a call of the store and of the model.
func (m *machine) do(t *rapid.T, c call) {
	got := perform(context.Background(), m.store, c)
	now := m.now()
	if got.state != 0 {
		m.owners[c.key] = got.owner
	}
	var next []candidate
	for _, s := range m.keys[c.key] {
		for _, after := range s.step(c, got, moment{first: now, last: now, slack: m.slack}) {
			if !slices.Contains(next, after) {
				next = append(next, after)
			}
		}
	}
	if len(next) == 0 {
		for _, s := range m.keys[c.key] {
			t.Logf("before: %v, touched %v ago", s.record, now-s.first)
		}
		t.Fatalf("the contract does not let %v return: %v", c, got)
	}
	t.Logf("%.4s %v: %v", c.key, c, got)
	m.keys[c.key] = next
}

// list compares what the store lists with the model, and what its index has.
func (m *machine) list(t *rapid.T) {
	for _, holding := range []bool{false, true} {
		found := make(map[string]store.State)
		q := store.Query{Holding: holding, Limit: rapid.IntRange(1, 3).Draw(t, "limit")}
		for more := true; more; more = q.Cursor != "" {
			page, err := m.store.List(context.Background(), q)
			if err != nil {
				t.Fatalf("List: %v", err)
			}
			for _, e := range page.Entries {
				found[e.Key] = e.Record.State
			}
			q.Cursor = page.Next
		}
		for key, candidates := range m.keys {
			if !slices.ContainsFunc(candidates, func(s candidate) bool { return s.listed(m.now(), holding) == found[key] }) {
				t.Fatalf("List with Holding=%t says that %.4s is %v, candidates %v", holding, key, found[key], candidates)
			}
		}
	}
}

// listed returns the state in which a list shows the record, or 0 if it does not. Here every moment is
// known.
func (s candidate) listed(now time.Duration, holding bool) store.State {
	passed := now - s.first
	for _, phase := range s.phases() {
		if passed < phase.from || passed >= phase.to {
			continue
		}
		held := s.state == store.Held || s.state == store.Claimed && s.hold
		switch {
		case phase.expired, holding && !held:
			return 0
		case phase.lapsed && s.hold:
			return store.Held
		}
	}
	return s.state
}
