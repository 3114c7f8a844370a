package storefaults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/digest"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// This file has the runs that lose their claim: a process that is stopped for longer than
// its lease, notices nothing and comes back after others have had the key.

const overtakenLease = 30 * time.Second

// An attempt is a run whose handler answers when the test says how.
type attempt struct {
	answer chan func(http.ResponseWriter)
	reply  chan guardtest.Reply
}

// An overtaking is a route on which a test conducts each attempt.
type overtaking struct {
	guard    *idempotency.Guard
	server   *guardtest.Server
	events   guardtest.Events
	attempts chan *attempt
	lapse    func()
}

func newOvertaking(t *testing.T, s *idempotency.RedisStore, b guardtest.RedisBackend, opts ...idempotency.Option) *overtaking {
	o := &overtaking{attempts: make(chan *attempt), lapse: func() { b.Advance(t, "idem:", overtakenLease) }}
	opts = append(opts, idempotency.WithLease(overtakenLease), idempotency.WithObserver(o.events.Observe))
	o.guard = guardtest.NewGuard(t, s, opts...)
	o.server = guardtest.ServeHTTP1(t, o.guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := &attempt{answer: make(chan func(http.ResponseWriter))}
		select {
		case o.attempts <- a:
			(<-a.answer)(w)
		case <-time.After(time.Minute):
			t.Error("a run that the test did not begin")
		}
	})))
	return o
}

// begin sends a request and waits until its handler runs.
func (o *overtaking) begin(t *testing.T) *attempt {
	t.Helper()
	return o.beginCall(t, guardtest.Call{Key: "k"})
}

func (o *overtaking) beginCall(t *testing.T, call guardtest.Call) *attempt {
	t.Helper()
	reply := make(chan guardtest.Reply, 1)
	go func() {
		got, _ := o.server.Try(context.WithoutCancel(t.Context()), call)
		reply <- got
	}()
	select {
	case a := <-o.attempts:
		a.reply = reply
		return a
	case got := <-reply:
		t.Fatalf("no run, but %d %v", got.Status, got.Problem)
		return nil
	}
}

// end lets the handler answer, and returns what its client gets.
func (a *attempt) end(status int, body string) guardtest.Reply {
	a.answer <- func(w http.ResponseWriter) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
	return <-a.reply
}

func (o *overtaking) requireReplay(t *testing.T, status int, body string) {
	t.Helper()
	got := o.server.Do(t, guardtest.Call{Key: "k"})
	require.True(t, got.Replayed(), got.Body)
	require.Equal(t, status, got.Status)
	require.Equal(t, body, got.Body)
}

// The second attempt charges and fails. The first, which wakes up and refuses, must not
// have the last word: its refusal says nothing of what the second has done.
func TestRefusalOfAnOvertakenRunIsNotFinal(t *testing.T) {
	guardtest.OnEachRedis(t, func(t *testing.T, s *idempotency.RedisStore, b guardtest.RedisBackend) {
		o := newOvertaking(t, s, b)
		first := o.begin(t)
		o.lapse()
		require.Equal(t, http.StatusInternalServerError, o.begin(t).end(http.StatusInternalServerError, "charged").Status)
		guardtest.RequireProblem(t, first.end(http.StatusUnprocessableEntity, "refused"), http.StatusConflict, problem.InFlight)
		require.Contains(t, o.events.Kinds(), event.Overtaken)
		require.Equal(t, http.StatusCreated, o.begin(t).end(http.StatusCreated, "charged").Status, "the retry runs")
		o.requireReplay(t, http.StatusCreated, "charged")
	})
}

// refusesOvertaken begins a run in a first process that is asleep for longer than its lease. A
// second process has run meanwhile, and failed. When the first wakes up it insists on a refusal.
func refusesOvertaken(t *testing.T) (first, second *guardtest.Process, done <-chan guardtest.Reply, wake func()) {
	shared := idempotency.NewMemoryStore()
	asleep := make(chan struct{})
	first = guardtest.NewProcess(t, shared, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-asleep // and does not look at its context
		guardtest.Op(r.Context()).SetOutcome(idempotency.Final)
		w.WriteHeader(http.StatusUnprocessableEntity)
	}))
	first.Store.On("renew", guardtest.Always(guardtest.Deaf(asleep)))
	second = guardtest.NewProcess(t, shared, guardtest.FailsFirst())
	done = first.Start(t, guardtest.Call{Key: "k"})
	time.Sleep(guardtest.LeaseTime) // of the bubble
	require.Equal(t, http.StatusInternalServerError, second.Do(t, guardtest.Call{Key: "k"}).Status)
	return first, second, done, func() { close(asleep) }
}

// The claim that the overtaken run asks for again is granted, and the reply is lost. The run
// owns the record by then, and must still not record its refusal.
func TestDisplacedRefusalAfterALostReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second, done, wake := refusesOvertaken(t)
		first.Store.On("claim", guardtest.Between(2, 2, guardtest.LoseReply))
		wake()
		guardtest.RequireProblem(t, <-done, http.StatusConflict, problem.InFlight)
		got := second.Do(t, guardtest.Call{Key: "k"})
		require.False(t, got.Replayed())
		require.Less(t, got.Status, 300)
	})
}

// A copy of the first completion is still on its way. It arrives when the overtaken run has
// the claim back, and before that gives way. It is a call of an owner that has no claim.
func TestLateCopyOfADisplacedRefusalIsNotRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second, done, wake := refusesOvertaken(t)
		var arrives func() error
		first.Store.On("complete", guardtest.First(1, func(_ context.Context, proceed func() error) error {
			arrives = proceed
			return proceed()
		}))
		first.Store.On("release", guardtest.First(1, func(_ context.Context, proceed func() error) error {
			require.ErrorIs(t, arrives(), store.ErrNotOwner)
			return proceed()
		}))
		wake()
		guardtest.RequireProblem(t, <-done, http.StatusConflict, problem.InFlight)
		got := second.Do(t, guardtest.Call{Key: "k"})
		require.False(t, got.Replayed())
		require.Less(t, got.Status, 300)
	})
}

// The overtaken run has the claim back, gives way, and the store goes away before the release
// is acknowledged. Its client is still not shown the refusal.
func TestRefusalThatGaveWayIsNotShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, _, done, wake := refusesOvertaken(t)
		first.Store.On("release", guardtest.Always(guardtest.Refuse))
		wake()
		guardtest.RequireProblem(t, <-done, http.StatusConflict, problem.InFlight)
		first.Store.Heal()
	})
}

// A refusal is as final as any answer when nobody came between: the record was lost, and
// with it the claim.
func TestRefusalOfARunWhoseRecordWasLostIsFinal(t *testing.T) {
	guardtest.OnEachRedis(t, func(t *testing.T, s *idempotency.RedisStore, b guardtest.RedisBackend) {
		o := newOvertaking(t, s, b)
		first := o.begin(t)
		b.Advance(t, "idem:", 48*time.Hour)
		require.Equal(t, http.StatusUnprocessableEntity, first.end(http.StatusUnprocessableEntity, "refused").Status)
		require.Contains(t, o.events.Kinds(), event.LeaseLost)
		o.requireReplay(t, http.StatusUnprocessableEntity, "refused")
	})
}

// The first attempt has charged. That another is in flight just now is no reason to forget
// it: the other ends with nothing done, and the next retry would charge again.
func TestAnswerOfAnOvertakenRunWaitsForItsChance(t *testing.T) {
	guardtest.OnEachRedis(t, func(t *testing.T, s *idempotency.RedisStore, b guardtest.RedisBackend) {
		o := newOvertaking(t, s, b)
		first := o.begin(t)
		o.lapse()
		second := o.begin(t)
		guardtest.RequireProblem(t, first.end(http.StatusCreated, "charged"), http.StatusConflict, problem.InFlight)
		require.Equal(t, http.StatusTooManyRequests, second.end(http.StatusTooManyRequests, "nothing done").Status)
		require.Eventually(t, func() bool {
			k := idempotency.Key{Scope: "acme", Value: "k"}
			rec, err := o.guard.Lookup(t.Context(), k)
			return err == nil && rec.State == store.Completed
		}, guardtest.Patience, 10*time.Millisecond)
		o.requireReplay(t, http.StatusCreated, "charged")
	})
}

// Another's answer is recorded. However the overtaken run ends, its client is shown that
// answer, and the loss that nobody had noticed is reported.
func TestClientOfAnOvertakenRunGetsTheRecordedAnswer(t *testing.T) {
	guardtest.OnEachRedis(t, func(t *testing.T, s *idempotency.RedisStore, b guardtest.RedisBackend) {
		for _, status := range []int{
			http.StatusCreated, http.StatusUnprocessableEntity, http.StatusTooManyRequests, http.StatusInternalServerError,
		} {
			o := newOvertaking(t, s, b)
			first := o.begin(t)
			o.lapse()
			require.Equal(t, "theirs", o.begin(t).end(http.StatusCreated, "theirs").Body)
			got := first.end(status, "mine")
			require.Equal(t, "theirs", got.Body, "%d", status)
			require.True(t, got.Replayed())
			require.Contains(t, o.events.Kinds(), event.LeaseLost)
			require.Contains(t, o.events.Kinds(), event.Overtaken)
			require.NoError(t, o.guard.Forget(t.Context(), guardtest.HeldKey, guardtest.Seen(t, o.guard), idempotency.Decision{}))
		}
	})
}

// Another's answer is recorded, and cannot be shown at the moment. The client of the overtaken
// run is told to try again, and not that its request was not run.
func TestClientOfAnOvertakenRunIsNotToldThatNothingRan(t *testing.T) {
	guardtest.OnEachRedis(t, func(t *testing.T, s *idempotency.RedisStore, b guardtest.RedisBackend) {
		o := newOvertaking(t, s, b, idempotency.WithAuthorizeReplay(func(*http.Request, idempotency.RecordInfo) error {
			return idempotency.ErrTryLater
		}))
		first := o.begin(t)
		o.lapse()
		require.Equal(t, "theirs", o.begin(t).end(http.StatusCreated, "theirs").Body)
		guardtest.RequireProblem(t, first.end(http.StatusCreated, "mine"), http.StatusConflict, problem.InFlight)
	})
}

// loseRecord does what a failover can do.
func loseRecord(t *testing.T, g *idempotency.Guard, b guardtest.RedisBackend) {
	t.Helper()
	info := guardtest.Lookup(t, g, guardtest.HeldKey)
	require.EqualValues(t, 1, guardtest.RedisClient(t, b.Addrs...).Del(t.Context(), "idem:"+info.Record).Val())
}

// The record of a run is gone, and another payload has the key. That record says nothing about the
// run. Its client is shown what the run has answered: a key-reused would say that nothing was done.
func TestAnswerBesideAnotherPayloadStands(t *testing.T) {
	guardtest.OnEachRedis(t, func(t *testing.T, s *idempotency.RedisStore, b guardtest.RedisBackend) {
		other := guardtest.Call{Key: "k", Body: "other"}
		for _, recovery := range []idempotency.Recovery{idempotency.Rerun, idempotency.Hold} {
			for _, status := range []int{
				http.StatusCreated, http.StatusUnprocessableEntity, http.StatusTooManyRequests, http.StatusInternalServerError,
			} {
				for _, inFlight := range []bool{false, true} {
					o := newOvertaking(t, s, b, idempotency.WithRecovery(recovery))
					first := o.begin(t)
					loseRecord(t, o.guard, b)
					second := o.beginCall(t, other)
					if !inFlight {
						require.Equal(t, "theirs", second.end(http.StatusCreated, "theirs").Body)
					}
					got := first.end(status, "mine")
					require.Equal(t, status, got.Status, "%v", got.Problem)
					require.Equal(t, "mine", got.Body)
					require.Contains(t, o.events.Kinds(), event.Overtaken)
					require.NotContains(t, o.events.Kinds(), event.Held)
					if inFlight {
						require.Equal(t, "theirs", second.end(http.StatusCreated, "theirs").Body)
					}
					require.True(t, o.server.Do(t, other).Replayed())
					loseRecord(t, o.guard, b)
				}
			}
		}
	})
}

// The same, but the key's record comes from a process with another fingerprint function. Nobody can
// tell without the request whether it is that of another payload. The client has to ask again.
func TestRecordOfAnotherFunctionIsNotJudgedByARunThatHasEnded(t *testing.T) {
	guardtest.OnEachRedis(t, func(t *testing.T, s *idempotency.RedisStore, b guardtest.RedisBackend) {
		jsonFirst := idempotency.WithFingerprint(idempotency.JSONFingerprint, idempotency.RawFingerprint)
		o := newOvertaking(t, s, b, jsonFirst)
		former := newOvertaking(t, s, b, idempotency.WithFingerprint(idempotency.RawFingerprint))
		call := guardtest.Call{Key: "k", Body: `{"amount":1}`}
		require.Equal(t, "known", former.beginCall(t, guardtest.Call{Key: "earlier", Body: call.Body}).end(http.StatusCreated, "known").Body)
		require.True(t, o.server.Do(t, guardtest.Call{Key: "earlier", Body: call.Body}).Replayed(), "now it knows the version")
		first := o.beginCall(t, call)
		loseRecord(t, o.guard, b)
		require.Equal(t, "theirs", former.beginCall(t, call).end(http.StatusCreated, "theirs").Body)
		guardtest.RequireProblem(t, first.end(http.StatusCreated, "mine"), http.StatusConflict, problem.InFlight)
		got := o.server.Do(t, call)
		require.True(t, got.Replayed())
		require.Equal(t, "theirs", got.Body)
	})
}

// The same, but the store is away from the run that comes back, so that it cannot know what was
// decided. It does know that its lease has ended.
func TestRunThatIsCutOffDoesNotContradictAnOperator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := idempotency.NewMemoryStore()
		hold := idempotency.WithRecovery(idempotency.Hold)
		work := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			time.Sleep(2 * guardtest.LeaseTime)
			w.WriteHeader(http.StatusCreated)
		}}
		first := guardtest.NewProcess(t, shared, work, hold)
		second := guardtest.NewProcess(t, shared, work, hold)
		done := first.Start(t, guardtest.Call{Key: "k"})
		first.Store.Fail(guardtest.Hang)
		t.Cleanup(first.Store.Heal) // before the guard is shut down
		time.Sleep(guardtest.LeaseTime)
		guardtest.RequireProblem(t, second.Do(t, guardtest.Call{Key: "k"}), http.StatusConflict, problem.OutcomeUnknown)
		desk := guardtest.NewGuard(t, shared)
		seen := guardtest.Lookup(t, desk, guardtest.HeldKey)
		require.NoError(t, desk.Resolve(t.Context(), guardtest.HeldKey, seen.Seen(),
			idempotency.Resolution{Outcome: idempotency.Final, Status: http.StatusOK, Body: []byte("decided")}))
		guardtest.RequireProblem(t, <-done, http.StatusConflict, problem.InFlight)
		first.Store.Heal()
		require.Equal(t, "decided", first.Do(t, guardtest.Call{Key: "k"}).Body)
		require.EqualValues(t, 1, work.Runs.Load())
	})
}

// Do follows the same rule: a permanent error is a refusal.
func TestPermanentErrorOfAnOvertakenFunctionIsNotFinal(t *testing.T) {
	guardtest.OnEachRedis(t, func(t *testing.T, s *idempotency.RedisStore, b guardtest.RedisBackend) {
		guard := guardtest.NewGuard(t, s, idempotency.WithLease(overtakenLease))
		key := idempotency.Key{Scope: "jobs", Value: "k"}
		begun, wake := make(chan struct{}), make(chan struct{})
		first := make(chan error, 1)
		go func() {
			_, _, err := idempotency.Do(t.Context(), guard, key, func(context.Context) (string, error) {
				close(begun)
				<-wake
				return "", idempotency.Permanent(errors.New("refused"))
			})
			first <- err
		}()
		select {
		case <-begun:
		case err := <-first:
			t.Fatal("the function was not called:", err)
		}
		b.Advance(t, "idem:", overtakenLease)
		down := errors.New("charged, and then the line broke")
		_, _, err := idempotency.Do(t.Context(), guard, key, func(context.Context) (string, error) { return "", down })
		require.ErrorIs(t, err, down)
		close(wake)
		require.ErrorIs(t, <-first, idempotency.ErrInFlight)
		got, result, err := idempotency.Do(t.Context(), guard, key, func(context.Context) (string, error) { return "charged", nil })
		require.NoError(t, err)
		require.Equal(t, "charged", got)
		require.False(t, result.Replayed)
	})
}

// A function has run when it finds the record of another version in its way. It is not told that its key
// was used for something else, or that nothing has run.
func TestFunctionOvertakenByAnotherVersionIsInFlight(t *testing.T) {
	guardtest.Each(t, map[string]byte{"that it knows": digest.VersionJSON, "that is newer": digest.VersionAsSent + 1}, func(t *testing.T, version byte) {
		st := idempotency.NewMemoryStore()
		guard := guardtest.NewGuard(t, st)
		_, _, err := idempotency.Do(t.Context(), guard, idempotency.Key{Scope: "jobs", Value: "k"}, func(context.Context) (string, error) {
			takeAway(t, st, store.Owner{1}, func(fp *store.Fingerprint) { fp[0] = version })
			return "mine", nil
		})
		require.ErrorIs(t, err, idempotency.ErrInFlight)
	})
}

// takeAway gives the claim of the store's only record to another owner, whose fingerprint may differ. It
// returns the record's name.
func takeAway(t testing.TB, st *idempotency.MemoryStore, other store.Owner, differ func(*store.Fingerprint)) (name string) {
	page, err := st.List(t.Context(), store.Query{})
	require.NoError(t, err)
	name, rec := page.Entries[0].Key, page.Entries[0].Record
	require.NoError(t, st.Release(t.Context(), name, rec.Owner, store.Release{Undone: true, Unbind: true}))
	differ(&rec.Fingerprint)
	rec = guardtest.Claim(t, st, name, store.Claim{Owner: other, Fingerprint: rec.Fingerprint, Lease: time.Minute, Retention: time.Hour})
	require.True(t, rec.Mine)
	return name
}

// The answer of a run that has lost its claim waits in the background while other runs end. Its memory
// is not theirs.
func TestAnswerThatWaitsKeepsItsMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, other := idempotency.NewMemoryStore(), store.Owner{1}
		var name string
		s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, st).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			key := r.Header.Get("Idempotency-Key")
			if key == `"overtaken"` {
				name = takeAway(t, st, other, func(*store.Fingerprint) {})
			}
			_, _ = io.WriteString(w, strings.Repeat(key, 100))
		})))
		call := guardtest.Call{Key: `"overtaken"`}
		guardtest.RequireProblem(t, s.Do(t, call), http.StatusConflict, problem.InFlight)
		for i := range 100 {
			require.Equal(t, http.StatusOK, s.Do(t, guardtest.Call{Key: fmt.Sprintf("%q", fmt.Sprint("other ", i))}).Status)
		}
		require.NoError(t, st.Release(t.Context(), name, other, store.Release{}))
		time.Sleep(10 * time.Second)
		got := s.Do(t, call)
		require.True(t, got.Replayed(), got.Body)
		require.Equal(t, strings.Repeat(call.Key, 100), got.Body)
	})
}

// A release was executed, and its reply was lost. Another run may have the key before the release is
// repeated, as it should: it has not overtaken the first.
func TestLostReplyOfAReleaseIsNoTakeover(t *testing.T) {
	for _, status := range []int{http.StatusTooManyRequests, http.StatusTemporaryRedirect, http.StatusInternalServerError} {
		for name, length := range map[string]time.Duration{"has ended": 0, "in flight": time.Minute} {
			guardtest.Bubble(t, fmt.Sprint(status, " ", name), func(t *testing.T) {
				shared := idempotency.NewMemoryStore()
				first := guardtest.NewProcess(t, shared, &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
					w.WriteHeader(status)
				}})
				second := guardtest.NewProcess(t, shared, &guardtest.Counter{Handler: func(http.ResponseWriter, *http.Request, int64) {
					time.Sleep(length)
				}})
				var retry <-chan guardtest.Reply
				first.Store.On("release", guardtest.First(1, func(ctx context.Context, proceed func() error) error {
					err := guardtest.LoseReply(ctx, proceed)
					retry = second.Start(t, guardtest.Call{Key: "k"})
					time.Sleep(10 * time.Millisecond)
					return err
				}))
				require.Equal(t, status, first.Do(t, guardtest.Call{Key: "k"}).Status)
				synctest.Wait()
				require.Zero(t, first.Guard.Stats())
				require.Zero(t, first.Events.Count(event.Overtaken))
				require.Zero(t, first.Events.Count(event.LeaseLost))
				require.Equal(t, http.StatusOK, (<-retry).Status)
			})
		}
	}
}

// A claim that was lost while the run lasted is another matter: the two have run at the same time.
func TestReleaseOfALostClaimIsATakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		second := guardtest.NewProcess(t, idempotency.NewMemoryStore(), guardtest.Answering(0, "second"))
		h := &guardtest.Counter{}
		first := guardtest.NewProcess(t, idempotency.NewMemoryStore(), h)
		h.Handler = func(w http.ResponseWriter, r *http.Request, _ int64) {
			first.Store.Replace(second.Store) // a store that has lost the record
			if got := second.Do(t, guardtest.Call{Key: "k"}).Body; got != "second" {
				t.Errorf("the second run answers %q", got)
			}
			select {
			case <-r.Context().Done(): // its renewal is refused
			case <-time.After(time.Minute):
				t.Error("the run is not told to stop")
			}
			w.WriteHeader(http.StatusTooManyRequests)
		}
		first.Store.On("release", guardtest.First(1, guardtest.Refuse))
		first.Do(t, guardtest.Call{Key: "k"})
		require.Equal(t, 1, first.Events.Count(event.LeaseLost))
		require.Equal(t, 1, first.Events.Count(event.Overtaken))
	})
}
