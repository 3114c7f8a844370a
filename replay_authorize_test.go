package idempotency_test

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
	"example.com/idempotency/problem"
)

// A waysToAnAnswer are all the ways in which a recorded answer reaches a client who has not
// caused it, or not seen it yet. Each returns what that client got. The recorded answer is
// "recorded", with a Location.
var waysToAnAnswer = map[string]func(t *testing.T, opts ...idempotency.Option) reply{
	"repeated": func(t *testing.T, opts ...idempotency.Option) reply {
		p := newProcess(t, idempotency.NewMemoryStore(), recordedIn(time.Second), opts...)
		p.do(t, call{key: "k"})
		return p.do(t, call{key: "k"})
	},
	"waited for": func(t *testing.T, opts ...idempotency.Option) reply {
		p := newProcess(t, idempotency.NewMemoryStore(), recordedIn(time.Second), append(opts, idempotency.WithWait(time.Minute))...)
		first := p.start(t, call{key: "k"})
		defer func() { <-first }()
		return p.do(t, call{key: "k"})
	},
	"by another process, waited for": func(t *testing.T, opts ...idempotency.Option) reply {
		shared := idempotency.NewMemoryStore()
		other := newProcess(t, shared, recordedIn(time.Second))
		p, _ := newWatchingProcess(t, shared, recordedIn(0), append(opts, idempotency.WithWait(time.Minute))...)
		first := other.start(t, call{key: "k"})
		defer func() { <-first }()
		return p.do(t, call{key: "k"})
	},
	"of the run that took over": func(t *testing.T, opts ...idempotency.Option) reply {
		shared := idempotency.NewMemoryStore()
		asleep := make(chan struct{})
		owner := newProcess(t, shared, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			<-asleep
			_, _ = io.WriteString(w, "its own")
		}), opts...)
		owner.store.on("renew", always(deaf(asleep)))
		done := owner.start(t, call{key: "k"})
		time.Sleep(leaseTime)
		newProcess(t, shared, recordedIn(0)).do(t, call{key: "k"})
		close(asleep)
		return <-done
	},
	"recorded in the background": func(t *testing.T, opts ...idempotency.Option) reply {
		p := newProcess(t, idempotency.NewMemoryStore(), recordedIn(0), opts...)
		p.store.on("complete", first(20, refuse))
		require.Equal(t, "recorded", p.do(t, call{key: "k"}).body, "a run is not a replay")
		time.Sleep(time.Hour)
		return p.do(t, call{key: "k"})
	},
	"that a resolver found out": func(t *testing.T, opts ...idempotency.Option) reply {
		opts = append(opts, idempotency.WithRecovery(idempotency.Hold),
			idempotency.WithResolver(func(context.Context, idempotency.RecordInfo) (idempotency.Resolution, error) {
				return idempotency.Resolution{
					Outcome: idempotency.Final, Status: http.StatusCreated,
					Header: http.Header{"Location": {"/recorded"}}, Body: []byte("recorded"),
				}, nil
			}))
		s := serveRecorder(t, newGuard(t, idempotency.NewMemoryStore(), opts...).Handler(failsFirst()))
		require.Equal(t, http.StatusInternalServerError, s.do(t, call{key: "k"}).status)
		return s.do(t, call{key: "k"})
	},
}

// recordedIn answers what waysToAnAnswer promises, after d.
func recordedIn(d time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(d)
		w.Header().Set("Location", "/recorded")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "recorded")
	})
}

// Whoever may not see an answer does not get it in any way, nor what it would tell.
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
						require.True(t, got.replayed(), "no replay, so that the case proves nothing: %+v", got)
						require.Equal(t, "recorded", got.body)
						return
					}
					requireProblem(t, got, http.StatusForbidden, problem.ReplayDenied)
					require.Empty(t, got.header.Get("Location"))
					require.False(t, strings.Contains(got.body, "recorded\"") || strings.Contains(got.body, "201"), got.body)
				})
			}
		})
	}
}
