package policytest

import (
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/policy"
	"example.com/idempotency/problem"
)

func TestMain(m *testing.M) { os.Exit(guardtest.Main(m)) }

// An api is a route behind a guard, and the policy that the guard publishes for it.
type api struct {
	*guardtest.Server
	guard  *idempotency.Guard
	store  guardtest.StepFaultStore
	h      *guardtest.Counter
	policy policy.Policy
}

// newAPI returns a route. The shared scope makes it one of all callers.
func newAPI(t *testing.T, shared bool, opts ...idempotency.Option) *api {
	t.Helper()
	a := &api{store: guardtest.NewStepFaultStore(), h: new(guardtest.Counter)}
	a.guard = guardtest.NewGuard(t, a.store, opts...)
	if shared {
		g, err := idempotency.New(a.store, idempotency.SharedScope, opts...)
		require.NoError(t, err)
		a.guard = g
	}
	a.Server = guardtest.ServeRecorder(t, a.guard.Handler(a.h))
	a.policy = a.guard.Policy()
	return a
}

func (a *api) answers(h func(w http.ResponseWriter, r *http.Request, run int64)) { a.h.Handler = h }

// runs sends a request and checks that it runs.
func (a *api) runs(t *testing.T, c guardtest.Call) guardtest.Reply {
	t.Helper()
	before := a.h.Runs.Load()
	got := a.Do(t, c)
	require.Equal(t, before+1, a.h.Runs.Load(), "status %d, body %s", got.Status, got.Body)
	require.False(t, got.Replayed())
	return got
}

// replays sends a request and checks that it does not run, and gets a recorded answer.
func (a *api) replays(t *testing.T, c guardtest.Call) guardtest.Reply {
	t.Helper()
	before := a.h.Runs.Load()
	got := a.Do(t, c)
	require.Equal(t, before, a.h.Runs.Load())
	require.Equal(t, "true", got.Header.Get(a.policy.ReplayedHeader), "status %d, body %s", got.Status, got.Body)
	return got
}

// refuses sends a request and checks that it is refused as the policy says.
func (a *api) refuses(t *testing.T, c guardtest.Call, code problem.Code) guardtest.Reply {
	t.Helper()
	before := a.h.Runs.Load()
	got := a.Do(t, c)
	require.Equal(t, before, a.h.Runs.Load())
	a.requireRefusal(t, got, code)
	return got
}

func (a *api) requireRefusal(t *testing.T, got guardtest.Reply, code problem.Code) {
	t.Helper()
	r := a.refusal(t, code)
	require.Equal(t, string(code), got.Header.Get(a.policy.ErrorHeader), "status %d, body %s", got.Status, got.Body)
	require.Contains(t, r.Statuses, got.Status)
	require.Equal(t, r.Retry, got.Header.Get("Retry-After") != "", "Retry-After of %s", code)
	if a.policy.Problems {
		guardtest.RequireProblem(t, got, got.Status, code)
		require.Equal(t, r.Title, got.Problem.Title)
	}
}

// refusal returns what the policy says of a code.
func (a *api) refusal(t *testing.T, code problem.Code) policy.Refusal {
	t.Helper()
	i := slices.IndexFunc(a.policy.Refusals, func(r policy.Refusal) bool { return r.Code == code })
	require.GreaterOrEqual(t, i, 0, "the policy does not have %s", code)
	return a.policy.Refusals[i]
}

// unknown makes the outcome of a key unknown.
func (a *api) unknown(t *testing.T, c guardtest.Call) {
	t.Helper()
	a.answers(func(w http.ResponseWriter, _ *http.Request, _ int64) { w.WriteHeader(http.StatusInternalServerError) })
	a.runs(t, c)
	a.answers(nil)
}

// turnedAway sends a request that is refused before anything is done.
func (a *api) turnedAway(t *testing.T, c guardtest.Call) {
	t.Helper()
	a.answers(func(w http.ResponseWriter, _ *http.Request, _ int64) { w.WriteHeader(http.StatusTooManyRequests) })
	a.runs(t, c)
	a.answers(nil)
}

// inFlight starts a request whose run takes a time, and returns while it is running.
func (a *api) inFlight(t *testing.T, c guardtest.Call, d time.Duration) <-chan guardtest.Reply {
	t.Helper()
	a.answers(func(http.ResponseWriter, *http.Request, int64) { time.Sleep(d) })
	done := a.Start(t, c)
	time.Sleep(time.Nanosecond)
	a.answers(nil)
	return done
}

func call(key string) guardtest.Call { return guardtest.Call{Key: key} }

func with(c guardtest.Call, name string, values ...string) guardtest.Call {
	c.Header = c.Header.Clone()
	if c.Header == nil {
		c.Header = make(http.Header)
	}
	c.Header[name] = values
	return c
}
