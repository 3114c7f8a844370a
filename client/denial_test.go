package client_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/client"
	"example.com/idempotency/store"
)

// inProcess is the transport to a handler without a network.
type inProcess struct{ http.Handler }

func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	resp := w.Result()
	resp.Request = r
	return resp, nil
}

// unrenewed is a store that cannot be reached for renewals.
type unrenewed struct{ *idempotency.MemoryStore }

func (unrenewed) Renew(context.Context, string, store.Owner) error {
	return errors.New("the store is away")
}

// A server may have had the effect and answers with a plain refusal. Its guard knows better, and
// so does the client.
func TestRefusalAfterAnEffectIsNotTheEnd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		effect   func(*http.Request)
		statuses []int
	}{
		"a lost lease": {func(r *http.Request) { <-r.Context().Done() }, []int{402, 409, 422, 429}},
		"a step": {func(r *http.Request) {
			_, _ = idempotency.Step(r.Context(), "charge", func(context.Context) (int, error) { return 1, nil })
		}, []int{401, 425, 429}},
	} {
		for _, recovery := range []idempotency.Recovery{idempotency.Rerun, idempotency.Hold} {
			for _, attempts := range []int{1, 3} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					for _, status := range c.statuses {
						synctest.Test(t, func(t *testing.T) {
							g := newGuard(t, unrenewed{idempotency.NewMemoryStore()}, idempotency.WithRecovery(recovery), idempotency.WithLease(3*time.Second))
							h := g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
								c.effect(r)
								w.WriteHeader(status)
							}))
							transport := newTransport(t, inProcess{h}, client.WithAttempts(attempts))
							for range 2 { // a client that does not know of the first finds the step
								_, err := send(transport, post(client.WithKey(t.Context(), "k"), place, "{}"))
								require.ErrorIs(t, err, client.ErrOutcomeUnknown, "%v, status %d, %d attempts", recovery, status, attempts)
								require.Equal(t, recovery == idempotency.Hold, errors.Is(err, client.ErrHeld))
							}
						})
					}
				})
			}
		}
	}
}

// A timeout in front of a guard answers 408 while the run goes on behind it. The client waits for that
// run, as for one that it is told of, and there is never another one.
func TestTimeoutInFrontOfAGuardIsWaitedFor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		echo string // the timeout answers with the key, as where it writes into the response of the handler
		opts []idempotency.Option
	}{
		"bare":                   {"", nil},
		"with the key":           {"k", nil},
		"the guard waits itself": {"", []idempotency.Option{idempotency.WithWait(time.Minute)}},
	} {
		bubble(t, name, func(t *testing.T) {
			var running, runs atomic.Int64
			g := newGuard(t, idempotency.NewMemoryStore(), c.opts...)
			h := g.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				assert.EqualValues(t, 1, running.Add(1), "one run at a time")
				runs.Add(1)
				time.Sleep(20 * time.Second)
				running.Add(-1)
				w.WriteHeader(http.StatusCreated)
			}))
			hurried := roundTripper(func(r *http.Request) (*http.Response, error) {
				answered := make(chan *http.Response, 1)
				go func() {
					resp, _ := inProcess{h}.RoundTrip( //nolint:bodyclose // the client closes it
						r.WithContext(context.WithoutCancel(r.Context())))
					answered <- resp
				}()
				select {
				case resp := <-answered:
					return resp, nil
				case <-time.After(time.Second):
					late := answer{status: http.StatusRequestTimeout, header: map[string]string{"Idempotency-Key": c.echo}}
					return late.response(r), nil
				}
			})
			got, err := send(newTransport(t, hurried), post(client.WithKey(t.Context(), "k"), place, "{}"))
			require.NoError(t, err)
			require.Equal(t, http.StatusCreated, got.status)
			require.True(t, client.Replayed(got.resp))
			require.EqualValues(t, 1, runs.Load())
			synctest.Wait()
		})
	}
}

// Behind a guard, each 408 of the handler may be the end of a run whose work goes on. It is never said that
// nothing was done.
func TestTimeoutBehindAGuardIsAskedWithinTheLimit(t *testing.T) {
	t.Parallel()
	for _, attempts := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			base := answering(answer{status: http.StatusRequestTimeout, header: map[string]string{keyField: "k"}})
			_, err := send(newTransport(t, base, client.WithAttempts(attempts)), post(client.WithKey(t.Context(), "k"), place, "{}"))
			require.ErrorIs(t, err, client.ErrOutcomeUnknown)
			require.Equal(t, client.ReasonAttempts, failure(t, err).Reason)
			require.Len(t, base.requests(), attempts)
		})
	}
}
