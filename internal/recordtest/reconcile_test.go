package recordtest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/race"
	"example.com/idempotency/store"
)

// What becomes of held keys for which no client comes back.

// A process dies, and no client comes back. What it has left is reported when its lease has ended.
func TestReconcileReportsWhatADeadProcessHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := idempotency.NewMemoryStore()
		const record = "pabwdD-b40jYvm3_gRmUvjEiF06BVBZkFR9utCWVMVo"
		owner := store.Owner{1}
		_, err := st.Claim(t.Context(), record, store.Claim{
			Owner: owner, Hold: true, Lease: 90 * time.Second, Retention: time.Hour, HoldEnds: true, Label: payouts,
		})
		require.NoError(t, err)
		require.NoError(t, st.SaveStep(t.Context(), record, owner, "book", []byte("v1")))

		d := newDesk(t, st, idempotency.WithSealer(nil), idempotency.WithKeptKeys(false)).reconcile(t)
		other := newDesk(t, st, idempotency.WithRoute("another")).reconcile(t)
		ticks(1)
		require.Empty(t, d.All(), "its lease has not ended")
		ticks(1)
		for _, desk := range []*desk{d, other} {
			require.Len(t, desk.All(), 2, "each process reports it")
			held := desk.only(event.Held)[0]
			require.Equal(t, record, held.Record)
			require.Equal(t, payouts, held.Route)
			require.Equal(t, 1, held.Attempt)
			require.Equal(t, 2*time.Minute, held.Age)
			if desk == other { // whose guard has a sealer, and knows no other one of the route
				require.Equal(t, []string{"book"}, held.InDoubt)
			} else {
				require.Equal(t, []string{"book"}, held.Steps)
			}
			require.Equal(t, event.CauseFound, held.Cause)
			require.True(t, held.Held)
			ending := desk.only(event.HoldEnding)[0]
			require.Equal(t, record, ending.Record)
			require.Equal(t, 58*time.Minute, ending.Duration)
		}
		ticks(30)
		require.Len(t, d.All(), 2, "once")
		require.Equal(t, 1, d.Count(event.Held))
	})
}

// The resolver is asked about the client's own key, and the client meets the settled one.
func TestReconcileAsksTheResolverOfTheRoute(t *testing.T) {
	for outcome, fate := range map[idempotency.Outcome]guardtest.Fate{
		idempotency.Final: guardtest.Replays, idempotency.NotExecuted: guardtest.RunsNext, idempotency.Resume: guardtest.RunsNext,
		idempotency.Unknown: guardtest.IsHeld,
	} {
		guardtest.Bubble(t, outcome.String(), func(t *testing.T) {
			r, none := &resolverLog{}, &resolverLog{}
			d := newDesk(t, idempotency.NewMemoryStore(), answering(r, outcome))
			d.With(idempotency.WithRoute("POST /refunds"), answering(none, idempotency.Final))
			plain := guardtest.ServeRecorder(t, d.With(idempotency.WithRoute(payouts)).Handler(d.runs))
			require.Equal(t, http.StatusInternalServerError, d.route.Do(t, guardtest.Call{Key: "k"}).Status)
			d.reconcile(t)
			require.Equal(t, []string{"k"}, r.keys())
			info := r.asked[0]
			require.Equal(t, guardtest.HeldKey, info.Key)
			require.Equal(t, store.Held, info.State)
			require.Equal(t, payouts, info.Route)
			require.Len(t, info.DeriveKey("wire"), 32)
			guardtest.RequireFate(t, plain, d.runs, guardtest.Call{Key: "k"}, fate)
			ticks(2)
			require.Empty(t, none.keys())
			require.Equal(t, 1, d.Count(event.Held))
			if outcome == idempotency.Unknown {
				require.Len(t, r.keys(), 3, "once in each tick")
				return
			}
			require.Len(t, r.keys(), 1)
			resolved := d.only(event.Resolved)[0]
			require.Equal(t, outcome, resolved.Outcome)
			require.Equal(t, "resolver", resolved.Actor)
			require.Equal(t, "the bank says so", resolved.Reason)
			require.Equal(t, "acme", resolved.Scope)
			require.Equal(t, info.ID, resolved.OperationID)
			require.Zero(t, d.Count(event.StoreError))
		})
	}
}

// Nobody is asked about a key that is not known, and no resolver about the keys of another route.
func TestReconcileOnlyReportsWhatNoResolverCanBeAskedAbout(t *testing.T) {
	for name, opts := range map[string][]idempotency.Option{
		"no label":         {idempotency.WithRoute("")},
		"another label":    {idempotency.WithRoute("POST /refunds")},
		"key not kept":     {idempotency.WithKeptKeys(false)},
		"nothing is known": {idempotency.WithRoute(""), idempotency.WithKeptKeys(false)},
	} {
		guardtest.Bubble(t, name, func(t *testing.T) {
			st := idempotency.NewMemoryStore()
			other := newDesk(t, st, opts...)
			require.Equal(t, http.StatusInternalServerError, other.route.Do(t, guardtest.Call{Key: "k"}).Status)
			r := &resolverLog{}
			d := newDesk(t, st, answering(r, idempotency.Final)).reconcile(t)
			ticks(1)
			require.Empty(t, r.keys())
			require.Len(t, d.All(), 1)
			require.Equal(t, event.Held, d.All()[0].Kind)
		})
	}
}

// A resolver that fails, or panics, is asked again, and keeps no other key from its turn.
func TestReconcileOutlivesItsResolver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &resolverLog{answer: func(info idempotency.RecordInfo) (idempotency.Resolution, error) {
			switch info.Key.Value {
			case "fails":
				return idempotency.Resolution{}, errors.New("no bank today")
			case "panics":
				panic("no map today")
			}
			return idempotency.Resolution{Outcome: idempotency.Final}, nil
		}}
		d := newDesk(t, idempotency.NewMemoryStore(), idempotency.WithResolver(r.resolve))
		d.runs.Handler = func(w http.ResponseWriter, _ *http.Request, _ int64) { w.WriteHeader(http.StatusBadGateway) }
		for _, key := range []string{"panics", "fails", "k"} {
			require.Equal(t, http.StatusBadGateway, d.route.Do(t, guardtest.Call{Key: key}).Status)
			time.Sleep(time.Second)
		}
		d.reconcile(t)
		require.Equal(t, []string{"panics", "fails", "k"}, r.keys())
		failures := d.only(event.Unresolved)
		require.Len(t, failures, 2)
		require.ErrorContains(t, failures[0].Err, "no map today")
		require.ErrorContains(t, failures[1].Err, "no bank today")
		for _, e := range failures {
			require.Equal(t, "acme", e.Scope)
			require.Equal(t, payouts, e.Route)
		}
		require.True(t, d.route.Do(t, guardtest.Call{Key: "k"}).Replayed())
		ticks(1)
		require.Equal(t, []string{"panics", "fails", "k", "panics", "fails"}, r.keys())
	})
}

// A slow resolver is asked for as long as a tick lasts, and then goes on with the keys that had no
// turn, so that one key that takes long does not keep it from the rest.
func TestReconcileGivesEachKeyItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &resolverLog{answer: func(idempotency.RecordInfo) (idempotency.Resolution, error) {
			time.Sleep(40 * time.Second)
			return idempotency.Resolution{Outcome: idempotency.Unknown}, nil
		}}
		d := newDesk(t, idempotency.NewMemoryStore(), idempotency.WithResolver(r.resolve))
		d.runs.Handler = func(w http.ResponseWriter, _ *http.Request, _ int64) { w.WriteHeader(http.StatusBadGateway) }
		var keys []string
		for n := range 5 {
			keys = append(keys, fmt.Sprint("key-", n))
			d.route.Do(t, guardtest.Call{Key: keys[n]})
			time.Sleep(time.Second)
		}
		d.reconcile(t)
		time.Sleep(5 * 40 * time.Second)
		synctest.Wait()
		require.Equal(t, keys, r.keys()[:5])
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		require.Equal(t, keys, r.keys()[5:10])
		require.Equal(t, 5, d.Count(event.Held), "all were reported at once")
		d.end()
		require.NoError(t, <-d.done)
	})
}

// An outage of the store is reported once, and the next tick goes on.
func TestReconcileWhileTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newListed()
		r := &resolverLog{}
		d := newDesk(t, st, answering(r, idempotency.Final))
		d.route.Do(t, guardtest.Call{Key: "k"})
		for range 2 {
			st.On("list", guardtest.Always(guardtest.Refuse))
			if d.done == nil {
				d.reconcile(t)
			}
			ticks(10)
			st.On("list", guardtest.Always(guardtest.Hang))
			ticks(10)
			st.On("list", nil)
			ticks(1)
		}
		outages := d.only(event.StoreError)
		require.Len(t, outages, 2)
		require.Equal(t, "list", outages[0].Op)
		require.ErrorIs(t, outages[0].Err, guardtest.ErrDown)
		require.Equal(t, []string{"k"}, r.keys())
		require.True(t, d.route.Do(t, guardtest.Call{Key: "k"}).Replayed())
	})
}

// Processes that reconcile at once settle a key once, and nobody hears of those that were late.
func TestReconcileInSeveralProcesses(t *testing.T) {
	guardtest.OnEachSharedStore(t, func(t *testing.T, st idempotency.Store) {
		const n, keys = 4, 20
		meet := make(chan struct{})
		var once sync.Once
		var entered sync.WaitGroup
		entered.Add(n)
		var desks []*desk
		for i := range n {
			var first sync.Once
			desks = append(desks, newDesk(t, st, idempotency.WithResolver(func(context.Context, idempotency.RecordInfo) (idempotency.Resolution, error) {
				first.Do(func() { // all have seen the first key held
					entered.Done()
					once.Do(func() { go func() { entered.Wait(); close(meet) }() })
					<-meet
				})
				return idempotency.Resolution{Outcome: idempotency.Final, Status: http.StatusOK + i}, nil // who is first decides
			})))
		}
		fails := guardtest.ServeRecorder(t, desks[0].With(idempotency.WithRoute(payouts), idempotency.WithKeptKeys(true)).Handler(
			http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })))
		for k := range keys {
			fails.Do(t, guardtest.Call{Key: fmt.Sprint("key-", k)})
		}
		ctx, end := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for _, d := range desks {
			all.Go(func() {
				assert.NoError(t, d.Reconcile(ctx, 50*time.Millisecond))
			})
		}
		settled := func() (sum int) {
			for _, d := range desks {
				sum += d.Count(event.Resolved)
			}
			return sum
		}
		require.Eventually(t, func() bool { return settled() >= keys }, time.Minute, 5*time.Millisecond)
		end()
		all.Wait()
		require.Equal(t, keys, settled())
		for _, d := range desks {
			for _, e := range d.only(event.StoreError) {
				require.ErrorIs(t, e.Err, context.Canceled)
			}
		}
	})
}

// A record that the index has lost is found by the walk through all of them.
func TestReconcileFindsWhatTheIndexHasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newListed()
		st.lost = true
		r := &resolverLog{}
		d := newDesk(t, st, answering(r, idempotency.Final)).reconcile(t)
		for n := range 3 {
			key := fmt.Sprint("key-", n)
			d.runs.Runs.Store(0)
			require.Equal(t, http.StatusInternalServerError, d.route.Do(t, guardtest.Call{Key: key}).Status)
			before := st.Count("list")
			ticks(11)
			require.Len(t, r.keys(), n+1)
			require.Less(t, st.Count("list")-before, 11+5, "it is a slow walk")
		}
	})
}

// The servers of the store have changed, and with them what a cursor means.
func TestReconcileBeginsAgainAfterABadCursor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &restless{listed: newListed()}
		r := &resolverLog{}
		d := newDesk(t, st, answering(r, idempotency.Final))
		d.route.Do(t, guardtest.Call{Key: "k"})
		d.reconcile(t)
		ticks(3)
		require.Equal(t, []string{"k"}, r.keys())
		require.Zero(t, d.Count(event.StoreError))
		require.Positive(t, st.bad)
	})
}

// restless is a store whose cursors are good for nothing. Its first page is empty.
type restless struct {
	*listed
	pages, bad int
}

func (s *restless) List(ctx context.Context, q store.Query) (store.Page, error) {
	if q.Cursor != "" {
		s.bad++
		return store.Page{}, store.ErrBadCursor
	}
	if !q.Holding {
		return store.Page{}, nil
	}
	if s.pages++; s.pages%2 == 1 {
		return store.Page{Next: "next"}, nil
	}
	return s.listed.List(ctx, q)
}

// A record that cannot be read is reported, and kept from nobody.
func TestReconcileMeetsACorruptRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newListed()
		d := newDesk(t, st)
		d.route.Do(t, guardtest.Call{Key: "k"})
		other := newDesk(t, st)
		st.On("get", guardtest.Always(guardtest.FailWith(idempotency.ErrCorrupt)))
		other.reconcile(t)
		ticks(3)
		require.Equal(t, []event.Kind{event.Corrupt, event.Held}, other.Kinds())
		require.ErrorIs(t, other.All()[0].Err, idempotency.ErrCorrupt)
		require.Equal(t, other.All()[1].Record, other.All()[0].Record)
	})
}

// Reconcile ends with its context, and with the guard. A shutdown waits for a resolver at work.
func TestReconcileEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, idempotency.NewMemoryStore()).reconcile(t)
		d.end()
		require.NoError(t, <-d.done)

		var resolved bool
		r := &resolverLog{answer: func(idempotency.RecordInfo) (idempotency.Resolution, error) {
			time.Sleep(time.Minute)
			resolved = true
			return idempotency.Resolution{Outcome: idempotency.Final}, nil
		}}
		d = newDesk(t, idempotency.NewMemoryStore(), idempotency.WithResolver(r.resolve))
		for n := range 3 {
			d.runs.Runs.Store(0)
			d.route.Do(t, guardtest.Call{Key: fmt.Sprint("key-", n)})
		}
		d.reconcile(t)
		require.NoError(t, d.Shutdown(t.Context()))
		require.True(t, resolved)
		require.NoError(t, <-d.done)
		require.Len(t, r.keys(), 1, "no further key has its turn")
		require.Empty(t, d.only(event.StoreError), "nor was that tried")
		require.NoError(t, d.Reconcile(t.Context(), time.Minute), "it ends at once")
	})
}

func TestReconcileNeedsALister(t *testing.T) {
	plain := guardtest.NewGuard(t, guardtest.PlainStore{Store: idempotency.NewMemoryStore()})
	require.ErrorIs(t, plain.Reconcile(t.Context(), time.Minute), idempotency.ErrNoLister)
	g := guardtest.NewGuard(t, idempotency.NewMemoryStore())
	for _, every := range []time.Duration{0, -time.Second} {
		require.ErrorContains(t, g.Reconcile(t.Context(), every), "not positive")
	}
}

// An operator forgets the key between the look of a resolver and its decision, or before.
func TestResolverMeetsAForgottenKey(t *testing.T) {
	for _, before := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			st := newListed()
			var d *desk
			forget := func() {
				info := guardtest.Get(t, st.inspected, d.All()[0].Record)
				require.NoError(t, st.inspected.Forget(t.Context(), d.All()[0].Record, info.Seen()))
			}
			d = newDesk(t, st, idempotency.WithResolver(func(context.Context, idempotency.RecordInfo) (idempotency.Resolution, error) {
				forget()
				return idempotency.Resolution{Outcome: idempotency.Final}, nil
			}))
			d.route.Do(t, guardtest.Call{Key: "k"}) // and this process has reported it
			if before {
				st.On("get", func(int) guardtest.Fault { forget(); return nil })
			}
			d.reconcile(t)
			ticks(2)
			require.Zero(t, d.Count(event.StoreError), d.All())
			require.Equal(t, http.StatusCreated, d.route.Do(t, guardtest.Call{Key: "k"}).Status)
		})
	}
}

// After an outage more may be held than a process remembers to have reported. They are not all
// reported again with each tick.
func TestReconcileReportsManyOnce(t *testing.T) {
	race.SkipSequence(t)
	synctest.Test(t, func(t *testing.T) {
		const n = 10_500
		st := idempotency.NewMemoryStore()
		for i, key := range guardtest.MemoryKeys(n) {
			c := guardtest.MemoryClaim(uint64(i))
			c.Hold = true
			guardtest.Claim(t, st, key, c)
		}
		time.Sleep(time.Minute)
		d := newDesk(t, st).reconcile(t)
		require.Equal(t, n, d.Count(event.Held))
		ticks(25)
		require.Equal(t, n, d.Count(event.Held))
	})
}

// A resolver that ends its goroutine ends Reconcile. Somebody hears of it, and a shutdown does not
// wait for it.
func TestReconcileReportsAResolverThatExits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, idempotency.NewMemoryStore(), idempotency.WithResolver(func(context.Context, idempotency.RecordInfo) (idempotency.Resolution, error) {
			runtime.Goexit()
			return idempotency.Resolution{}, nil
		}))
		d.runs.Runs.Store(0)
		d.route.Do(t, guardtest.Call{Key: "k"})
		d.reconcile(t)
		failed := d.only(event.Unresolved)
		require.Len(t, failed, 1)
		require.ErrorContains(t, failed[0].Err, "Goexit")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.NoError(t, d.Shutdown(ctx))
	})
}

// A key is forgotten, and held again as attempt 1. That is another run, and somebody has to look.
func TestReconcileReportsAnotherHoldOfTheSameKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := idempotency.NewMemoryStore()
		other := newDesk(t, st)
		d := newDesk(t, st).reconcile(t)
		for n := range 3 {
			other.runs.Runs.Store(0)
			require.Equal(t, http.StatusInternalServerError, other.route.Do(t, guardtest.Call{Key: "k"}).Status)
			ticks(1)
			require.Equal(t, n+1, d.Count(event.Held))
			require.Equal(t, n+1, other.Count(event.Held), "by the run itself")
			require.NoError(t, d.Forget(t.Context(), guardtest.HeldKey, guardtest.Seen(t, d.Guard), idempotency.Decision{}))
		}
	})
}
