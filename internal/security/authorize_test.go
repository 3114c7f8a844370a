package security

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
)

// waysToAnAnswer are all the ways in which a recorded answer reaches a client who has not
// caused it, or has not seen it yet. Each returns the reply to that client. The recorded
// answer is "recorded", with a Location.
var waysToAnAnswer = map[string]func(t *testing.T, opts ...idempotency.Option) guardtest.Reply{
	"repeated": func(t *testing.T, opts ...idempotency.Option) guardtest.Reply {
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), recordedIn(time.Second), opts...)
		p.Do(t, guardtest.Call{Key: "k"})
		return p.Do(t, guardtest.Call{Key: "k"})
	},
	"waited for": func(t *testing.T, opts ...idempotency.Option) guardtest.Reply {
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), recordedIn(time.Second), append(opts, idempotency.WithWait(time.Minute))...)
		first := p.Start(t, guardtest.Call{Key: "k"})
		defer func() { <-first }()
		return p.Do(t, guardtest.Call{Key: "k"})
	},
	"by another process, waited for": func(t *testing.T, opts ...idempotency.Option) guardtest.Reply {
		shared := idempotency.NewMemoryStore()
		other := guardtest.NewProcess(t, shared, recordedIn(time.Second))
		p, _ := guardtest.NewWatchingProcess(t, shared, recordedIn(0), append(opts, idempotency.WithWait(time.Minute))...)
		first := other.Start(t, guardtest.Call{Key: "k"})
		defer func() { <-first }()
		return p.Do(t, guardtest.Call{Key: "k"})
	},
	"of the run that took over": func(t *testing.T, opts ...idempotency.Option) guardtest.Reply {
		shared := idempotency.NewMemoryStore()
		asleep := make(chan struct{})
		owner := guardtest.NewProcess(t, shared, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			<-asleep
			_, _ = io.WriteString(w, "its own")
		}), opts...)
		owner.Store.On("renew", guardtest.Always(guardtest.Deaf(asleep)))
		done := owner.Start(t, guardtest.Call{Key: "k"})
		time.Sleep(guardtest.LeaseTime)
		guardtest.NewProcess(t, shared, recordedIn(0)).Do(t, guardtest.Call{Key: "k"})
		close(asleep)
		return <-done
	},
	"recorded in the background": func(t *testing.T, opts ...idempotency.Option) guardtest.Reply {
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), recordedIn(0), opts...)
		p.Store.On("complete", guardtest.First(20, guardtest.Refuse))
		require.Equal(t, "recorded", p.Do(t, guardtest.Call{Key: "k"}).Body, "a run is not a replay")
		time.Sleep(time.Hour)
		return p.Do(t, guardtest.Call{Key: "k"})
	},
	"that a resolver found out": func(t *testing.T, opts ...idempotency.Option) guardtest.Reply {
		opts = append(opts, idempotency.WithRecovery(idempotency.Hold),
			idempotency.WithResolver(func(context.Context, idempotency.RecordInfo) (idempotency.Resolution, error) {
				return idempotency.Resolution{
					Outcome: idempotency.Final, Status: http.StatusCreated,
					Header: http.Header{"Location": {"/recorded"}}, Body: []byte("recorded"),
				}, nil
			}))
		s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, idempotency.NewMemoryStore(), opts...).Handler(guardtest.FailsFirst()))
		require.Equal(t, http.StatusInternalServerError, s.Do(t, guardtest.Call{Key: "k"}).Status)
		return s.Do(t, guardtest.Call{Key: "k"})
	},
}

// recordedIn returns a handler that gives that answer after d.
func recordedIn(d time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(d)
		w.Header().Set("Location", "/recorded")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "recorded")
	})
}

// A client who may not see an answer gets neither the answer nor anything it would reveal,
// in any of these ways.
func TestEachWayToAnAnswerIsAuthorized(t *testing.T) {
	t.Parallel()
	for name, way := range waysToAnAnswer {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, denied := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					asked := 0
					got := way(t, idempotency.WithAuthorizeReplay(func(_ *http.Request, info idempotency.RecordInfo) error {
						asked++
						require.Equal(t, http.StatusCreated, info.Status)
						require.Equal(t, "k acme", info.Key.Value+" "+info.Key.Scope)
						if denied {
							return errors.New("suspended")
						}
						return nil
					}))
					require.Equal(t, 1, asked)
					if !denied {
						require.True(t, got.Replayed(), "no replay, so that the case proves nothing: %+v", got)
						require.Equal(t, "recorded", got.Body)
						return
					}
					guardtest.RequireProblem(t, got, http.StatusForbidden, problem.ReplayDenied)
					require.Empty(t, got.Header.Get("Location"))
					require.False(t, strings.Contains(got.Body, "recorded\"") || strings.Contains(got.Body, "201"), got.Body)
				})
			}
		})
	}
}
