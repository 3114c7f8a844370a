package inflight_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/engine/inflight"
)

const slow = time.Second

// enter makes a call that has its turn at once.
func enter(t *testing.T, throttle *inflight.Throttle) time.Time {
	t.Helper()
	waited, err := throttle.Enter(t.Context().Done(), time.Second)
	require.NoError(t, err)
	require.False(t, waited)
	return time.Now()
}

// lower lets a slow answer come.
func lower(t *testing.T, throttle *inflight.Throttle) {
	t.Helper()
	made := enter(t, throttle)
	time.Sleep(slow)
	throttle.Leave(made, slow)
}

func TestThrottleBoundsAfterASlowAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var throttle inflight.Throttle
		for range 100 {
			enter(t, &throttle)
		}
		for range 100 {
			throttle.Leave(time.Now(), slow)
		}
		lower(t, &throttle)
		for range 2 {
			enter(t, &throttle)
		}
		begun := time.Now()
		waited, err := throttle.Enter(t.Context().Done(), time.Minute)
		require.True(t, waited)
		require.ErrorIs(t, err, inflight.ErrBehind)
		require.Equal(t, time.Minute, time.Since(begun))

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = throttle.Enter(ctx.Done(), time.Minute)
		require.ErrorIs(t, err, inflight.ErrBehind)
		require.Equal(t, time.Minute+time.Second, time.Since(begun), "waits for a client that has gone")

		// Each answer in time makes room for one more: three, and so on.
		throttle.Leave(time.Now(), slow)
		enter(t, &throttle)
		enter(t, &throttle)
		_, err = throttle.Enter(t.Context().Done(), time.Second)
		require.ErrorIs(t, err, inflight.ErrBehind)

		// After many of them there is no bound.
		for range 5000 {
			throttle.Leave(time.Now(), slow)
			enter(t, &throttle)
		}
		for range 5000 {
			enter(t, &throttle)
		}
	})
}

// Who comes last is called first, or who comes first if the throttle is fair, and everybody who is called may go.
func TestThrottleOrder(t *testing.T) {
	t.Parallel()
	for fair, want := range map[bool][]int{false: {2, 1, 0}, true: {0, 1, 2}} {
		t.Run(fmt.Sprint("fair ", fair), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				throttle := inflight.Throttle{Fair: fair}
				lower(t, &throttle)
				for range 2 {
					enter(t, &throttle)
				}
				var order []int
				var mu sync.Mutex
				for n := range 3 {
					go func() {
						waited, err := throttle.Enter(t.Context().Done(), time.Hour)
						if !waited || err != nil {
							t.Error(waited, err)
						}
						mu.Lock()
						order = append(order, n)
						mu.Unlock()
						time.Sleep(slow)
						throttle.Leave(time.Now().Add(-slow), slow)
					}()
					synctest.Wait()
				}
				throttle.Leave(time.Now().Add(-slow), slow)
				time.Sleep(time.Minute)
				mu.Lock()
				defer mu.Unlock()
				require.Equal(t, want, order)
			})
		})
	}
}

// room returns how many calls more may be made now, and ends them.
func room(t *testing.T, throttle *inflight.Throttle) (n int) {
	t.Helper()
	for ; n < 100; n++ {
		if _, err := throttle.Enter(nil, 0); err != nil {
			break
		}
	}
	for range n {
		defer throttle.Leave(time.Now(), slow)
	}
	return n
}

// A slow answer halves the bound, and those that come right after it do not count: they were under way with it.
func TestThrottleHalves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var throttle inflight.Throttle
		for range 40 {
			enter(t, &throttle)
		}
		made := time.Now()
		for range 2 { // halves 40, and a second later 20
			time.Sleep(slow)
			for range 20 {
				throttle.Leave(made, slow)
			}
		}
		require.Equal(t, 10, room(t, &throttle), "and the ten answers raise it to 20")
		lower(t, &throttle)
		require.Equal(t, 2, room(t, &throttle), "one call was under way")
	})
}

// The calls that can wait are made fewer before the others are.
func TestThrottleLowersTheRestFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var claims inflight.Throttle
		upkeep := inflight.Throttle{Rest: &claims}
		for range 8 {
			enter(t, &claims)
		}
		for range 2 { // 4, 2
			lower(t, &upkeep)
			require.Equal(t, 100, room(t, &upkeep))
		}
		for range 8 {
			claims.Leave(time.Now().Add(-slow), slow)
		}
		require.Equal(t, 2, room(t, &claims))
		lower(t, &upkeep) // claims have been answered since
		lower(t, &upkeep)
		require.Equal(t, 2, room(t, &upkeep))
	})
}

// However calls come and go, no more are made at a time than the bound, none is forgotten, and in the end
// all places are free.
func TestThrottleLosesNoPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var throttle inflight.Throttle
		lower(t, &throttle)
		var inside, most, made, refused atomic.Int64
		var callers sync.WaitGroup
		for n := range 200 {
			callers.Go(func() {
				for round := range 50 {
					time.Sleep(time.Duration(n*round%37) * time.Millisecond)
					_, err := throttle.Enter(t.Context().Done(), time.Duration(1+(n+round)%5)*time.Second/2)
					if errors.Is(err, inflight.ErrBehind) {
						refused.Add(1)
						continue
					}
					most.Store(max(most.Load(), inside.Add(1)))
					time.Sleep(slow) // keeps the bound where it is
					inside.Add(-1)
					throttle.Leave(time.Now().Add(-slow), slow)
					made.Add(1)
				}
			})
		}
		callers.Wait()
		require.EqualValues(t, 2, most.Load())
		require.EqualValues(t, 200*50, made.Load()+refused.Load())
		require.Greater(t, made.Load(), int64(100))
		for range 2 {
			enter(t, &throttle)
		}
		_, err := throttle.Enter(t.Context().Done(), 0)
		require.ErrorIs(t, err, inflight.ErrBehind)
	})
}
