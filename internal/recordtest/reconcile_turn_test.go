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
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
)

// A resolver waits for its context, as one does whose provider is silent. The other keys have their turn, what is
// held meanwhile is found, and a shutdown does not wait.
func TestReconcileEndsTheTurnOfAResolver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked []string
		d := newDesk(t, idempotency.NewMemoryStore(), idempotency.WithResolver(
			func(ctx context.Context, rec idempotency.RecordInfo) (idempotency.Resolution, error) {
				asked = append(asked, rec.Key.Value)
				if rec.Key.Value == "key-0" {
					<-ctx.Done()
					return idempotency.Resolution{}, ctx.Err()
				}
				return idempotency.Resolution{Outcome: idempotency.NotExecuted}, nil
			}))
		d.runs.Handler = func(w http.ResponseWriter, _ *http.Request, _ int64) { w.WriteHeader(http.StatusBadGateway) }
		for n := range 3 {
			d.route.Do(t, guardtest.Call{Key: fmt.Sprint("key-", n)})
			time.Sleep(time.Second)
		}
		d.reconcile(t)
		ticks(2)
		require.Equal(t, []string{"key-0", "key-1", "key-2"}, asked[:3])
		over := d.only(event.StoreError)[0]
		require.Equal(t, "resolve", over.Op)
		require.ErrorContains(t, over.Err, "other keys wait")

		begun := time.Now()
		require.NoError(t, d.Shutdown(t.Context()))
		require.NoError(t, <-d.done)
		require.Equal(t, begun, time.Now(), "key-0 is asked again, and a shutdown ends that")
	})
}

// What a resolver has said in time is settled, although its turn has ended, or a shutdown has begun.
func TestReconcileSettlesWhatWasSaidInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newListed()
		d := newDesk(t, st, idempotency.WithResolver(func(ctx context.Context, _ idempotency.RecordInfo) (idempotency.Resolution, error) {
			<-ctx.Done()
			return idempotency.Resolution{Outcome: idempotency.NotExecuted}, nil
		}))
		d.runs.Handler = func(w http.ResponseWriter, _ *http.Request, _ int64) { w.WriteHeader(http.StatusBadGateway) }
		d.route.Do(t, guardtest.Call{Key: "k"})
		d.reconcile(t)
		ticks(1)
		require.Len(t, d.only(event.Resolved), 1)
		require.Empty(t, d.only(event.StoreError))
	})
}
