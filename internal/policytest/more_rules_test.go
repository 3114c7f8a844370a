package policytest

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
)

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
	info, err := g.Lookup(t.Context(), guardtest.HeldKey)
	require.NoError(t, err)
	require.NoError(t, g.Resolve(t.Context(), guardtest.HeldKey, info.Seen(), idempotency.Resolution{Outcome: idempotency.NotExecuted}))
}

func allRules() map[string]proof {
	all := maps.Clone(rules)
	maps.Copy(all, moreRules)
	return all
}
