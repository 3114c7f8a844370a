package versions_test

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/modeltest/versions"
)

// A pair is a process that stores something, one of the other version that comes upon it, and a key of a guard
// that both have.
type pair struct {
	maker, other *process
	guard, key   string
}

func (p pair) of(c versions.Call) versions.Call {
	c.Guard, c.Key = p.guard, p.key
	return c
}

// do makes a call that must succeed.
func (p pair) do(t *testing.T, who *process, c versions.Call) versions.Reply {
	t.Helper()
	r := who.call(t, p.of(c))
	require.Empty(t, r.Error, "%s: %+v", who.name, c)
	return r
}

// reads returns what a process makes of a record that the other one has written. If it refuses the record because
// it cannot read it, the test ends, and the record must be as it was.
func (p pair) reads(t *testing.T, who *process, c versions.Call) versions.Reply {
	t.Helper()
	writer := p.maker
	if who == p.maker {
		writer = p.other
	}
	before := writer.call(t, p.of(versions.Call{Op: "look"}))
	r := who.call(t, p.of(c))
	if p.maker.program == p.other.program { // a version reads what it has written, once the store is in time
		poll(t, func() bool {
			if refused := r.Status == 503 || r.Elsewhere; !refused {
				return true
			}
			r = who.call(t, p.of(c))
			return false
		})
	}
	if r.Status == 503 || r.Elsewhere {
		after := writer.call(t, p.of(versions.Call{Op: "look"}))
		if len(after.Look.Steps) > 0 && after.Look.State == "released" {
			// Steps are read when the claim was granted, which is given back then.
			after.Look.State, after.Look.Attempt = before.Look.State, before.Look.Attempt
			after.Look.Runs, after.Look.Started, after.Look.Named = before.Look.Runs, before.Look.Started, before.Look.Named
		}
		require.Equal(t, before, after, "a record that is refused is left alone")
		require.False(t, r.Ran)
		require.NotEqual(t, p.maker.program, p.other.program, "a version reads what it has written")
		t.Logf("REFUSED: %s leaves the record of %s alone", who.name, writer.name)
		t.SkipNow()
	}
	return r
}

// request is reads of a request.
func (p pair) request(t *testing.T, who *process, do, body string) versions.Reply {
	t.Helper()
	return p.reads(t, who, versions.Call{Op: "request", Do: do, Body: body})
}

// agree lets both look at the key and send requests that change nothing, and compares what they get.
func (p pair) agree(t *testing.T, bodies ...string) {
	t.Helper()
	look := versions.Call{Op: "look"}
	other, maker := p.reads(t, p.other, look), p.reads(t, p.maker, look)
	if strings.Contains(p.guard, "/sealed/") {
		require.Subset(t, []string{p.key, ""}, []string{other.Look.Named, maker.Look.Named}, "the kept key, unless it is in another form")
		other.Look.Named = maker.Look.Named
	}
	require.False(t, maker.Look.Started.IsZero())
	require.Equal(t, maker, other)
	require.Equal(t, p.key, other.Look.Key)
	for _, body := range bodies {
		other, maker := p.request(t, p.other, "answer", body), p.request(t, p.maker, "answer", body)
		require.False(t, other.Ran || maker.Ran)
		require.Equal(t, maker, other)
	}
}

// states are the states in which the other process finds a key, by name, with the policy of the guard.
var states = map[string]struct {
	policy string
	test   func(t *testing.T, p pair)
}{
	"in flight": {"rerun", func(t *testing.T, p pair) {
		p.do(t, p.maker, versions.Call{Op: "start", Do: "answer", Body: "a"})
		p.agree(t, "a", "b")
		require.Equal(t, "claimed", p.do(t, p.other, versions.Call{Op: "look"}).Look.State)
		require.Equal(t, 201, p.do(t, p.maker, versions.Call{Op: "finish"}).Status)
		p.agree(t, "a", "b")
	}},
	"in flight, and held": {"hold", func(t *testing.T, p pair) {
		p.do(t, p.maker, versions.Call{Op: "start", Do: "step-wait", Body: "a"})
		p.agree(t, "a", "b")
		require.Equal(t, 200, p.do(t, p.maker, versions.Call{Op: "finish"}).Status)
		p.agree(t, "a", "b")
	}},
	"completed": {"rerun", func(t *testing.T, p pair) {
		require.Equal(t, 201, p.request(t, p.maker, "answer", "a").Status)
		p.agree(t, "a", "b")
		require.Equal(t, "hello from attempt 1", p.request(t, p.other, "answer", "a").Body)
	}},
	"completed without a body": {"rerun", func(t *testing.T, p pair) {
		require.Equal(t, 204, p.request(t, p.maker, "empty", "a").Status)
		p.agree(t, "a", "b")
	}},
	"completed, and the answer not kept": {"rerun", func(t *testing.T, p pair) {
		require.Equal(t, 201, p.request(t, p.maker, "large", "a").Status)
		p.agree(t, "a", "b")
	}},
	"completed with a step": {"rerun", func(t *testing.T, p pair) {
		require.Equal(t, 1, p.request(t, p.maker, "step", "a").Steps)
		p.agree(t, "a", "b")
	}},
	"a value":  {"rerun", func(t *testing.T, p pair) { testJob(t, p, "value") }},
	"an error": {"rerun", func(t *testing.T, p pair) { testJob(t, p, "error") }},
	"held, and resolved with an answer": {"hold", func(t *testing.T, p pair) {
		require.True(t, p.request(t, p.maker, "step-fail", "a").Ran)
		p.agree(t, "a", "b")
		require.Equal(t, "held", p.do(t, p.other, versions.Call{Op: "look"}).Look.State)
		p.reads(t, p.other, versions.Call{Op: "resolve", Final: true, Body: "resolved"})
		p.agree(t, "a", "b")
		require.Equal(t, "resolved", p.request(t, p.maker, "answer", "a").Body)
		require.Len(t, p.do(t, p.maker, versions.Call{Op: "look"}).Look.Decisions, 1)
	}},
	"held, and resolved as not executed": {"hold", func(t *testing.T, p pair) {
		require.True(t, p.request(t, p.maker, "fail", "a").Ran)
		p.agree(t, "a", "b")
		p.reads(t, p.other, versions.Call{Op: "resolve"})
		require.Equal(t, "hello from attempt 2", p.request(t, p.maker, "answer", "a").Body)
		p.agree(t, "a", "b")
	}},
	"released": {"rerun", func(t *testing.T, p pair) {
		require.True(t, p.request(t, p.maker, "refuse", "a").Ran)
		p.agree(t, "b")
		r := p.request(t, p.other, "answer", "a")
		require.Equal(t, "hello from attempt 2", r.Body)
		p.agree(t, "a", "b")
	}},
	"released with a step": {"rerun", func(t *testing.T, p pair) {
		require.Equal(t, 1, p.request(t, p.maker, "step-fail", "a").Steps)
		p.agree(t, "b")
		r := p.request(t, p.other, "step", "a")
		require.Zero(t, r.Steps, "it is recorded")
		require.Equal(t, "charge 7", r.Body)
		p.agree(t, "a", "b")
	}},
	"released, and bound by its fingerprint": {"rebind", func(t *testing.T, p pair) {
		require.True(t, p.request(t, p.maker, "fail", "a").Ran)
		p.agree(t, "b")
	}},
	"released, and bound to nothing": {"rebind", func(t *testing.T, p pair) {
		require.True(t, p.request(t, p.maker, "refuse", "a").Ran)
		p.agree(t)
		r := p.request(t, p.other, "answer", "b")
		require.True(t, r.Ran, "%v", r)
		p.agree(t, "a", "b")
	}},
	"forgotten": {"rerun", func(t *testing.T, p pair) {
		require.True(t, p.request(t, p.maker, "answer", "a").Ran)
		p.reads(t, p.other, versions.Call{Op: "forget"})
		require.Contains(t, p.maker.call(t, p.of(versions.Call{Op: "look"})).Error, "no such record")
		require.True(t, p.request(t, p.maker, "answer", "b").Ran)
		p.agree(t, "a", "b")
	}},
	"listed page by page, in turns": {"hold", func(t *testing.T, p pair) {
		keys := []string{p.key + "1", p.key + "2", p.key + "3"}
		for _, key := range keys {
			p.key = key
			require.True(t, p.request(t, p.maker, "fail", "a").Ran)
		}
		pages := func(who ...*process) (names []string) {
			c := versions.Call{Op: "list", Label: p.guard}
			for i := 0; ; i++ {
				page := p.do(t, who[i%len(who)], c)
				names = append(names, page.Names...)
				if c.Next = page.Next; c.Next == "" {
					return names
				}
			}
		}
		// Records of other tests that are held at the time are among them.
		require.Subset(t, pages(p.maker, p.other), onlyKeys(pages(p.maker), pages(p.other)))
	}},
	"a journal": {"rerun", func(t *testing.T, p pair) {
		path := filepath.Join(t.TempDir(), "journal")
		p.do(t, p.maker, versions.Call{Op: "intend", Path: path})
		names := p.do(t, p.other, versions.Call{Op: "intentions", Path: path}).Names
		require.Len(t, names, 2)
		require.Equal(t, p.do(t, p.maker, versions.Call{Op: "intentions", Path: path}).Names, names)
	}},
}

// taggedStates are those of records with tags, and what is left of those that were forgotten.
var taggedStates = map[string]func(t *testing.T, p pair){
	"found": func(t *testing.T, p pair) {
		require.Equal(t, 201, p.request(t, p.maker, "answer", "a").Status)
		p.find(t, 2)
		p.agree(t, "a", "b")
	},
	"found, and bound anew": func(t *testing.T, p pair) {
		require.True(t, p.request(t, p.maker, "refuse", "a").Ran)
		p.find(t, 2)
		require.True(t, p.request(t, p.other, "answer", "a").Ran)
		p.find(t, 2)
	},
	"erased": func(t *testing.T, p pair) {
		require.Equal(t, 201, p.request(t, p.maker, "answer", "a").Status)
		erased := p.reads(t, p.other, versions.Call{Op: "erase"})
		require.Equal(t, []string{"1 0 0 0 0 0"}, erased.Names)
		p.find(t, 0)
		p.remember(t)
	},
	"forgotten, with a tombstone": func(t *testing.T, p pair) {
		require.Equal(t, 201, p.request(t, p.maker, "answer", "a").Status)
		p.reads(t, p.maker, versions.Call{Op: "forget"})
		p.find(t, 0)
		p.remember(t)
		require.True(t, p.request(t, p.other, "answer", "b").Ran)
		p.reads(t, p.other, versions.Call{Op: "forget"})
		p.remember(t)
	},
}

// find lets both look for the record by its reference and by its scope.
func (p pair) find(t *testing.T, n int) {
	t.Helper()
	c := versions.Call{Op: "find"}
	other, maker := p.reads(t, p.other, c), p.reads(t, p.maker, c)
	require.Len(t, other.Names, n)
	require.Equal(t, maker, other)
}

// remember lets both look for what is left of a record that was forgotten.
func (p pair) remember(t *testing.T) {
	t.Helper()
	c := p.of(versions.Call{Op: "look"})
	other, maker := p.other.call(t, c), p.maker.call(t, c)
	require.Equal(t, maker, other)
	require.Contains(t, other.Error, "no such record")
	require.Equal(t, "completed", other.Look.State)
	require.NotEmpty(t, other.Look.Decisions)
}

// onlyKeys returns what both lists have.
func onlyKeys(a, b []string) (both []string) {
	for _, name := range a {
		for _, other := range b {
			if name == other {
				both = append(both, name)
			}
		}
	}
	return both
}

func testJob(t *testing.T, p pair, do string) {
	t.Helper()
	c := versions.Call{Op: "do", Do: do, Body: "a"}
	first := p.maker.call(t, p.of(c))
	require.True(t, first.Ran)
	p.agree(t)
	other, maker := p.reads(t, p.other, c), p.reads(t, p.maker, c)
	require.False(t, other.Ran)
	require.Equal(t, maker, other)
	require.Equal(t, first.Result, other.Result)
	c.Body = "b"
	require.Equal(t, p.reads(t, p.maker, c), p.reads(t, p.other, c))
}

// lapses are the states in which a process is killed, and the other one comes when the lease has ended.
var lapses = map[string]struct {
	policy, do string
	test       func(t *testing.T, p pair)
}{
	"taken over with its step": {"brief-rerun", "step-wait", func(t *testing.T, p pair) {
		r := p.lapsed(t, "step")
		require.Equal(t, "charge 7", r.Body)
		require.Zero(t, r.Steps)
		p.agree(t, "a", "b")
	}},
	"taken over in a step that happens once": {"brief-rerun", "once", func(t *testing.T, p pair) {
		r := p.lapsed(t, "once")
		require.Zero(t, r.Steps)
		p.agree(t, "b")
	}},
	"held": {"brief-hold", "step-wait", func(t *testing.T, p pair) {
		poll(t, func() bool { return p.reads(t, p.other, versions.Call{Op: "look"}).Look.State == "held" })
		p.agree(t, "a", "b")
		p.reads(t, p.other, versions.Call{Op: "resolve"})
		require.Equal(t, "charge 7", p.request(t, p.maker, "step", "a").Body)
		p.agree(t, "a", "b")
	}},
}

// lapsed sends requests until the lease of the process that was killed has ended.
func (p pair) lapsed(t *testing.T, do string) (r versions.Reply) {
	t.Helper()
	poll(t, func() bool {
		r = p.request(t, p.other, do, "a")
		return r.Ran
	})
	return r
}

// poll calls f until it reports true. Unlike Eventually it does so in the goroutine of the test, which f may end.
func poll(t *testing.T, f func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !f(); time.Sleep(versions.BriefLease / 10) { // a poll
		require.True(t, time.Now().Before(end), "the lease has not ended")
	}
}

func TestVersionsBesideEachOther(t *testing.T) {
	earlier, tree := programs(t)
	s := startServers(t)
	first := s.run(t, "the earlier version", earlier)
	first.call(t, versions.Call{Op: "damage"}) // it has made its tables
	second := s.run(t, "the tree", tree)
	t.Run("made by the earlier", func(t *testing.T) {
		testSide(t, first, second, s.run(t, "the earlier version, killed", earlier))
	})
	t.Run("made by the tree", func(t *testing.T) {
		testSide(t, second, first, s.run(t, "the tree, killed", tree))
	})
	for _, p := range []*process{first, second} {
		require.Empty(t, p.call(t, versions.Call{Op: "damage"}).Names, "%s has reported damage", p.name)
	}
}

// testSide tests all states that maker makes, or doomed, a process of its version.
func testSide(t *testing.T, maker, other, doomed *process) {
	t.Helper()
	each := func(name, policy string, f func(name string, p pair)) {
		for _, store := range versions.Stores {
			for _, seal := range versions.Seals {
				sum := sha256.Sum256([]byte(t.Name() + name + store + seal))
				f(name+"/"+store+" "+seal, pair{maker, other, store + "/" + seal + "/" + policy, hex.EncodeToString(sum[:8])})
			}
		}
	}
	parallel := func(name string, p pair, test func(t *testing.T, p pair)) {
		t.Run(name, func(t *testing.T) {
			test(t, p)
		})
	}
	var lapsed []func()
	for name, lapse := range lapses {
		each("killed, and "+name, lapse.policy, func(name string, p pair) {
			p.do(t, doomed, versions.Call{Op: "start", Do: lapse.do, Body: "a"})
			lapsed = append(lapsed, func() { parallel(name, p, lapse.test) })
		})
	}
	doomed.kill()
	for _, test := range lapsed {
		test()
	}
	for name, state := range states {
		each(name, state.policy, func(name string, p pair) { parallel(name, p, state.test) })
	}
	for name, test := range taggedStates {
		each(name, "found", func(name string, p pair) { parallel(name, p, test) })
	}
}
