package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
)

const cacheBytes = 1 << 20

// requireSame checks that a replay is the answer that it repeats.
func requireSame(t *testing.T, first, again reply) {
	t.Helper()
	require.True(t, again.replayed())
	require.Equal(t, first.status, again.status)
	require.Equal(t, first.body, again.body)
	again.header.Del("Idempotent-Replayed")
	require.Equal(t, first.header, again.header)
}

func TestReplayCache(t *testing.T) {
	t.Parallel()
	store := &faultStore{behind: idempotency.NewMemoryStore()}
	runs := &counter{}
	cache := idempotency.WithReplayCache(cacheBytes)
	here := serveRecorder(t, newGuard(t, store, cache).Handler(runs))
	there := serveRecorder(t, newGuard(t, store, cache).Handler(runs))

	first := here.do(t, call{key: "k"})
	requireSame(t, first, here.do(t, call{key: "k"}))
	require.Equal(t, 1, store.count("claim"), "the process that ran needs no store to replay")

	requireSame(t, first, there.do(t, call{key: "k"}))
	require.Equal(t, 2, store.count("claim"))
	requireSame(t, first, there.do(t, call{key: "k"}))
	require.Equal(t, 2, store.count("claim"), "nor one that has replayed")

	requireProblem(t, here.do(t, call{key: "k", body: "other"}), http.StatusConflict, idempotency.CodeKeyReused)
	require.Equal(t, int64(1), runs.runs.Load())
	require.False(t, here.do(t, call{key: "k", tenant: "bob"}).replayed())
	require.Equal(t, int64(2), runs.runs.Load())

	store.fail(refuse)
	requireSame(t, first, here.do(t, call{key: "k"}))
	requireProblem(t, here.do(t, call{key: "new"}), http.StatusServiceUnavailable, idempotency.CodeStoreUnavailable)
	store.heal()
}

// What was not recorded as the answer of a run is not in the cache either.
func TestReplayCacheHoldsAnswersOnly(t *testing.T) {
	t.Parallel()
	store := &faultStore{behind: idempotency.NewMemoryStore()}
	runs := &counter{handler: func(w http.ResponseWriter, _ *http.Request, run int64) {
		switch run {
		case 1:
			w.WriteHeader(http.StatusInternalServerError)
		case 2:
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}}
	s := serveRecorder(t, newGuard(t, store, idempotency.WithReplayCache(cacheBytes)).Handler(runs))
	for _, status := range []int{http.StatusInternalServerError, http.StatusTooManyRequests, http.StatusOK} {
		require.Equal(t, status, s.do(t, call{key: "k"}).status)
	}
	require.True(t, s.do(t, call{key: "k"}).replayed())
	require.Equal(t, int64(3), runs.runs.Load())
}

func TestReplayCacheIsAuthorized(t *testing.T) {
	t.Parallel()
	var denied error
	store := &faultStore{behind: idempotency.NewMemoryStore()}
	s := serveRecorder(t, newGuard(t, store, idempotency.WithReplayCache(cacheBytes),
		idempotency.WithAuthorizeReplay(func(*http.Request, idempotency.ReplayInfo) error { return denied }),
	).Handler(&counter{}))
	s.do(t, call{key: "k"})
	require.True(t, s.do(t, call{key: "k"}).replayed())
	denied = errors.New("not any more")
	requireProblem(t, s.do(t, call{key: "k"}), http.StatusForbidden, idempotency.CodeReplayDenied)
	require.Equal(t, 1, store.count("claim"))
}

func TestReplayCacheExpires(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		ttl  time.Duration
		asks time.Duration // from then on the store is asked again
	}{
		"with the record":                {10 * time.Second, 10 * time.Second},
		"after a minute, record or none": {time.Hour, time.Minute},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &faultStore{behind: idempotency.NewMemoryStore()}
				runs := &counter{}
				opts := []idempotency.Option{idempotency.WithReplayCache(cacheBytes), idempotency.WithTTL(tt.ttl)}
				here := serveRecorder(t, newGuard(t, store, opts...).Handler(runs))
				there := serveRecorder(t, newGuard(t, store, opts...).Handler(runs))
				here.do(t, call{key: "k"})

				time.Sleep(3 * time.Second)
				require.True(t, there.do(t, call{key: "k"}).replayed())
				require.Equal(t, 2, store.count("claim"))

				time.Sleep(tt.asks - 3*time.Second - time.Nanosecond)
				require.True(t, here.do(t, call{key: "k"}).replayed())
				require.True(t, there.do(t, call{key: "k"}).replayed())
				require.Equal(t, 2, store.count("claim"))

				time.Sleep(time.Nanosecond)
				again := here.do(t, call{key: "k"})
				require.Equal(t, 3, store.count("claim"))
				require.Equal(t, tt.ttl > tt.asks, again.replayed())
				if !again.replayed() {
					require.Equal(t, int64(2), runs.runs.Load())
					requireSame(t, again, there.do(t, call{key: "k"})) // and not the answer of the first
				}
			})
		})
	}
}

func TestReplayCacheAndForget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := idempotency.NewMemoryStore()
		runs := &counter{}
		guards := []*idempotency.Guard{
			newGuard(t, store, idempotency.WithReplayCache(cacheBytes)),
			newGuard(t, store, idempotency.WithReplayCache(cacheBytes)),
		}
		here, there := serveRecorder(t, guards[0].Handler(runs)), serveRecorder(t, guards[1].Handler(runs))
		here.do(t, call{key: "k"})
		there.do(t, call{key: "k"})

		require.NoError(t, guards[0].Forget(t.Context(), idempotency.Key{Scope: "acme", Value: "k"}))
		require.True(t, there.do(t, call{key: "k"}).replayed(), "elsewhere it is noticed within a minute")
		require.False(t, here.do(t, call{key: "k"}).replayed(), "here at once")
		require.Equal(t, `{"run":1}`, there.do(t, call{key: "k"}).body)
		time.Sleep(time.Minute)
		require.Equal(t, `{"run":2}`, there.do(t, call{key: "k"}).body)
	})
}

// A forgettingStore forgets keys while the reply to a call of that name is on its way.
type forgettingStore struct {
	*idempotency.MemoryStore
	op     string
	forget func()
}

func (s *forgettingStore) reply(op string) {
	if s.op == op {
		s.op = ""
		time.Sleep(time.Millisecond)
		s.forget()
		time.Sleep(time.Millisecond)
	}
}

func (s *forgettingStore) Claim(ctx context.Context, key string, c idempotency.Claim) (idempotency.Record, error) {
	defer s.reply("claim")
	return s.MemoryStore.Claim(ctx, key, c)
}

func (s *forgettingStore) Complete(ctx context.Context, key string, o idempotency.Owner, answer []byte, ttl time.Duration) error {
	defer s.reply("complete")
	return s.MemoryStore.Complete(ctx, key, o, answer, ttl)
}

// An answer that was on its way when its key was forgotten is not kept: whoever has
// forgotten a key may count on a run.
func TestReplayCacheForgetsWhatIsOnItsWay(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"claim", "complete"} {
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &forgettingStore{MemoryStore: idempotency.NewMemoryStore()}
				runs := &counter{}
				g := newGuard(t, store, idempotency.WithReplayCache(cacheBytes))
				s, elsewhere := serveRecorder(t, g.Handler(runs)), serveRecorder(t, newGuard(t, store).Handler(runs))
				store.forget = func() { assert.NoError(t, g.Forget(t.Context(), idempotency.Key{Scope: "acme", Value: "k"})) }
				if op == "claim" {
					elsewhere.do(t, call{key: "k"})
				}
				store.op = op
				require.Equal(t, op == "claim", s.do(t, call{key: "k"}).replayed())
				require.Empty(t, store.op)
				require.False(t, s.do(t, call{key: "k"}).replayed())
			})
		})
	}
}

// A cache of a route replaces the inherited one, and zero bytes are none.
func TestReplayCacheOfARoute(t *testing.T) {
	t.Parallel()
	store := &faultStore{behind: idempotency.NewMemoryStore()}
	g := newGuard(t, store, idempotency.WithReplayCache(cacheBytes))
	inherited := serveRecorder(t, g.With(idempotency.WithTTL(time.Hour)).Handler(&counter{}))
	without := serveRecorder(t, g.With(idempotency.WithReplayCache(0)).Handler(&counter{}))
	inherited.do(t, call{key: "k"})
	require.True(t, inherited.do(t, call{key: "k"}).replayed())
	require.Equal(t, 1, store.count("claim"))
	for n := range 2 {
		require.True(t, without.do(t, call{key: "k"}).replayed())
		require.Equal(t, n+2, store.count("claim"))
	}
}

// The cache keeps what was used last, and never more than it may.
func TestReplayCacheIsBounded(t *testing.T) {
	t.Parallel()
	const bytes, answer, keys = 64 << 10, 1 << 10, 200
	store := &faultStore{behind: idempotency.NewMemoryStore()}
	g := newGuard(t, store, idempotency.WithReplayCache(bytes))
	s := serveRecorder(t, g.Handler(&counter{handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
		size := answer
		if r.URL.Path == "/large" {
			size = bytes
		}
		_, _ = fmt.Fprint(w, strings.Repeat("x", size))
	}}))
	asked := func(c call) bool {
		before := store.count("claim")
		s.do(t, c)
		return store.count("claim") > before
	}
	key := func(n int) call { return call{key: fmt.Sprint("key-", n)} }
	for n := range keys {
		require.True(t, asked(key(n)))
		require.False(t, asked(key(n)), "just recorded")
		require.False(t, asked(key(0)), "used all the time")
	}
	require.True(t, asked(call{key: "large", path: "/large"}))
	require.True(t, asked(call{key: "large", path: "/large"}), "what fills the cache is not kept")
	require.False(t, asked(key(0)), "nor does it make room for itself")

	kept := 0
	for n := keys - 1; n > 0; n-- { // the oldest last: what is asked for anew takes room
		if asked(key(n)) {
			break
		}
		kept++
	}
	require.GreaterOrEqual(t, kept, bytes/2/(answer+1024)-1)
	require.LessOrEqual(t, kept, bytes/answer)
}
