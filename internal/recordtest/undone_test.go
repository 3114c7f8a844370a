package recordtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// What is left of runs that did nothing: for how long, and what their key may come with next.

// validating is a handler that refuses an empty amount, fails for a broken one, and charges any
// other. Its route says that a refusal has done nothing.
func validating(recovery idempotency.Option, opts ...idempotency.Option) (*guardtest.Counter, []idempotency.Option) {
	h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
		body, _ := io.ReadAll(r.Body)
		switch string(body) {
		case "empty":
			w.WriteHeader(http.StatusUnprocessableEntity)
		case "broken":
			w.WriteHeader(http.StatusInternalServerError)
		case "step":
			_, _ = idempotency.Step(r.Context(), "check", func(context.Context) (int, error) { return 1, nil })
			w.WriteHeader(http.StatusUnprocessableEntity)
		case "begun":
			_, _ = idempotency.Step(r.Context(), "check", func(context.Context) (int, error) { return 0, errors.New("no answer") })
			w.WriteHeader(http.StatusUnprocessableEntity)
		default:
			op, _ := idempotency.FromContext(r.Context())
			w.Header().Set("Attempt", fmt.Sprint(op.Attempt()))
			w.WriteHeader(http.StatusCreated)
		}
	}}
	return h, append([]idempotency.Option{
		recovery,
		idempotency.WithOutcome(func(status int, header http.Header) idempotency.Outcome {
			if status == http.StatusUnprocessableEntity {
				return idempotency.NotExecuted
			}
			return idempotency.DefaultOutcome(status, header)
		}),
	}, opts...)
}

func post(t *testing.T, s *guardtest.Server, body string) guardtest.Reply {
	t.Helper()
	return s.Do(t, guardtest.Call{Key: "k", Body: body})
}

// A client corrects its request, twice, and keeps its key. The answer is bound to the request
// that it is for.
func TestRequestCanBeCorrected(t *testing.T) {
	guardtest.OnEachRedis(t, func(t *testing.T, st *idempotency.RedisStore, _ guardtest.RedisBackend) {
		for _, recovery := range []idempotency.Recovery{idempotency.Rerun, idempotency.Hold} {
			h, opts := validating(idempotency.WithRecovery(recovery), idempotency.WithRebinding(true))
			s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, st, opts...).Handler(h))
			correct := func(body string) guardtest.Reply {
				return s.Do(t, guardtest.Call{Key: "k", Tenant: recovery.String(), Body: body})
			}
			require.Equal(t, http.StatusUnprocessableEntity, correct("empty").Status)
			require.Equal(t, http.StatusUnprocessableEntity, correct("empty").Status)
			require.EqualValues(t, 2, h.Runs.Load())
			first := correct("100")
			require.Equal(t, http.StatusCreated, first.Status)
			require.Equal(t, "3", first.Header.Get("Attempt"))
			guardtest.RequireReplay(t, first, correct("100"))
			guardtest.RequireProblem(t, correct("empty"), http.StatusConflict, problem.KeyReused)
			guardtest.RequireProblem(t, correct("999"), http.StatusConflict, problem.KeyReused)
			require.EqualValues(t, 3, h.Runs.Load())
		}
	})
}

// In a rolling deployment, the process that has run the request says whether its key stays
// bound, and every process follows.
func TestRebindingIsSaidByTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := idempotency.NewMemoryStore()
		h, opts := validating(idempotency.WithRecovery(idempotency.Rerun))
		older := guardtest.ServeRecorder(t, guardtest.NewGuard(t, st, opts...).Handler(h))
		newer := guardtest.ServeRecorder(t, guardtest.NewGuard(t, st, append(opts, idempotency.WithRebinding(true))...).Handler(h))
		correct := func(key string, first, second *guardtest.Server) guardtest.Reply {
			require.Equal(t, http.StatusUnprocessableEntity, first.Do(t, guardtest.Call{Key: key, Body: "empty"}).Status)
			return second.Do(t, guardtest.Call{Key: key, Body: "100"})
		}
		require.Equal(t, http.StatusCreated, correct("a", newer, older).Status)
		guardtest.RequireProblem(t, correct("b", older, newer), http.StatusConflict, problem.KeyReused)
	})
}

// By default, the key stays with the request that was refused, until nothing is left of it.
func TestRequestCannotBeCorrectedByDefault(t *testing.T) {
	for recovery, after := range map[idempotency.Recovery]time.Duration{idempotency.Rerun: time.Minute, idempotency.Hold: 15 * time.Minute} {
		guardtest.Bubble(t, recovery.String(), func(t *testing.T) {
			h, opts := validating(idempotency.WithRecovery(recovery))
			s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, idempotency.NewMemoryStore(), opts...).Handler(h))
			require.Equal(t, http.StatusUnprocessableEntity, post(t, s, "empty").Status)
			time.Sleep(after - time.Nanosecond)
			guardtest.RequireProblem(t, post(t, s, "100"), http.StatusConflict, problem.KeyReused)
			require.EqualValues(t, 1, h.Runs.Load())
			time.Sleep(time.Nanosecond)
			got := post(t, s, "100")
			require.Equal(t, http.StatusCreated, got.Status)
			require.Equal(t, "1", got.Header.Get("Attempt"))
		})
	}
}

// Something may have been done for the first payload: by an attempt that failed, or in a step.
// Then the key stays with it, however often the request is refused.
func TestKeyOfWhatMayHaveHappenedIsNotRebound(t *testing.T) {
	for name, statuses := range map[string][]int{"failed": {500, 422, 422}, "step": {422}, "begun": {422}} {
		guardtest.Bubble(t, name, func(t *testing.T) {
			h, opts := validating(nil, idempotency.WithRebinding(true))
			if name == "failed" {
				h.Handler = func(w http.ResponseWriter, _ *http.Request, run int64) { w.WriteHeader(statuses[run-1]) }
			}
			s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, idempotency.NewMemoryStore(), opts...).Handler(h))
			for _, status := range statuses {
				require.Equal(t, status, post(t, s, name).Status)
			}
			guardtest.RequireProblem(t, post(t, s, "100"), http.StatusConflict, problem.KeyReused)
			time.Sleep(24*time.Hour - time.Nanosecond)
			guardtest.RequireProblem(t, post(t, s, "100"), http.StatusConflict, problem.KeyReused)
		})
	}
}

// A hundred requests that were turned away leave nothing behind, be it after two leases, and be
// it although their clients have tried again.
func TestNothingIsLeftOfWhatWasTurnedAway(t *testing.T) {
	guardtest.OnEachRedis(t, func(t *testing.T, st *idempotency.RedisStore, b guardtest.RedisBackend) {
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) { w.WriteHeader(http.StatusTooManyRequests) }}
		records := func() int { return len(guardtest.List(t, st, store.Query{})) }
		for recovery, after := range map[idempotency.Recovery]time.Duration{idempotency.Rerun: time.Minute, idempotency.Hold: 15 * time.Minute} {
			s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, st, idempotency.WithRecovery(recovery)).Handler(h))
			start := time.Now()
			for i := range 200 {
				require.Equal(t, http.StatusTooManyRequests, s.Do(t, guardtest.Call{Key: fmt.Sprint(i % 100)}).Status)
			}
			require.Equal(t, 100, records())
			b.Advance(t, "idem:", after-5*time.Second-time.Since(start))
			require.Equal(t, 100, records(), "a claim that arrives late must meet its record")
			b.Advance(t, "idem:", 6*time.Second+time.Since(start))
			require.Zero(t, records())
		}
		require.EqualValues(t, 400, h.Runs.Load())
	})
}

// resending is a store that notes the claims made, so that a test can let one arrive again.
type resending struct {
	*idempotency.MemoryStore
	mu    sync.Mutex
	again []func() (store.Record, error)
}

func (s *resending) Claim(ctx context.Context, key string, c store.Claim) (store.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.again = append(s.again, func() (store.Record, error) {
		return s.MemoryStore.Claim(context.WithoutCancel(ctx), key, c)
	})
	return s.MemoryStore.Claim(ctx, key, c)
}

// The client library has sent a claim twice. The second one arrives when the run is over and has
// done nothing. Nobody would be left to end it: under Hold it would hold the key.
func TestLateClaimOfWhatWasTurnedAwayIsInert(t *testing.T) {
	for recovery, late := range map[idempotency.Recovery]time.Duration{idempotency.Rerun: time.Minute, idempotency.Hold: 15 * time.Minute} {
		guardtest.Bubble(t, recovery.String(), func(t *testing.T) {
			st := &resending{MemoryStore: idempotency.NewMemoryStore()}
			h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, run int64) {
				w.WriteHeader(map[bool]int{true: http.StatusTooManyRequests, false: http.StatusCreated}[run == 1])
			}}
			s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, st, idempotency.WithRecovery(recovery)).Handler(h))
			require.Equal(t, http.StatusTooManyRequests, s.Do(t, guardtest.Call{Key: "k"}).Status)
			time.Sleep(late - time.Nanosecond)
			rec, err := st.again[0]()
			require.NoError(t, err)
			require.False(t, rec.Mine)
			require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
		})
	}
}

// The lease of a run under Hold has ended, and another request has marked its key as held. The
// run comes back and says that it did nothing: the request can be corrected.
func TestCorrectionAfterALapse(t *testing.T) {
	guardtest.OnEachRedis(t, func(t *testing.T, st *idempotency.RedisStore, b guardtest.RedisBackend) {
		begun, refuse := make(chan bool, 1), make(chan bool)
		_, opts := validating(idempotency.WithRecovery(idempotency.Hold), idempotency.WithRebinding(true))
		s := guardtest.ServeHTTP1(t, guardtest.NewGuard(t, st, opts...).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if body, _ := io.ReadAll(r.Body); string(body) == "100" {
				w.WriteHeader(http.StatusCreated)
				return
			}
			begun <- true
			<-refuse
			w.WriteHeader(http.StatusUnprocessableEntity)
		})))
		first := s.Begin(t, guardtest.Call{Key: "k", Body: "empty"})
		<-begun
		b.Advance(t, "idem:", 30*time.Second)
		guardtest.RequireProblem(t, post(t, s, "empty"), http.StatusConflict, problem.OutcomeUnknown)
		refuse <- true
		require.Equal(t, http.StatusUnprocessableEntity, (<-first).Status)
		require.Equal(t, http.StatusCreated, post(t, s, "100").Status)
	})
}

// A run is overtaken. The other attempt says that it did nothing, and does not know what the first
// has done for the payload, or still does. So the key stays with it, whatever the first says then.
func TestOvertakenRefusalUnbindsNothing(t *testing.T) {
	guardtest.OnEachRedis(t, func(t *testing.T, st *idempotency.RedisStore, b guardtest.RedisBackend) {
		runs := make(chan chan int)
		_, opts := validating(nil, idempotency.WithRebinding(true))
		s := guardtest.ServeHTTP1(t, guardtest.NewGuard(t, st, opts...).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if body, _ := io.ReadAll(r.Body); string(body) == "100" {
				return
			}
			end := make(chan int)
			runs <- end
			if status, ok := <-end; ok {
				w.WriteHeader(status)
			}
		})))
		first := s.Begin(t, guardtest.Call{Key: "k", Body: "empty"})
		firstEnds := <-runs
		defer close(firstEnds) // also when the test fails: the server waits for its handlers
		b.Advance(t, "idem:", 30*time.Second)
		second := s.Begin(t, guardtest.Call{Key: "k", Body: "empty"})
		<-runs <- http.StatusUnprocessableEntity
		require.Equal(t, http.StatusUnprocessableEntity, (<-second).Status)
		guardtest.RequireProblem(t, post(t, s, "100"), http.StatusConflict, problem.KeyReused)
		firstEnds <- http.StatusUnprocessableEntity
		<-first
		guardtest.RequireProblem(t, post(t, s, "100"), http.StatusConflict, problem.KeyReused)
		b.Advance(t, "idem:", time.Hour)
		guardtest.RequireProblem(t, post(t, s, "100"), http.StatusConflict, problem.KeyReused)
	})
}

// version is a fingerprint function of that version.
func version(v byte) idempotency.FingerprintFunc {
	return func(_ *http.Request, body []byte) (idempotency.Fingerprint, error) {
		return idempotency.NewFingerprint(v, body), nil
	}
}

// A deployment changes the fingerprint function. A request waits for a run of an older process,
// which is turned away, and the key is bound anew, as a newer process has the same request.
func TestWaiterKnowsItsRequestWhenTheKeyIsBoundAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, run int64) {
			if time.Sleep(1003 * time.Millisecond); run == 1 {
				w.WriteHeader(http.StatusTooManyRequests)
				return
			}
			time.Sleep(10 * time.Second)
		}}
		shared, rebinding := idempotency.NewMemoryStore(), idempotency.WithRebinding(true)
		older := guardtest.NewProcess(t, shared, h, rebinding, idempotency.WithFingerprint(version(1)))
		newer := guardtest.NewProcess(t, shared, h, rebinding, idempotency.WithFingerprint(version(2), version(1)), idempotency.WithWait(time.Minute))
		first := older.Start(t, guardtest.Call{Key: "k"})
		waiting := newer.Start(t, guardtest.Call{Key: "k"})
		require.Equal(t, http.StatusTooManyRequests, (<-first).Status)
		again := newer.Start(t, guardtest.Call{Key: "k"})
		require.Equal(t, http.StatusOK, (<-again).Status)
		require.True(t, (<-waiting).Replayed()) // it waits for the later run too, as long as it has said
		require.EqualValues(t, 2, h.Runs.Load())
	})
}

// As above, but the key is bound anew between the two claims by which a request finds out that the
// record is its own.
func TestRequestKnowsItselfWhenTheKeyIsBoundAnewMeanwhile(t *testing.T) {
	h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, run int64) {
		if run == 1 {
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}}
	shared, rebinding := idempotency.NewMemoryStore(), idempotency.WithRebinding(true)
	current := idempotency.WithFingerprint(version(2), version(1))
	older := guardtest.NewProcess(t, shared, h, rebinding, idempotency.WithFingerprint(version(1)))
	newer, other := guardtest.NewProcess(t, shared, h, rebinding, current), guardtest.NewProcess(t, shared, h, rebinding, current)
	older.Store.On("release", guardtest.First(1, func(_ context.Context, proceed func() error) error {
		newer.Store.On("claim", guardtest.Between(2, 2, func(_ context.Context, again func() error) error {
			err := proceed() // the older process gives its claim back, and another newer one runs
			if got := other.Attempt(t, guardtest.Call{Key: "k"}); got.Status != http.StatusOK {
				t.Errorf("the other process answers %d %s", got.Status, got.Body)
			}
			return errors.Join(err, again())
		}))
		got := newer.Attempt(t, guardtest.Call{Key: "k"})
		assert.True(t, got.Replayed(), "the request does not know itself: %d %s", got.Status, got.Body)
		return nil
	}))
	require.Equal(t, http.StatusTooManyRequests, older.Do(t, guardtest.Call{Key: "k"}).Status)
	require.EqualValues(t, 2, h.Runs.Load())
}

// The reply to a claim is lost. What is given back in the background has run nothing, so nothing
// is left of it; but what an earlier attempt has left stays.
func TestNothingIsLeftOfAGhost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := idempotency.NewMemoryStore()
		h, _ := validating(nil)
		p := guardtest.NewProcess(t, shared, h)
		records := func() int { return len(guardtest.List(t, shared, store.Query{})) }
		ghost := func(body string) {
			p.Store.On("claim", guardtest.Always(guardtest.LoseReply))
			guardtest.RequireProblem(t, post(t, p.Server, body), http.StatusServiceUnavailable, problem.StoreUnavailable)
			p.Store.Heal()
			synctest.Wait()
		}
		ghost("100")
		require.Equal(t, 1, records())
		time.Sleep(2 * guardtest.LeaseTime)
		require.Zero(t, records())

		require.Equal(t, http.StatusInternalServerError, post(t, p.Server, "broken").Status)
		ghost("broken")
		time.Sleep(23 * time.Hour)
		guardtest.RequireProblem(t, post(t, p.Server, "100"), http.StatusConflict, problem.KeyReused)
	})
}

// Do binds a key to its payload in the same way.
func TestPayloadOfAFunctionCanBeCorrected(t *testing.T) {
	g := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithRebinding(true))
	do := func(payload string) error {
		_, _, err := idempotency.Do(t.Context(), g, guardtest.HeldKey, func(ctx context.Context) (int, error) {
			if strings.Contains(payload, "broken") {
				guardtest.Op(ctx).SetOutcome(idempotency.NotExecuted)
				return 0, errors.New("broken message")
			}
			return 1, nil
		}, idempotency.WithPayload([]byte(payload)))
		return err
	}
	require.ErrorContains(t, do("broken"), "broken message")
	require.NoError(t, do("corrected"))
	require.ErrorIs(t, do("broken"), idempotency.ErrKeyReused)
}
