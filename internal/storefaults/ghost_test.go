package storefaults

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// Claims whose reply was lost, in an outage that goes on: what the process does meanwhile, and how
// it ends.

// Nothing has run, and so nobody has to wait for a store that is away. But an operator hears which
// keys may be held.
func TestShutdownDoesNotWaitForGhosts(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]guardtest.Fault{"refused": guardtest.Refuse, "hanging": guardtest.Hang} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			guardtest.OnEachRecovery(t, func(t *testing.T, recovery idempotency.Option, unknown guardtest.Fate) {
				synctest.Test(t, func(t *testing.T) {
					const lease = 20 * time.Second
					h := guardtest.Answering(0, "done")
					p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), h, recovery, idempotency.WithLease(lease))
					p.Store.Fail(fault)
					p.Do(t, guardtest.Call{Key: "k"})
					time.Sleep(30 * time.Minute)
					require.Equal(t, idempotency.Stats{GivingBack: 1}, p.Guard.Stats())
					require.Zero(t, p.Events.Count(event.ClaimLeft), "the store may still come back")

					start := time.Now()
					require.NoError(t, p.Guard.Shutdown(context.Background()))
					require.LessOrEqual(t, time.Since(start), lease)
					require.Greater(t, time.Since(start), lease/2, "it has had its time")
					require.Equal(t, 1, p.Events.Count(event.ClaimLeft))
					synctest.Wait()
					require.Zero(t, p.Guard.Stats())
					require.Zero(t, h.Runs.Load())
					for _, e := range p.Events.All() {
						if e.Kind == event.ClaimLeft {
							require.NotEmpty(t, e.Record)
							require.ErrorIs(t, e.Err, idempotency.ErrShutdown)
							require.Equal(t, unknown == guardtest.IsHeld, strings.Contains(e.Err.Error(), "held"))
						}
					}
				})
			})
		})
	}
}

// A store may return what it has read although the call failed in the end. Nobody runs under such a
// claim, and so it is given back like any other ghost.
func TestRecordWithAnErrorMeansNothing(t *testing.T) {
	t.Parallel()
	guardtest.OnEachRecovery(t, func(t *testing.T, recovery idempotency.Option, _ guardtest.Fate) {
		synctest.Test(t, func(t *testing.T) {
			st := &talkativeStore{Store: idempotency.NewMemoryStore(), fails: true}
			h := guardtest.Answering(0, "done")
			s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, st, recovery).Handler(h))
			guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k"}), http.StatusServiceUnavailable, problem.StoreUnavailable)
			synctest.Wait()
			st.fails = false
			require.Equal(t, "done", s.Do(t, guardtest.Call{Key: "k"}).Body)
			require.EqualValues(t, 1, h.Runs.Load())
		})
	})
}

// A talkativeStore returns a record together with an error.
type talkativeStore struct {
	idempotency.Store
	fails bool
}

func (s *talkativeStore) Claim(ctx context.Context, key string, c store.Claim) (store.Record, error) {
	rec, err := s.Store.Claim(ctx, key, c)
	if s.fails {
		err = guardtest.ErrDown
	}
	return rec, err
}

func TestShutdownReportsGhostsAtItsDeadline(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]guardtest.Fault{"refused": guardtest.Refuse, "hanging": guardtest.Hang} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), guardtest.Answering(0, "done"))
				p.Store.Fail(fault)
				p.Do(t, guardtest.Call{Key: "k"})
				require.NoError(t, p.Guard.Shutdown(guardtest.Shortly(t)), "nothing has run that is not recorded")
				require.Equal(t, 1, p.Events.Count(event.ClaimLeft), "the process may end now")
				time.Sleep(time.Minute)
				synctest.Wait()
				require.Equal(t, 1, p.Events.Count(event.ClaimLeft))
				require.Zero(t, p.Guard.Stats())
			})
		})
	}
}

// A run that is left is an error, whatever else is left. A claim whose reply is lost after the deadline
// is left, too.
func TestShutdownThatLeavesARunAndItsGhosts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), &guardtest.Counter{Handler: func(http.ResponseWriter, *http.Request, int64) {
			time.Sleep(time.Hour)
		}})
		run := p.Start(t, guardtest.Call{Key: "run"})
		synctest.Wait()
		p.Store.On("claim", guardtest.Always(guardtest.Late(time.Minute)))
		late := p.Start(t, guardtest.Call{Key: "late"})
		synctest.Wait()
		require.ErrorIs(t, p.Guard.Shutdown(guardtest.Shortly(t)), context.DeadlineExceeded)
		<-late
		synctest.Wait()
		require.Equal(t, 1, p.Events.Count(event.ClaimLeft))
		require.Zero(t, p.Guard.Stats().GivingBack)
		<-run
	})
}

// While the store is away, many ghosts ask it seldom. When any request has found it back, they
// are gone soon, one after another.
func TestGhostsOfALongOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const ghosts = 50
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), guardtest.Answering(0, "done"))
		p.Store.On("claim", guardtest.Always(guardtest.LoseReply))
		p.Store.On("release", guardtest.Always(guardtest.Refuse))
		for i := range ghosts {
			p.Do(t, guardtest.Call{Key: fmt.Sprint(i)})
		}
		time.Sleep(10*time.Minute + 10*time.Second)
		before := p.Store.Count("release")
		time.Sleep(5 * time.Minute)
		require.InDelta(t, 10*ghosts, p.Store.Count("release")-before, ghosts, "one call every 30 s for each")
		require.Equal(t, idempotency.Stats{GivingBack: ghosts}, p.Guard.Stats())

		time.Sleep(15 * time.Second)
		p.Store.Heal()
		time.Sleep(3 * time.Second)
		p.Do(t, guardtest.Call{Key: "other"})
		synctest.Wait()
		require.Zero(t, p.Guard.Stats())
		require.Zero(t, p.Events.Count(event.ClaimLeft))
		p.RequireQuiet(t)
	})
}
