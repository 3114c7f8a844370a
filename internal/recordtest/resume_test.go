package recordtest

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/store"
)

// What the three decisions about a held key do, for each shape of handler.

// A shop charges a card, wires money and books both. Each of its runs fails until it is repaired.
type shop struct {
	charge, wire, book             bool // which steps it has
	charges, wires, bookings, runs atomic.Int64
	declined                       bool
	refused                        bool // the wire has surely not happened
	repaired                       atomic.Bool
}

func (h *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.runs.Add(1)
	step := func(has bool, name string, n *atomic.Int64, fail error, opts ...idempotency.TaskOption) error {
		if !has {
			return nil
		}
		_, err := idempotency.Step(r.Context(), name, func(context.Context) (int64, error) {
			if fail != nil {
				return 0, fail
			}
			return n.Add(1), nil
		}, opts...)
		return err
	}
	var declined, silent, failed error
	if h.declined {
		declined = idempotency.Permanent(errors.New("declined"))
	}
	if !h.repaired.Load() {
		failed = errors.New("no answer")
		if silent = failed; h.refused {
			silent = idempotency.NotDone(failed)
		}
	}
	err := step(h.charge, "charge", &h.charges, declined)
	if err == nil || h.declined {
		err = step(h.wire, "wire", &h.wires, silent, idempotency.AtMostOnce())
	}
	if err == nil {
		err = step(h.book, "book", &h.bookings, failed)
	}
	if err != nil || !h.repaired.Load() {
		http.Error(w, "failed", http.StatusBadGateway)
		return
	}
	w.WriteHeader(http.StatusCreated)
}

func TestDecisionsByShapeOfHandler(t *testing.T) {
	var (
		final      = idempotency.Resolution{Outcome: idempotency.Final, Status: http.StatusOK, Body: []byte("by hand")}
		nothing    = idempotency.Resolution{Outcome: idempotency.NotExecuted}
		resume     = idempotency.Resolution{Outcome: idempotency.Resume}
		notWired   = idempotency.Resolution{Outcome: idempotency.Resume, NotDone: []string{"wire", "a step of another route"}}
		notCharged = idempotency.Resolution{Outcome: idempotency.Resume, NotDone: []string{"charge", "wire"}}
		recorded   = idempotency.ErrStepsRecorded
		uncertain  = idempotency.ErrUncertain
	)
	type errs struct{ nothing, resume, notWired, notCharged error } // Final is always taken
	for name, c := range map[string]struct {
		shop           func() *shop
		steps, inDoubt []string
		want           errs
	}{
		"one effect":         {func() *shop { return &shop{} }, nil, nil, errs{}},
		"a step that failed": {func() *shop { return &shop{book: true} }, nil, nil, errs{}},
		"a step that was recorded": {
			func() *shop { return &shop{charge: true, book: true} },
			[]string{"charge"},
			nil,
			errs{nothing: recorded, notCharged: recorded},
		},
		"a refusal that was recorded": {
			func() *shop { return &shop{charge: true, declined: true} },
			[]string{"charge"},
			nil,
			errs{nothing: recorded, notCharged: recorded},
		},
		"a step in doubt":            {func() *shop { return &shop{wire: true} }, nil, []string{"wire"}, errs{resume: uncertain}},
		"a step that did not happen": {func() *shop { return &shop{wire: true, refused: true} }, nil, nil, errs{}},
		"both": {
			func() *shop { return &shop{charge: true, wire: true, book: true} },
			[]string{"charge"},
			[]string{"wire"},
			errs{nothing: recorded, resume: uncertain, notCharged: recorded},
		},
	} {
		for decision, d := range map[string]struct {
			res  idempotency.Resolution
			want error
		}{
			"final": {final, nil}, "nothing": {nothing, c.want.nothing}, "resume": {resume, c.want.resume},
			"not wired": {notWired, c.want.notWired}, "not charged": {notCharged, c.want.notCharged},
		} {
			for storeName, open := range guardtest.SharedStores {
				t.Run(name+"/"+decision+"/"+storeName, func(t *testing.T) {
					h, events := c.shop(), &guardtest.Events{}
					g := guardtest.NewGuard(t, open(t), idempotency.WithRecovery(idempotency.Hold), idempotency.WithObserver(events.Observe))
					s := guardtest.ServeRecorder(t, g.Handler(h))
					require.Equal(t, http.StatusBadGateway, s.Do(t, guardtest.Call{Key: "k"}).Status)
					info := guardtest.Lookup(t, g, guardtest.HeldKey)
					require.Equal(t, c.steps, info.Steps)
					require.Equal(t, c.inDoubt, info.InDoubt)

					stale := guardtest.HeldBy(store.Owner{1}, 1)
					require.ErrorIs(t, g.Resolve(t.Context(), guardtest.HeldKey, stale, d.res), idempotency.ErrChanged)
					err := g.Resolve(t.Context(), guardtest.HeldKey, info.Seen(), d.res)
					require.ErrorIs(t, err, d.want)
					if d.want != nil {
						require.Zero(t, events.Count(event.Resolved))
						require.Equal(t, store.Held, guardtest.Seen(t, g).State)
						return
					}
					require.NoError(t, g.Resolve(t.Context(), guardtest.HeldKey, info.Seen(), d.res), "a repeated call")
					e := events.All()[events.Count(event.Run)+events.Count(event.Held)+events.Count(event.Step)]
					require.Equal(t, event.Resolved, e.Kind)
					require.Equal(t, d.res.Outcome, e.Outcome)
					require.Equal(t, c.steps, e.Steps)
					require.Equal(t, c.inDoubt, e.InDoubt)
					h.requireGoesOn(t, s, d.res.Outcome)
				})
			}
		}
	}
}

// requireGoesOn requires what the next requests get: the answer that was given, or that of one more run,
// which repeats no recorded step and makes all others.
func (h *shop) requireGoesOn(t *testing.T, s *guardtest.Server, decided idempotency.Outcome) {
	t.Helper()
	h.repaired.Store(true)
	got := s.Do(t, guardtest.Call{Key: "k"})
	if decided == idempotency.Final {
		require.True(t, got.Replayed())
		require.Equal(t, "by hand", got.Body)
		require.EqualValues(t, 1, h.runs.Load())
		require.Zero(t, h.bookings.Load(), "nobody makes up for what the run has left out")
		return
	}
	require.False(t, got.Replayed())
	require.Equal(t, http.StatusCreated, got.Status)
	require.True(t, s.Do(t, guardtest.Call{Key: "k"}).Replayed())
	require.EqualValues(t, 2, h.runs.Load())
	times := map[bool]int64{true: 1}
	require.Equal(t, times[h.charge && !h.declined], h.charges.Load())
	require.Equal(t, times[h.wire], h.wires.Load())
	require.Equal(t, times[h.book], h.bookings.Load())
}

// The client of a key that was decided after days comes later than the TTL, which was for its retries. What has
// happened is not forgotten.
func TestResumedKeyWaitsForItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, opts := range map[string][]idempotency.Option{
			"Hold":      {idempotency.WithRecovery(idempotency.Hold)},
			"HoldAfter": {idempotency.WithRecovery(idempotency.HoldAfter(1))},
			"a longer TTL": {
				idempotency.WithRecovery(idempotency.Hold), idempotency.WithTTL(60 * 24 * time.Hour),
			},
		} {
			h := &shop{charge: true, book: true}
			g := guardtest.NewGuard(t, idempotency.NewMemoryStore(), opts...)
			s := guardtest.ServeRecorder(t, g.Handler(h))
			require.Equal(t, http.StatusBadGateway, s.Do(t, guardtest.Call{Key: "k"}).Status, name)
			time.Sleep(5 * 24 * time.Hour)
			require.NoError(t, g.Resolve(t.Context(), guardtest.HeldKey, guardtest.Seen(t, g), idempotency.Resolution{Outcome: idempotency.Resume}))
			time.Sleep(29 * 24 * time.Hour)
			if name == "a longer TTL" {
				time.Sleep(30 * 24 * time.Hour)
			}
			h.requireGoesOn(t, s, idempotency.Resume)
		}
	})
}

// Resume is a decision about a run, and not one of the run: it does not set a key free that is to be held.
func TestNoRunIsResumedByItself(t *testing.T) {
	for name, opt := range map[string]idempotency.Option{
		"by SetOutcome":  idempotency.WithOutcome(idempotency.DefaultOutcome),
		"by WithOutcome": idempotency.WithOutcome(func(int, http.Header) idempotency.Outcome { return idempotency.Resume }),
	} {
		g := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithRecovery(idempotency.Hold), opt)
		s := guardtest.ServeRecorder(t, g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			guardtest.Op(r.Context()).SetOutcome(idempotency.Resume)
			w.WriteHeader(http.StatusBadGateway)
		})))
		require.Equal(t, http.StatusBadGateway, s.Do(t, guardtest.Call{Key: "k"}).Status, name)
		require.Equal(t, store.Held, guardtest.Seen(t, g).State)
	}
}

// A run in flight has recorded a step. Whoever decides about it hears that it is not held, and not what its steps
// say.
func TestNothingIsDecidedAboutARunInFlight(t *testing.T) {
	var g *idempotency.Guard
	h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
		_, err := idempotency.Step(r.Context(), "charge", func(context.Context) (int, error) { return 1, nil })
		if err != nil {
			t.Error(err)
		}
		for _, outcome := range []idempotency.Outcome{idempotency.Final, idempotency.NotExecuted, idempotency.Resume} {
			err := g.Resolve(r.Context(), guardtest.HeldKey, guardtest.Seen(t, g), idempotency.Resolution{Outcome: outcome})
			if !errors.Is(err, idempotency.ErrChanged) {
				t.Errorf("%v: %v", outcome, err)
			}
		}
		w.WriteHeader(http.StatusCreated)
	}}
	g = guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithRecovery(idempotency.Hold))
	s := guardtest.ServeRecorder(t, g.Handler(h))
	require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
	require.True(t, s.Do(t, guardtest.Call{Key: "k"}).Replayed())
}
