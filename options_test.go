package idempotency_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// invalidOptions holds, by the option that the error names, values it refuses.
var invalidOptions = map[string][]idempotency.Option{
	"WithTTL:":         {idempotency.WithTTL(0), idempotency.WithTTL(24), idempotency.WithTTL(-time.Second), idempotency.WithTTL(1 << 62)},
	"WithLease:":       {idempotency.WithLease(0), idempotency.WithLease(9 * time.Millisecond), idempotency.WithLease(25 * time.Hour)},
	"WithRetention:":   {idempotency.WithRetention(-1), idempotency.WithRetention(time.Second), idempotency.WithRetention(1 << 62)},
	"WithWait:":        {idempotency.WithWait(-1), idempotency.WithWait(6 * time.Minute)},
	"WithMethods:":     {idempotency.WithMethods(), idempotency.WithMethods(""), idempotency.WithMethods("PO ST"), idempotency.WithMethods("POST", "patch")},
	"WithHeader:":      {idempotency.WithHeader(""), idempotency.WithHeader("Idempotency Key"), idempotency.WithHeader("Key:"), idempotency.WithHeader("host"), idempotency.WithHeader("ETag"), idempotency.WithHeader("authorization")},
	"WithFingerprint:": {idempotency.WithFingerprint(nil), idempotency.WithFingerprint(idempotency.RawFingerprint, nil)},
	"WithLimits: RequestBody": {
		idempotency.WithLimits(idempotency.Limits{RequestBody: -1}), idempotency.WithLimits(idempotency.Limits{RequestBody: 1<<30 + 1}),
	},
	"WithLimits: ResponseBody": {
		idempotency.WithLimits(idempotency.Limits{ResponseBody: -1}), idempotency.WithLimits(idempotency.Limits{ResponseBody: 1<<30 + 1}),
	},
	"WithLimits: WaitingBytes": {
		idempotency.WithLimits(idempotency.Limits{WaitingBytes: -1}), idempotency.WithLimits(idempotency.Limits{WaitingBytes: 64<<10 - 1}),
		idempotency.WithLimits(idempotency.Limits{WaitingBytes: 1<<40 + 1}),
	},
	"WithOutcome:":           {idempotency.WithOutcome(nil)},
	"WithRecovery: it takes": {idempotency.WithRecovery(idempotency.HoldAfter(0)), idempotency.WithRecovery(idempotency.HoldAfter(-1)), idempotency.WithRecovery(-7)},
	"WithUnrecorded:":        {idempotency.WithUnrecorded("a b"), idempotency.WithUnrecorded("content-encoding")},
	"WithMismatchStatus:":    {idempotency.WithMismatchStatus(425), idempotency.WithMismatchStatus(408), idempotency.WithMismatchStatus(499), idempotency.WithMismatchStatus(0), idempotency.WithMismatchStatus(399), idempotency.WithMismatchStatus(500)},
	"WithErrorWriter:":       {idempotency.WithErrorWriter(nil)},
	"WithExpiryHeader:": {
		idempotency.WithExpiryHeader("Good For"), idempotency.WithExpiryHeader("idempotency-key"),
		idempotency.WithExpiryHeader("Retry-After"), idempotency.WithExpiryHeader("idempotency-error"),
		idempotency.WithExpiryHeader("Trailer"), idempotency.WithExpiryHeader("location"), idempotency.WithExpiryHeader("Set-Cookie"), idempotency.WithExpiryHeader("Vary"),
	},
	"WithKeptKeys:":   {idempotency.WithKeptKeys(true)},
	"WithTombstones:": {idempotency.WithTombstones(11 * 365 * 24 * time.Hour)},
	"WithRoute:":      {idempotency.WithRoute(strings.Repeat("x", 65)), idempotency.WithRoute("POST\n/charges"), idempotency.WithRoute("größe")},
	"WithPolicyURL:":  {idempotency.WithPolicyURL("/keys"), idempotency.WithPolicyURL("https://api.example/keys#x"), idempotency.WithPolicyURL("javascript:alert(1)"), idempotency.WithPolicyURL("http://a/>b"), idempotency.WithPolicyURL("https://%zz")},
}

func TestInvalidOptionsAreNamed(t *testing.T) {
	for name, options := range invalidOptions {
		for _, option := range options {
			g, err := idempotency.New(idempotency.NewMemoryStore(), idempotency.SharedScope, option)
			require.ErrorContains(t, err, name)
			require.Nil(t, g)
			require.Equal(t, 1, strings.Count(err.Error(), "idempotency: "), "%v", err)
		}
	}
}

// A held key would run while the store is away.
func TestFailOpenDoesNotGoWithHold(t *testing.T) {
	for _, r := range []idempotency.Recovery{idempotency.Hold, idempotency.HoldAfter(3)} {
		_, err := idempotency.New(idempotency.NewMemoryStore(), idempotency.SharedScope, idempotency.WithRecovery(r), idempotency.WithFailOpen(true))
		require.ErrorContains(t, err, "WithFailOpen: WithRecovery("+r.String()+")")
	}
}

func TestAllMistakesAreReportedAtOnce(t *testing.T) {
	var options []idempotency.Option
	for _, invalid := range invalidOptions {
		options = append(options, invalid[0])
	}
	_, err := idempotency.New(nil, nil, options...)
	require.ErrorContains(t, err, "nil store")
	require.ErrorContains(t, err, "nil scope")
	for name := range invalidOptions {
		require.ErrorContains(t, err, name)
	}
}

func TestLaterOptionCounts(t *testing.T) {
	_, err := idempotency.New(idempotency.NewMemoryStore(), idempotency.SharedScope,
		idempotency.WithTTL(-1), idempotency.WithTTL(time.Hour), nil)
	require.NoError(t, err)
}

// The retention is checked against the lease that is in force, whichever was set first.
func TestRetentionIsCheckedAgainstTheLease(t *testing.T) {
	lease, retention := idempotency.WithLease(time.Minute), idempotency.WithRetention(90*time.Second)
	for _, options := range [][]idempotency.Option{{lease, retention}, {retention, lease}} {
		_, err := idempotency.New(idempotency.NewMemoryStore(), idempotency.SharedScope, options...)
		require.ErrorContains(t, err, "WithRetention:")
	}
	g := guardtest.NewGuard(t, idempotency.NewMemoryStore(), retention)
	require.Panics(t, func() { g.With(lease) })
	require.NotPanics(t, func() { g.With(lease, idempotency.WithRetention(0)) })
}

// A nil option is none, so that an optional one needs no list.
func TestNilOptions(t *testing.T) {
	require.NotPanics(t, func() {
		guard := guardtest.NewGuard(t, idempotency.NewMemoryStore(nil), nil).With(nil)
		_, _, err := idempotency.Do(t.Context(), guard, invoiceKey, func(ctx context.Context) (int, error) {
			return idempotency.Step(ctx, "step", func(context.Context) (int, error) { return 1, nil }, nil)
		}, nil)
		require.NoError(t, err)
		idempotency.NewRedisStore(redis.NewClient(&redis.Options{}), nil)
	})
}

func TestWithPanicsOnAMistake(t *testing.T) {
	g := guardtest.NewGuard(t, idempotency.NewMemoryStore())
	for name, options := range invalidOptions {
		err, ok := guardtest.PanicOf(func() { g.With(options[0]) }).(error)
		require.True(t, ok, name)
		require.ErrorContains(t, err, name)
	}
	require.Panics(t, func() { g.Handler(nil) })
}

// Guards that With makes share the room for requests that wait, so none of them can have another.
func TestWaitingRoomIsSetOnce(t *testing.T) {
	size := idempotency.WithLimits(idempotency.Limits{WaitingBytes: 1 << 20})
	g := guardtest.NewGuard(t, idempotency.NewMemoryStore(), size)
	require.NotPanics(t, func() { g.With(size, idempotency.WithWait(time.Second)) })
	require.PanicsWithError(t, "idempotency: WithLimits: guards that With makes share one waiting room; set WaitingBytes in New",
		func() { g.With(idempotency.WithLimits(idempotency.Limits{WaitingBytes: 2 << 20})) })
}

// A limit that is zero stays as it is: the default, or that of the guard that With is called on.
func TestZeroLimitsStay(t *testing.T) {
	zero := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithLimits(idempotency.Limits{})).Policy()
	require.Equal(t, []int64{1 << 20, 1 << 20}, []int64{zero.MaxRequestBody, zero.MaxResponseBody})

	g := guardtest.NewGuard(t, idempotency.NewMemoryStore(),
		idempotency.WithLimits(idempotency.Limits{RequestBody: 10, ResponseBody: 20, WaitingBytes: 1 << 20}))
	require.NotPanics(t, func() {
		route := g.With(idempotency.WithLimits(idempotency.Limits{ResponseBody: 30})).Policy()
		require.Equal(t, []int64{10, 30}, []int64{route.MaxRequestBody, route.MaxResponseBody})
	})
}

// A guard made with With has its own settings and leaves those of the other alone.
func TestWithChangesACopy(t *testing.T) {
	h := &guardtest.Counter{}
	g := guardtest.NewGuard(t, idempotency.NewMemoryStore())
	required := g.With(idempotency.WithRequired(true))
	s, strict := guardtest.ServeRecorder(t, g.Handler(h)), guardtest.ServeRecorder(t, required.Handler(h))
	guardtest.RequireProblem(t, strict.Do(t, guardtest.Call{}), http.StatusBadRequest, problem.KeyMissing)
	require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{}).Status)
	require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
	require.True(t, strict.Do(t, guardtest.Call{Key: "k"}).Replayed(), "the store is shared")
}

// What one guard switches on, a guard made from it can switch off again: a service may
// fail open while its payout route does not.
func TestWithSwitchesOff(t *testing.T) {
	h := &guardtest.Counter{}
	g := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithRequired(true), idempotency.WithStrictKeys(true))
	lax := guardtest.ServeRecorder(t, g.With(idempotency.WithRequired(false), idempotency.WithStrictKeys(false)).Handler(h))
	require.Equal(t, http.StatusCreated, lax.Do(t, guardtest.Call{}).Status)
	require.Equal(t, http.StatusCreated, lax.Do(t, guardtest.Call{Key: "raw"}).Status)

	synctest.Test(t, func(t *testing.T) { // the guard goes on to give its claims back
		store := &guardtest.FaultStore{}
		store.Fail(guardtest.Refuse)
		open := guardtest.NewGuard(t, store, idempotency.WithFailOpen(true))
		require.Equal(t, http.StatusCreated, guardtest.ServeRecorder(t, open.Handler(h)).Do(t, guardtest.Call{Key: "k"}).Status)
		closed := guardtest.ServeRecorder(t, open.With(idempotency.WithFailOpen(false)).Handler(h))
		guardtest.RequireProblem(t, closed.Do(t, guardtest.Call{Key: "k"}), http.StatusServiceUnavailable, problem.StoreUnavailable)
	})
}

// A route's observer joins those of its guard, and is told nothing of other routes.
func TestObserversAddUp(t *testing.T) {
	var all, one, other guardtest.Events
	g := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithObserver(all.Observe), idempotency.WithObserver(nil))
	first := guardtest.ServeRecorder(t, g.With(idempotency.WithObserver(one.Observe)).Handler(&guardtest.Counter{}))
	second := guardtest.ServeRecorder(t, g.With(idempotency.WithObserver(other.Observe)).Handler(&guardtest.Counter{}))
	first.Do(t, guardtest.Call{Key: "k"})
	run := []event.Kind{event.Run}
	require.Equal(t, run, all.Kinds())
	require.Equal(t, run, one.Kinds())
	require.Empty(t, other.Kinds())
	second.Do(t, guardtest.Call{Key: "l"})
	require.Len(t, all.Kinds(), 2)
	require.Equal(t, run, other.Kinds())
}

// Names become metric labels and words in a log, also where there is nothing: none of them may be empty or look like a
// mistake.
func TestNamesOfZeroValues(t *testing.T) {
	for want, value := range map[string]fmt.Stringer{
		"none": idempotency.Outcome(0), "outcome(9)": idempotency.Outcome(9), "rerun": idempotency.Recovery(0),
		"hold-after-9": idempotency.HoldAfter(9), "recovery(-9)": idempotency.Recovery(-9), "run": event.Run,
		"claimed": store.Claimed, "released": store.Released, "completed": store.Completed, "held": store.Held, "unknown(9)": store.State(9),
	} {
		require.Equal(t, want, value.String())
	}
	require.Equal(t, "none", event.Kind("").String())
	require.Equal(t, "none", store.State(0).String())
}
