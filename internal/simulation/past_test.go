package simulation

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/race"
	"example.com/idempotency/store"
)

// A pastStore goes back to what it was after some of its calls, as one does that is restored from a copy or whose
// replica takes over, and fails calls on the way.
type pastStore struct {
	*idempotency.MemoryStore
	mu    sync.Mutex
	calls []func(*idempotency.MemoryStore) // that have changed something
	fault func() guardtest.Fault           // of the next call
}

func (p *pastStore) call(ctx context.Context, f func(context.Context, *idempotency.MemoryStore) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	again := context.WithoutCancel(ctx)
	proceed := func() error {
		p.calls = append(p.calls, func(st *idempotency.MemoryStore) { _ = f(again, st) })
		return f(ctx, p.MemoryStore)
	}
	if fault := p.fault(); fault != nil {
		return fault(ctx, proceed)
	}
	return proceed()
}

// goBack is called under the lock.
func (p *pastStore) goBack(n int) {
	p.calls, p.MemoryStore = p.calls[:min(n, len(p.calls))], idempotency.NewMemoryStore()
	for _, again := range p.calls {
		again(p.MemoryStore)
	}
}

func (p *pastStore) Get(ctx context.Context, key string) (store.Record, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.MemoryStore.Get(ctx, key)
}

func (p *pastStore) Claim(ctx context.Context, key string, c store.Claim) (rec store.Record, err error) {
	err = p.call(ctx, func(ctx context.Context, st *idempotency.MemoryStore) (err error) {
		rec, err = st.Claim(ctx, key, c)
		return err
	})
	return rec, err
}

func (p *pastStore) Renew(ctx context.Context, key string, o store.Owner) error {
	return p.call(ctx, func(ctx context.Context, st *idempotency.MemoryStore) error { return st.Renew(ctx, key, o) })
}

func (p *pastStore) SaveStep(ctx context.Context, key string, o store.Owner, name string, value []byte) error {
	return p.call(ctx, func(ctx context.Context, st *idempotency.MemoryStore) error {
		return st.SaveStep(ctx, key, o, name, value)
	})
}

func (p *pastStore) Complete(ctx context.Context, key string, o store.Owner, c store.Completion) error {
	return p.call(ctx, func(ctx context.Context, st *idempotency.MemoryStore) error { return st.Complete(ctx, key, o, c) })
}

func (p *pastStore) Release(ctx context.Context, key string, o store.Owner, r store.Release) error {
	return p.call(ctx, func(ctx context.Context, st *idempotency.MemoryStore) error { return st.Release(ctx, key, o, r) })
}

func (p *pastStore) Hold(ctx context.Context, key string, o store.Owner, note []byte) error {
	return p.call(ctx, func(ctx context.Context, st *idempotency.MemoryStore) error { return st.Hold(ctx, key, o, note) })
}

var errBank = errors.New("the bank does not answer")

// A setback is what happens to the store while a run is settled: it goes back at the nth call from the end of the
// handler on, which has that fault. The 0th is in the handler, before it ends. So many calls later, so many fail.
type setback struct {
	at, to, gap, failing int
	fault                guardtest.Fault
	earlier              bool // the first of two attempts has made the step
}

// A step that must not be repeated is not, whatever the store has forgotten when its run is settled, and whichever call
// fails: while its process lives, the record is told of it, or its key is held.
func TestStepOfARunIsNotRepeatedByAStoreInThePast(t *testing.T) {
	t.Parallel()
	ends := map[string]func(http.ResponseWriter){
		"201":                  func(w http.ResponseWriter) { w.WriteHeader(http.StatusCreated) },
		"402":                  func(w http.ResponseWriter) { w.WriteHeader(http.StatusPaymentRequired) },
		"409 with Retry-After": func(w http.ResponseWriter) { w.Header().Set("Retry-After", "1"); w.WriteHeader(http.StatusConflict) },
		"429":                  func(w http.ResponseWriter) { w.WriteHeader(http.StatusTooManyRequests) },
		"500":                  func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) },
		"panic":                func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
	}
	for _, recovery := range []idempotency.Recovery{idempotency.Rerun, idempotency.Hold, idempotency.HoldAfter(3)} {
		for name, end := range ends {
			t.Run(fmt.Sprint(recovery, ", ", name), func(t *testing.T) {
				for _, result := range []error{nil, errBank} {
					for _, fault := range []guardtest.Fault{guardtest.Refuse, guardtest.LoseReply} {
						for n := range 5 * 7 * 3 * 3 * 3 {
							if race.Enabled && n%53 > 0 || !exhaustive && n%16 > 0 {
								continue
							}
							attempt, earlier := 1, n%3 == 2
							if n%3 > 0 {
								attempt = 2
							}
							s := setback{n / 3 % 5, n / 15 % 7, []int{0, 2, 3}[n/105%3], n / 315, fault, earlier}
							synctest.Test(t, func(t *testing.T) { s.play(t, recovery, attempt, result, end) })
						}
					}
				}
			})
		}
	}
}

// play lets one attempt make the step, with the setback, and its client ask again. An operator lets the key go on if
// it is held, but not where the record is of an earlier run: it does not tell what the later one has done.
func (s *setback) play(t *testing.T, recovery idempotency.Recovery, attempt int, result error, end func(http.ResponseWriter)) {
	var ended, settled atomic.Bool
	calls, attempts := 0, attempt
	st := &pastStore{MemoryStore: idempotency.NewMemoryStore()}
	st.fault = func() guardtest.Fault {
		if !ended.Load() || settled.Load() {
			return nil // what a store forgets of a run that is settled, nobody can know
		}
		calls++
		switch n := calls - s.at; {
		case n == 0:
			return func(ctx context.Context, proceed func() error) error {
				err := s.fault(ctx, proceed)
				st.goBack(s.to)
				return err
			}
		case n > s.gap && n <= s.gap+s.failing:
			return guardtest.Refuse
		}
		return nil
	}
	effects := 0
	guard := guardtest.NewGuard(t, st, idempotency.WithRecovery(recovery))
	guarded := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		op, _ := idempotency.FromContext(r.Context())
		attempt--
		if attempt > 0 && !s.earlier {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		_, err := idempotency.Step(r.Context(), "charge", func(context.Context) (int, error) { effects++; return 1, result }, idempotency.AtMostOnce())
		switch {
		case attempt > 0:
			w.WriteHeader(http.StatusInternalServerError)
			return
		case ended.Load() && err == nil:
			w.WriteHeader(http.StatusCreated)
			return
		case ended.Load():
			op.SetOutcome(idempotency.Unknown)
		default:
			ended.Store(true)
			if s.at == 0 {
				st.mu.Lock()
				st.goBack(s.to)
				st.mu.Unlock()
			}
		}
		end(w)
	}))
	c := guardtest.ServeRecorder(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { _ = recover() }()
		guarded.ServeHTTP(w, r)
	}))
	key := idempotency.Key{Scope: "acme", Value: "k"}
	for range 6 {
		c.Do(t, guardtest.Call{Key: key.Value})
		time.Sleep(20 * time.Second) // a record of runs that did nothing lasts for a minute
		settled.Store(ended.Load())
		if rec, err := guard.Lookup(t.Context(), key); err == nil && rec.State == store.Held && rec.Attempt >= attempts {
			_ = guard.Resolve(t.Context(), key, rec.Seen(), idempotency.Resolution{Outcome: idempotency.Resume})
		}
	}
	require.LessOrEqual(t, effects, 1, "%+v, %v, attempt %d, %v", *s, recovery, attempt, result)
}
