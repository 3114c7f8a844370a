package policytest

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/policy"
	"example.com/idempotency/problem"
)

// A proof holds one sentence of a policy against a guard whose policy has it.
type proof struct {
	options []idempotency.Option
	shared  bool
	prove   func(t *testing.T, a *api)
}

// rules has the proof of each sentence that can be published. The numbers in a sentence are
// taken from the policy, and not from the options.
var rules = map[string]proof{
	"methods": {[]idempotency.Option{idempotency.WithMethods("POST", "MKCALENDAR")}, false, func(t *testing.T, a *api) {
		for _, method := range a.policy.Methods {
			a.runs(t, guardtest.Call{Method: method, Key: method})
			a.replays(t, guardtest.Call{Method: method, Key: method})
		}
		for _, method := range []string{"GET", "HEAD", "PUT", "PATCH", "DELETE"} {
			require.NotContains(t, a.policy.Methods, method)
			a.runs(t, guardtest.Call{Method: method, Key: method})
			a.runs(t, guardtest.Call{Method: method, Key: method})
		}
	}},
	"key-required": {[]idempotency.Option{idempotency.WithRequired(true)}, false, func(t *testing.T, a *api) {
		a.refuses(t, call(""), problem.KeyMissing)
		a.runs(t, call("k"))
	}},
	"key-optional": {nil, false, func(t *testing.T, a *api) {
		a.runs(t, call(""))
		a.runs(t, call(""))
	}},
	"key": {[]idempotency.Option{idempotency.WithHeader("X-Key")}, false, func(t *testing.T, a *api) {
		named := func(value string) guardtest.Call { return with(call(""), a.policy.Key.Header, value) }
		a.runs(t, named("abc"))
		a.replays(t, named(`"abc"`))
		for c := byte(' '); c <= '~'; c++ {
			bare, quoted := "a"+string(c)+"b", `"q`+string(c)+`b"`
			if strings.IndexByte(` ,;"`, c) >= 0 {
				a.refuses(t, named(bare), problem.KeyInvalid)
			} else {
				a.runs(t, named(bare))
			}
			if c != '"' && c != '\\' {
				a.runs(t, named(quoted))
			}
		}
		a.runs(t, named(`"\"\\"`))
		a.runs(t, named("k"))
		a.runs(t, named(strings.Repeat("x", a.policy.Key.MaxBytes)))
		a.refuses(t, named(strings.Repeat("x", a.policy.Key.MaxBytes+1)), problem.KeyInvalid)
		for _, malformed := range []string{"", `""`, "ü", "a\x7f", `"a`} {
			a.refuses(t, named(malformed), problem.KeyInvalid)
		}
		a.runs(t, call("abc")) // another field is not a key
		a.runs(t, call("abc"))
	}},
	"key-strict": {[]idempotency.Option{idempotency.WithStrictKeys(true)}, false, func(t *testing.T, a *api) {
		a.refuses(t, call("abc"), problem.KeyInvalid)
		a.runs(t, call(`"abc"`))
		a.replays(t, call(`"abc"`))
		a.runs(t, call(`"k"`))
		a.runs(t, call(`"`+strings.Repeat("x", a.policy.Key.MaxBytes)+`"`))
		a.refuses(t, call(`"`+strings.Repeat("x", a.policy.Key.MaxBytes+1)+`"`), problem.KeyInvalid)
		a.refuses(t, call(`""`), problem.KeyInvalid)
	}},
	"key-elsewhere": {[]idempotency.Option{fromBody}, false, func(t *testing.T, a *api) {
		keyed := func(n int) guardtest.Call { return guardtest.Call{Body: `{"id":"` + strings.Repeat("x", n) + `"}`} }
		require.Empty(t, a.policy.Key.Header)
		a.runs(t, keyed(a.policy.Key.MaxBytes))
		again := keyed(a.policy.Key.MaxBytes)
		again.Key = "the field is not looked at"
		a.replays(t, again)
		a.refuses(t, keyed(a.policy.Key.MaxBytes+1), problem.KeyInvalid)
	}},
	"once": {nil, false, func(t *testing.T, a *api) {
		a.refuses(t, with(call(""), a.policy.Key.Header, "k", "k"), problem.KeyInvalid)
		a.runs(t, call("k"))
	}},
	"echo": {nil, false, func(t *testing.T, a *api) {
		for _, got := range []guardtest.Reply{
			a.runs(t, call(`"k"`)), a.replays(t, call(`"k"`)),
			a.refuses(t, guardtest.Call{Key: `"k"`, Body: "other"}, problem.KeyReused),
			a.refuses(t, guardtest.Call{Key: `"k"`, Tenant: "unknown"}, problem.ScopeUnresolved),
		} {
			require.Equal(t, []string{`"k"`}, got.Header.Values(a.policy.Key.Header))
		}
	}},
	"max-request": {[]idempotency.Option{idempotency.WithLimits(idempotency.Limits{RequestBody: 10})}, false, func(t *testing.T, a *api) {
		of := func(n int64) guardtest.Call { return guardtest.Call{Key: "k", Body: strings.Repeat("x", int(n))} }
		a.refuses(t, of(a.policy.MaxRequestBody+1), problem.BodyTooLarge)
		a.runs(t, of(a.policy.MaxRequestBody))
		without := of(a.policy.MaxRequestBody + 1)
		without.Key = ""
		a.runs(t, without)
	}},
	"max-every-request": {[]idempotency.Option{fromBody, idempotency.WithLimits(idempotency.Limits{RequestBody: 20})}, false, func(t *testing.T, a *api) {
		room := int(a.policy.MaxRequestBody) - len("{}")
		a.runs(t, guardtest.Call{Body: "{" + strings.Repeat(" ", room) + "}"})
		a.refuses(t, guardtest.Call{Body: "{" + strings.Repeat(" ", room+1) + "}"}, problem.BodyTooLarge)
	}},
	"shared": {nil, true, func(t *testing.T, a *api) {
		a.runs(t, guardtest.Call{Key: "k", Tenant: "one"})
		a.replays(t, guardtest.Call{Key: "k", Tenant: "two"})
	}},
	"own-keys": {nil, false, func(t *testing.T, a *api) {
		a.runs(t, guardtest.Call{Key: "k", Tenant: "one"})
		a.runs(t, guardtest.Call{Key: "k", Tenant: "two", Body: "another request"})
		a.replays(t, guardtest.Call{Key: "k", Tenant: "one"})
	}},
	"binding-exact": {nil, false, func(t *testing.T, a *api) {
		requireBinding(t, a, []guardtest.Call{{Key: "k", Body: `{"amount": 100}`}})
		a.runs(t, with(guardtest.Call{Key: "other-fields"}, "X-Other", "1"))
		a.replays(t, with(guardtest.Call{Key: "other-fields"}, "X-Other", "2"))
	}},
	"binding-json": {[]idempotency.Option{idempotency.WithFingerprint(idempotency.JSONFingerprint)}, false, func(t *testing.T, a *api) {
		requireBinding(t, a, nil)
		a.runs(t, guardtest.Call{Key: "meaning", Body: `{"a":1,"b":2}`})
		a.replays(t, guardtest.Call{Key: "meaning", Body: `{ "b":2, "a":1 }`})
		text := with(guardtest.Call{Key: "text", Body: "{}"}, "Content-Type", "text/plain")
		a.runs(t, text)
		text.Body = "{ }"
		a.refuses(t, text, problem.KeyReused)
	}},
	"binding-own": {[]idempotency.Option{idempotency.WithFingerprint(idempotency.FieldsFingerprint("amount"))}, false, func(t *testing.T, a *api) {
		a.runs(t, guardtest.Call{Key: "k", Body: `{"amount":1,"sent":1}`})
		a.replays(t, guardtest.Call{Key: "k", Body: `{"amount":1,"sent":2}`})
		a.refuses(t, guardtest.Call{Key: "k", Body: `{"amount":2,"sent":1}`}, problem.KeyReused)
	}},
}

// fromBody takes the key from the body.
var fromBody = idempotency.WithKeyFunc(func(_ *http.Request, body []byte) (string, error) {
	var delivery struct{ ID string }
	err := json.Unmarshal(body, &delivery)
	return delivery.ID, err
})

// requireBinding checks that each part of a request counts, whatever became of the first.
func requireBinding(t *testing.T, a *api, different []guardtest.Call) {
	t.Helper()
	different = append(
		different,
		guardtest.Call{Key: "k", Method: "PATCH"},
		guardtest.Call{Key: "k", Path: "/refunds"},
		guardtest.Call{Key: "k", Path: "/charges?now=1"},
		guardtest.Call{Key: "k", Body: `{"amount":999}`},
		with(call("k"), "Content-Type", "application/xml"),
		with(call("k"), "Content-Encoding", "gzip"),
	)
	first := map[string]func(){
		"ended": func() { a.runs(t, call("k")) },
		"ended in doubt": func() {
			a.unknown(t, call("k"))
		},
		"is running": func() {
			done := a.inFlight(t, call("k"), time.Minute)
			t.Cleanup(func() { <-done })
		},
	}
	n := 0
	for name, begin := range first {
		n++
		a.store.Replace(idempotency.NewMemoryStore())
		begin()
		for _, c := range different {
			got := a.refuses(t, c, problem.KeyReused)
			require.Equal(t, []int{got.Status}, a.refusal(t, problem.KeyReused).Statuses, "%s: %+v", name, c)
		}
	}
	require.Equal(t, len(first), n)
}

// Each sentence that a guard publishes is true.
func TestRules(t *testing.T) {
	for id, p := range allRules() {
		guardtest.Bubble(t, id, func(t *testing.T) {
			a := newAPI(t, p.shared, p.options...)
			require.Contains(t, ids(&a.policy), id, "the guard does not publish the sentence")
			p.prove(t, a)
			time.Sleep(time.Hour) // what still runs ends
		})
	}
}

func ids(p *policy.Policy) []string {
	var ids []string
	for _, r := range p.Rules() {
		ids = append(ids, r.ID)
	}
	return ids
}

// seconds reads a header field.
func seconds(t *testing.T, got guardtest.Reply, name string) time.Duration {
	t.Helper()
	n, err := strconv.Atoi(got.Header.Get(name))
	require.NoError(t, err)
	return time.Duration(n) * time.Second
}

var hold = idempotency.WithRecovery(idempotency.Hold)

// moreRules has the proofs of the sentences about what becomes of a request.
var moreRules = map[string]proof{
	"corrected": {[]idempotency.Option{idempotency.WithRebinding(true)}, false, func(t *testing.T, a *api) {
		a.turnedAway(t, call("k"))
		a.turnedAway(t, guardtest.Call{Key: "k", Body: "corrected"})
		a.runs(t, guardtest.Call{Key: "k", Body: "and again"})
		a.refuses(t, call("k"), problem.KeyReused)
		a.unknown(t, call("in-doubt"))
		a.refuses(t, guardtest.Call{Key: "in-doubt", Body: "corrected"}, problem.KeyReused)
	}},
	"bound": {nil, false, func(t *testing.T, a *api) {
		a.turnedAway(t, call("k"))
		a.refuses(t, guardtest.Call{Key: "k", Body: "corrected"}, problem.KeyReused)
		a.runs(t, guardtest.Call{Key: "another", Body: "corrected"})
		a.runs(t, call("k"))
	}},
	"redirect": {nil, false, func(t *testing.T, a *api) {
		for _, status := range []int{http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
			key := http.StatusText(status)[:4]
			a.answers(func(w http.ResponseWriter, _ *http.Request, _ int64) { w.WriteHeader(status) })
			a.runs(t, call(key))
			a.answers(nil)
			a.runs(t, guardtest.Call{Key: key, Path: "/moved"})
			a.replays(t, guardtest.Call{Key: key, Path: "/moved"})
		}
	}},
	"replay": {[]idempotency.Option{idempotency.WithTTL(90 * time.Minute)}, false, func(t *testing.T, a *api) {
		first := a.runs(t, call("k"))
		for range 3 {
			guardtest.RequireReplay(t, first, a.replays(t, call("k")))
		}
		time.Sleep(a.policy.TTL - time.Nanosecond)
		a.replays(t, call("k"))
	}},
	"end": {nil, false, func(t *testing.T, a *api) {
		a.runs(t, call("k"))
		time.Sleep(a.policy.TTL)
		a.runs(t, guardtest.Call{Key: "k", Body: "another request"})
	}},
	"expiry": {[]idempotency.Option{idempotency.WithExpiryHeader("X-Good-For")}, false, func(t *testing.T, a *api) {
		require.Equal(t, a.policy.TTL, seconds(t, a.runs(t, call("k")), a.policy.ExpiryHeader))
		time.Sleep(time.Hour)
		left := seconds(t, a.replays(t, call("k")), a.policy.ExpiryHeader)
		time.Sleep(left - time.Nanosecond)
		a.replays(t, call("k"))
		time.Sleep(time.Nanosecond)
		a.runs(t, call("k"))
	}},
	"max-response": {[]idempotency.Option{idempotency.WithLimits(idempotency.Limits{ResponseBody: 100})}, false, func(t *testing.T, a *api) {
		of := func(n int64) {
			a.answers(func(w http.ResponseWriter, _ *http.Request, _ int64) {
				w.Header().Set("X-Long", strings.Repeat("x", 1000)) // which does not count
				_, _ = w.Write([]byte(strings.Repeat("x", int(n))))
			})
		}
		of(a.policy.MaxResponseBody + 1)
		require.Len(t, a.runs(t, call("k")).Body, int(a.policy.MaxResponseBody)+1)
		a.refuses(t, call("k"), problem.ResponseNotKept)
		of(a.policy.MaxResponseBody)
		a.runs(t, call("small"))
		a.replays(t, call("small"))
	}},
	"wait": {[]idempotency.Option{idempotency.WithWait(10 * time.Second)}, false, func(t *testing.T, a *api) {
		done := a.inFlight(t, call("k"), a.policy.Wait/2)
		a.replays(t, call("k"))
		<-done
		done = a.inFlight(t, call("slow"), 2*a.policy.Wait)
		start := time.Now()
		a.refuses(t, call("slow"), problem.InFlight)
		require.Equal(t, a.policy.Wait, time.Since(start))
		<-done
	}},
	"in-flight": {nil, false, func(t *testing.T, a *api) {
		done := a.inFlight(t, call("k"), time.Minute)
		start := time.Now()
		a.refuses(t, call("k"), problem.InFlight)
		require.Zero(t, time.Since(start))
		<-done
	}},
	"rerun": {nil, false, func(t *testing.T, a *api) {
		a.unknown(t, call("k"))
		a.runs(t, call("k"))

		a.answers(func(w http.ResponseWriter, r *http.Request, _ int64) {
			_, err := idempotency.Step(r.Context(), "once", func(context.Context) (int, error) {
				return 0, errors.New("perhaps")
			}, idempotency.AtMostOnce())
			http.Error(w, err.Error(), http.StatusInternalServerError)
		})
		a.runs(t, call("ruled-out"))
		a.Do(t, call("ruled-out"))
		a.refuses(t, call("ruled-out"), problem.OutcomeUnknown)
	}},
	"rerun-limited": {[]idempotency.Option{idempotency.WithRecovery(idempotency.HoldAfter(2))}, false, func(t *testing.T, a *api) {
		for range a.policy.Attempts {
			a.unknown(t, call("k"))
		}
		time.Sleep(50 * 365 * 24 * time.Hour)
		a.refuses(t, call("k"), problem.OutcomeUnknown)
		settle(t, a)
		a.runs(t, call("k"))
	}},
	"hold": {[]idempotency.Option{hold}, false, func(t *testing.T, a *api) {
		a.unknown(t, call("k"))
		time.Sleep(50 * 365 * 24 * time.Hour)
		a.refuses(t, call("k"), problem.OutcomeUnknown)
		settle(t, a)
		a.runs(t, call("k"))
	}},
	"hold-ends": {[]idempotency.Option{hold, idempotency.WithRetention(72 * time.Hour)}, false, func(t *testing.T, a *api) {
		a.unknown(t, call("settled"))
		a.unknown(t, call("k"))
		time.Sleep(a.policy.HeldFor - time.Nanosecond)
		a.refuses(t, call("k"), problem.OutcomeUnknown)
		settle(t, a)
		a.runs(t, call("k"))
		time.Sleep(time.Nanosecond)
		a.runs(t, call("settled"))
	}},
	"fail-open": {[]idempotency.Option{idempotency.WithFailOpen(true)}, false, func(t *testing.T, a *api) {
		a.store.On("claim", guardtest.Always(guardtest.Refuse))
		a.runs(t, call("k"))
		a.runs(t, call("k"))
		a.store.Heal()
		a.runs(t, call("k"))
		a.replays(t, call("k"))
	}},
	"fail-closed": {nil, false, func(t *testing.T, a *api) {
		a.store.On("claim", guardtest.Always(guardtest.Refuse))
		a.refuses(t, call("k"), problem.StoreUnavailable)
		a.runs(t, call(""))
	}},
	"problems": {nil, false, func(t *testing.T, a *api) {
		got := a.refuses(t, call("a,b"), problem.KeyInvalid)
		require.Equal(t, problem.ContentType, got.Header.Get("Content-Type"))
		require.Equal(t, string(got.Problem.Code), got.Header.Get(a.policy.ErrorHeader))
	}},
	"own-errors": {[]idempotency.Option{idempotency.WithErrorWriter(func(w http.ResponseWriter, _ *http.Request, p problem.Document) {
		http.Error(w, "no", p.Status)
	})}, false, func(t *testing.T, a *api) {
		require.Equal(t, "no\n", a.refuses(t, call("a,b"), problem.KeyInvalid).Body)
	}},
	"retry-after": {nil, false, func(t *testing.T, a *api) {
		done := a.inFlight(t, call("k"), time.Minute)
		pause := seconds(t, a.refuses(t, call("k"), problem.InFlight), "Retry-After")
		require.Positive(t, pause)
		<-done
		a.replays(t, call("k"))
		require.Empty(t, a.refuses(t, guardtest.Call{Key: "k", Body: "other"}, problem.KeyReused).Header.Values("Retry-After"))
	}},
}

// settle says that the run with the key k had no effect.
func settle(t *testing.T, a *api) {
	t.Helper()
	g := guardtest.NewGuard(t, a.store.Behind) // with a store that can be asked
	info := guardtest.Lookup(t, g, guardtest.HeldKey)
	require.NoError(t, g.Resolve(t.Context(), guardtest.HeldKey, info.Seen(), idempotency.Resolution{Outcome: idempotency.NotExecuted}))
}

func allRules() map[string]proof {
	all := maps.Clone(rules)
	maps.Copy(all, moreRules)
	return all
}
