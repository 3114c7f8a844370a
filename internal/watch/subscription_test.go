package watch

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
func TestSubscriptionRetires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *Subscription
		var runs int
		var ended time.Time
		s = NewSubscription(func(context.Context) error {
			runs++
			s.Confirmed()
			for !s.Retire() {
				time.Sleep(time.Second)
			}
			ended = time.Now()
			return nil
		})
		_, stop, err := s.Watch(t.Context(), "a")
		require.NoError(t, err)
		time.Sleep(time.Hour) // somebody waits
		stop()
		time.Sleep(idle / 2)
		_, stop, err = s.Watch(t.Context(), "b")
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, 1, runs)
		stop()
		stopped := time.Now()
		time.Sleep(2 * idle)
		synctest.Wait()
		require.Equal(t, idle, ended.Sub(stopped))
		require.Empty(t, s.waiting.waiting)

		_, stop, err = s.Watch(t.Context(), "c")
		require.NoError(t, err)
		stop()
		synctest.Wait()
		require.Equal(t, 2, runs)
		time.Sleep(2 * idle)
	})
}

// Watch returns when the server listens and not before, and not at all if it cannot.
func TestSubscriptionIsConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		say := make(chan func())
		refused := errors.New("refused")
		s := NewSubscription(func(ctx context.Context) error {
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
		})
		watch := func(name string) (settled <-chan struct{}, err error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			settled, _, err = s.Watch(ctx, name)
			return settled, err
		}
		tell := func(f func()) {
			say <- f
			synctest.Wait()
		}
		defer s.Close()

		_, err := watch("a")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Empty(t, s.waiting.waiting)

		tell(s.Confirmed)
		a, err := watch("a")
		require.NoError(t, err)
		b, err := watch("b")
		require.NoError(t, err)
		require.False(t, woken(a))
		tell(func() { s.Wake("a"); s.Wake("a") })
		require.True(t, woken(a))
		require.False(t, woken(a), "merged")
		require.False(t, woken(b))

		tell(s.Lost)
		_, err = watch("c")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		tell(s.Confirmed)
		require.True(t, woken(a))
		require.True(t, woken(b))

		// A second confirmation without a loss in between comes from a client that
		// reconnects by itself.
		tell(s.Confirmed)
		require.True(t, woken(a))

		tell(nil)
		require.True(t, woken(a), "who waits has to look by itself now")
		time.AfterFunc(time.Second/2, func() { say <- nil })
		_, err = watch("d")
		require.ErrorIs(t, err, refused)

		// The next subscription makes up for what was missed without one.
		time.AfterFunc(time.Second/2, func() { say <- s.Confirmed })
		_, err = watch("e")
		require.NoError(t, err)
		require.True(t, woken(a))

		s.Close()
		s.Close()
		require.True(t, woken(a))
		_, err = watch("f")
		require.ErrorIs(t, err, ErrClosed)
	})
}
