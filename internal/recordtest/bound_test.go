package recordtest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
)

// What requests that are sent elsewhere, or that do not run, leave their key bound to.

// A redirect that keeps the method sends the client, and its key, to another path. net/http's
// router does that for a missing slash.
func TestRedirectBindsNothing(t *testing.T) {
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		guardtest.OnEachRecovery(t, func(t *testing.T, recovery idempotency.Option, _ guardtest.Fate) {
			for _, status := range []int{http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
				for name, opts := range map[string][]idempotency.Option{
					"default":  {recovery},
					"own rule": {recovery, idempotency.WithOutcome(idempotency.DefaultOutcome)},
					"waiting":  {recovery, idempotency.WithWait(time.Minute)},
				} {
					t.Run(fmt.Sprint(status, " ", name), func(t *testing.T) {
						mux, h := http.NewServeMux(), &guardtest.Counter{}
						mux.Handle("POST /charges", http.RedirectHandler("/charges/", status))
						mux.Handle("POST /charges/", h)
						s := serve(guardtest.NewGuard(t, idempotency.NewMemoryStore(), opts...).Handler(mux))
						first := s.Do(t, guardtest.Call{Key: "k"}) // the client follows
						require.Equal(t, http.StatusCreated, first.Status, first.Body)
						guardtest.RequireReplay(t, first, s.Do(t, guardtest.Call{Key: "k", Path: "/charges/"}))
						require.EqualValues(t, 1, h.Runs.Load())
					})
				}
			}
		})
	})
}

// A request that did not run leaves the key as it has found it: bound to itself if nobody had used it
// before, and free if the client was told to come back with another one.
func TestClaimOfNoRunLeavesTheKeyAsItWas(t *testing.T) {
	gone := errors.New("the client has gone")
	guardtest.Each(t, map[string]func(t *testing.T, p *guardtest.Process, c guardtest.Call){
		"a lost reply": func(t *testing.T, p *guardtest.Process, c guardtest.Call) {
			p.Store.On("claim", guardtest.First(p.Store.Count("claim")+1, guardtest.LoseReply))
			guardtest.RequireProblem(t, p.Do(t, c), http.StatusServiceUnavailable, problem.StoreUnavailable)
			time.Sleep(time.Second)
		},
		"a client that has gone": func(t *testing.T, p *guardtest.Process, c guardtest.Call) {
			ctx, leave := context.WithCancelCause(t.Context())
			p.Store.On("claim", func(int) guardtest.Fault {
				return func(_ context.Context, proceed func() error) error {
					defer leave(gone)
					return proceed()
				}
			})
			_, _ = p.Try(ctx, c)
			p.Store.On("claim", guardtest.Always(nil))
		},
	}, func(t *testing.T, fail func(t *testing.T, p *guardtest.Process, c guardtest.Call)) {
		guardtest.BubbleOnEachRecovery(t, func(t *testing.T, recovery idempotency.Option, _ guardtest.Fate) {
			mux, h := http.NewServeMux(), guardtest.Answering(0, "done")
			mux.Handle("POST /charges", http.RedirectHandler("/moved", http.StatusPermanentRedirect))
			mux.Handle("POST /", h)
			p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), mux, recovery, idempotency.WithClientCancel(true))
			p.Client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

			fail(t, p, guardtest.Call{Key: "new", Path: "/paid", Body: "10"})
			guardtest.RequireProblem(t, p.Do(t, guardtest.Call{Key: "new", Path: "/paid", Body: "20"}), http.StatusConflict, problem.KeyReused)
			require.Equal(t, "done", p.Do(t, guardtest.Call{Key: "new", Path: "/paid", Body: "10"}).Body)
			require.EqualValues(t, 1, h.Runs.Load())

			require.Equal(t, http.StatusPermanentRedirect, p.Do(t, guardtest.Call{Key: "sent-on"}).Status)
			fail(t, p, guardtest.Call{Key: "sent-on"})
			require.Equal(t, "done", p.Do(t, guardtest.Call{Key: "sent-on", Path: "/moved"}).Body)
			require.EqualValues(t, 2, h.Runs.Load())
		})
	})
}

// A client that is sent on, or may correct its request, does so at once. So it does not hear of that
// before the store has set the key free.
func TestKeyIsFreeBeforeItsClientHearsOfIt(t *testing.T) {
	for status, next := range map[int]guardtest.Call{
		http.StatusPermanentRedirect: {Key: "k", Path: "/moved"}, http.StatusTooManyRequests: {Key: "k", Body: "corrected"},
	} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			guardtest.BubbleOnEachRecovery(t, func(t *testing.T, recovery idempotency.Option, _ guardtest.Fate) {
				h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, run int64) {
					if run <= 2 {
						w.WriteHeader(status)
					}
				}}
				shared := idempotency.NewMemoryStore()
				p := guardtest.NewProcess(t, shared, h, recovery, idempotency.WithRebinding(true))
				other := guardtest.NewProcess(t, shared, h, recovery, idempotency.WithRebinding(true))
				t.Cleanup(p.Store.Heal)
				p.Store.On("release", guardtest.Always(guardtest.Refuse))
				guardtest.RequireProblem(t, p.Do(t, guardtest.Call{Key: "k"}), http.StatusServiceUnavailable, problem.StoreUnavailable)
				guardtest.RequireProblem(t, other.Do(t, guardtest.Call{Key: "k"}), http.StatusConflict, problem.InFlight)
				p.Store.Heal()
				time.Sleep(time.Minute)
				require.Equal(t, status, p.Do(t, guardtest.Call{Key: "k"}).Status)
				require.Equal(t, http.StatusOK, other.Do(t, next).Status)
				require.EqualValues(t, 3, h.Runs.Load())
			})
		})
	}
}

// The store loses the record of a run, and another attempt is sent on meanwhile. The run then says that
// nothing was done, and gives way: the key is as free for the other place as it was.
func TestRunThatGivesWayLeavesTheKeyOfARedirectFree(t *testing.T) {
	for _, status := range []int{http.StatusUnauthorized, http.StatusTooManyRequests} {
		guardtest.Bubble(t, fmt.Sprint(status), func(t *testing.T) {
			shared := idempotency.NewMemoryStore()
			h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, run int64) {
				switch run {
				case 1:
					time.Sleep(time.Hour)
					w.WriteHeader(status)
				case 2:
					w.Header().Set("Location", "/moved")
					w.WriteHeader(http.StatusPermanentRedirect)
				}
			}}
			p, other := guardtest.NewProcess(t, shared, h), guardtest.NewProcess(t, shared, h)
			other.Client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			first := p.Start(t, guardtest.Call{Key: "k"})
			synctest.Wait()
			renewed := func(context.Context, func() error) error { return nil } // and forgotten
			p.Store.On("renew", guardtest.Always(renewed))
			time.Sleep(time.Hour - 5*time.Second)
			hand := guardtest.NewGuard(t, shared)
			key := idempotency.Key{Scope: "acme", Value: "k"}
			info := guardtest.Lookup(t, hand, key)
			require.NoError(t, hand.Forget(t.Context(), key, info.Seen(), idempotency.Decision{}))
			require.Equal(t, http.StatusPermanentRedirect, other.Do(t, guardtest.Call{Key: "k"}).Status)
			<-first
			require.Equal(t, http.StatusOK, other.Do(t, guardtest.Call{Key: "k", Path: "/moved"}).Status)
			require.EqualValues(t, 3, h.Runs.Load())
		})
	}
}
