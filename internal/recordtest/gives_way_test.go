package recordtest

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
)

// The store loses the record of a run, and another attempt is sent on meanwhile. The run then says that
// nothing was done, and gives way: the key is as free for the other place as it was.
func TestRunThatGivesWayLeavesTheKeyOfARedirectFree(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusUnauthorized, http.StatusTooManyRequests} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
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
				info, err := hand.Lookup(t.Context(), key)
				require.NoError(t, err)
				require.NoError(t, hand.Forget(t.Context(), key, info.Seen(), idempotency.Decision{}))
				require.Equal(t, http.StatusPermanentRedirect, other.Do(t, guardtest.Call{Key: "k"}).Status)
				<-first
				require.Equal(t, http.StatusOK, other.Do(t, guardtest.Call{Key: "k", Path: "/moved"}).Status)
				require.EqualValues(t, 3, h.Runs.Load())
			})
		})
	}
}
