package storefaults

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
)

// A release was executed, and its reply was lost. Another run may have the key before the release is
// repeated, as it should: it has not overtaken the first.
func TestLostReplyOfAReleaseIsNoTakeover(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusTooManyRequests, http.StatusTemporaryRedirect, http.StatusInternalServerError} {
		for name, length := range map[string]time.Duration{"has ended": 0, "in flight": time.Minute} {
			t.Run(fmt.Sprint(status, " ", name), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
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
			})
		}
	}
}

// A claim that was lost while the run lasted is another matter: the two have run at the same time.
func TestReleaseOfALostClaimIsATakeover(t *testing.T) {
	t.Parallel()
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
