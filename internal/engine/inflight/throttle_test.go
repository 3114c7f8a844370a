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

// lower lets slow answers come, as many as it takes to look at them and to lower the bound.
func lower(t *testing.T, throttle *inflight.Throttle) {
	t.Helper()
	quick(throttle)
	for range 2 {
		made := enter(t, throttle)
		time.Sleep(slow) // of the bubble
		throttle.Leave(made, slow, true)
	}
}

// quick lets an answer come as soon as it can.
func quick(throttle *inflight.Throttle) {
	throttle.Pass()
	throttle.Leave(time.Now(), slow, true)
}

func TestThrottleBoundsAfterASlowAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var throttle inflight.Throttle
		for range 100 {
			enter(t, &throttle)
		}
		for range 100 {
			throttle.Leave(time.Now(), slow, true)
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
		throttle.Leave(time.Now(), slow, true)
		enter(t, &throttle)
		enter(t, &throttle)
		_, err = throttle.Enter(t.Context().Done(), time.Second)
		require.ErrorIs(t, err, inflight.ErrBehind)

		// After many of them there is no bound.
		for range 5000 {
			throttle.Leave(time.Now(), slow, true)
			enter(t, &throttle)
		}
		for range 5000 {
			enter(t, &throttle)
		}
	})
}

// Who comes last is called first, or who comes first if the throttle is fair, and everybody who is called may go.
func TestThrottleOrder(t *testing.T) {
	for fair, want := range map[bool][]int{false: {2, 1, 0}, true: {0, 1, 2}} {
		t.Run(fmt.Sprint("fair ", fair), func(t *testing.T) {
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
						throttle.Leave(time.Now().Add(-slow), slow, true)
					}()
					synctest.Wait()
				}
				throttle.Leave(time.Now().Add(-slow), slow, true)
				time.Sleep(time.Minute)
				mu.Lock()
				defer mu.Unlock()
				require.Equal(t, want, order)
			})
		})
	}
}

// answer lets answers come, quick and slow ones, and such as never come, while some calls are under way.
func answer(throttle *inflight.Throttle, soon, slowly, never int) {
	time.Sleep(slow) // of the bubble
	for range soon {
		quick(throttle)
	}
	for n := range slowly + never {
		throttle.Pass()
		made := time.Now().Add(-slow)
		if n >= slowly {
			made = made.Add(-slow)
		}
		throttle.Leave(made, slow, n < slowly)
	}
}

// The bound is halved if more answers are slow than not, or if there is none in time, and once in a while.
func TestThrottleHalves(t *testing.T) {
	for name, tt := range map[string]struct{ quick, slow, never, want int }{
		"all are slow":              {0, 30, 0, 21},
		"more are slow":             {9, 10, 0, 21},
		"some are slow":             {10, 10, 0, 100},
		"none is there":             {0, 0, 30, 21},
		"some are never there":      {1, 0, 30, 100},
		"some are slow, some never": {2, 2, 30, 100},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var throttle inflight.Throttle
				quick(&throttle)
				for range 40 {
					enter(t, &throttle)
				}
				answer(&throttle, tt.quick, tt.slow, tt.never) // begins to look
				answer(&throttle, tt.quick, tt.slow, tt.never)
				for range 40 {
					throttle.Leave(time.Now().Add(-slow), slow, true)
				}
				require.InDelta(t, tt.want, room(t, &throttle), 1)
			})
		})
	}
}

// A server far away is not behind, as long as it does not take longer than it usually does. What is usual is what
// the quickest answers of the last minutes were.
func TestThrottleKnowsWhatIsUsual(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var throttle inflight.Throttle
		for range 120 {
			answer(&throttle, 0, 10, 5)
		}
		require.Equal(t, 100, room(t, &throttle))
		answer(&throttle, 1, 0, 0)
		for range 60 {
			answer(&throttle, 0, 10, 5)
		}
		require.Equal(t, 2, room(t, &throttle))
	})
}

// What happened long ago is not what happens now.
func TestThrottleForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var throttle inflight.Throttle
		quick(&throttle)
		answer(&throttle, 0, 1, 0)
		time.Sleep(10 * slow)
		answer(&throttle, 0, 1, 0)
		require.Equal(t, 100, room(t, &throttle))
	})
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
		defer throttle.Leave(time.Now(), slow, true)
	}
	return n
}

// The calls that can wait are made fewer before the others are.
func TestThrottleLowersTheRestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var claims inflight.Throttle
		upkeep := inflight.Throttle{Rest: &claims}
		quick(&upkeep)
		for range 8 {
			enter(t, &claims)
		}
		behind := func(throttle *inflight.Throttle) bool {
			_, err := throttle.Enter(nil, 0)
			return errors.Is(err, inflight.ErrBehind)
		}
		answer(&upkeep, 0, 1, 0) // begins to look
		require.False(t, behind(&claims))
		for range 2 {
			answer(&upkeep, 0, 1, 0)
			require.True(t, behind(&claims), "four of nine, and two")
			require.False(t, behind(&upkeep))
		}
		answer(&upkeep, 0, 1, 0)
		require.True(t, behind(&upkeep))
	})
}

// However calls come and go, no more are made at a time than the bound, none is forgotten, and in the end
// all places are free.
func TestThrottleLosesNoPlace(t *testing.T) {
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
					throttle.Leave(time.Now().Add(-slow), slow, true)
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
