package idempotency

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A subscription that nobody uses ends by itself, and the next watcher starts another.
// The bubble sees to it that no goroutine stays.
func TestRedisWatchRetires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var w redisWatch
		var runs int
		var ended time.Time
		w.listen = func(context.Context) error {
			runs++
			w.confirmed()
			for !w.retire() {
				time.Sleep(time.Second)
			}
			ended = time.Now()
			return nil
		}
		_, stop, err := w.add(t.Context(), "a")
		require.NoError(t, err)
		time.Sleep(time.Hour) // somebody waits
		stop()
		time.Sleep(redisWatchIdle / 2)
		_, stop, err = w.add(t.Context(), "b")
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, 1, runs)
		stop()
		stopped := time.Now()
		time.Sleep(2 * redisWatchIdle)
		synctest.Wait()
		require.Equal(t, redisWatchIdle, ended.Sub(stopped))
		require.Empty(t, w.waiting)

		_, stop, err = w.add(t.Context(), "c")
		require.NoError(t, err)
		stop()
		synctest.Wait()
		require.Equal(t, 2, runs)
		time.Sleep(2 * redisWatchIdle)
	})
}

// Watch returns when the server listens and not before, and not at all if it cannot.
func TestRedisWatchConfirmation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var w redisWatch
		say := make(chan func())
		refused := errors.New("refused")
		w.listen = func(ctx context.Context) error {
			for {
				select {
				case f := <-say:
					if f == nil {
						return refused
					}
					f()
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		}
		watch := func(name string) (settled <-chan struct{}, err error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			settled, _, err = w.add(ctx, name)
			return settled, err
		}
		woken := func(c <-chan struct{}) bool {
			select {
			case <-c:
				return true
			default:
				return false
			}
		}
		tell := func(f func()) {
			say <- f
			synctest.Wait()
		}
		defer w.close()

		_, err := watch("a")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Empty(t, w.waiting)

		tell(w.confirmed)
		a, err := watch("a")
		require.NoError(t, err)
		b, err := watch("b")
		require.NoError(t, err)
		require.False(t, woken(a))
		tell(func() { w.settled("a"); w.settled("a") })
		require.True(t, woken(a))
		require.False(t, woken(a), "merged")
		require.False(t, woken(b))

		tell(w.lost)
		_, err = watch("c")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		tell(w.confirmed)
		require.True(t, woken(a))
		require.True(t, woken(b))

		// A second confirmation without a loss in between comes from a client that
		// reconnects by itself.
		tell(w.confirmed)
		require.True(t, woken(a))

		tell(nil)
		require.True(t, woken(a), "who waits has to look by itself now")
		time.AfterFunc(time.Second/2, func() { say <- nil })
		_, err = watch("d")
		require.ErrorIs(t, err, refused)

		// The next subscription makes up for what was missed without one.
		time.AfterFunc(time.Second/2, func() { say <- w.confirmed })
		_, err = watch("e")
		require.NoError(t, err)
		require.True(t, woken(a))

		w.close()
		w.close()
		require.True(t, woken(a))
		_, err = watch("f")
		require.ErrorIs(t, err, errRedisClosed)
	})
}
