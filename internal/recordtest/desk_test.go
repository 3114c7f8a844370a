package recordtest

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/store"
)

// The kit of the tests of Reconcile: a store that fails, a process that reconciles, and a resolver
// that notes what it was asked.

// listed is a store that can be inspected and listed, and that fails where a test says so. Its
// index shows nothing if it is lost.
type listed struct {
	*faultInspector
	lost bool
}

func newListed() *listed {
	s := &listed{faultInspector: &faultInspector{&guardtest.FaultStore{}, idempotency.NewMemoryStore()}}
	s.Behind = s.inspected
	return s
}

func (s *listed) List(ctx context.Context, q store.Query) (page store.Page, err error) {
	err = s.Call(ctx, "list", func(idempotency.Store) error {
		page, err = s.inspected.List(ctx, q)
		return err
	})
	if s.lost && q.Holding {
		page = store.Page{}
	}
	return page, err
}

const payouts = "POST /payouts"

// A desk is a process that reconciles. Its base guard has no label, and a route guard derived from
// it leaves keys held.
type desk struct {
	*idempotency.Guard
	*guardtest.Events
	route *guardtest.Server
	runs  *guardtest.Counter
	end   context.CancelFunc
	done  chan error
}

// newDesk returns a process whose route has the options besides, with every minute a tick. It does
// not reconcile yet.
func newDesk(t *testing.T, st idempotency.Store, opts ...idempotency.Option) *desk {
	t.Helper()
	d := &desk{Events: &guardtest.Events{}, runs: guardtest.FailsFirst()}
	d.Guard = guardtest.NewGuard(t, st, idempotency.WithObserver(d.Observe), idempotency.WithRecovery(idempotency.Hold),
		idempotency.WithSealer(guardtest.NewSealer(t, 1)))
	opts = append([]idempotency.Option{idempotency.WithRoute(payouts), idempotency.WithKeptKeys(true)}, opts...)
	d.route = guardtest.ServeRecorder(t, d.With(opts...).Handler(d.runs))
	return d
}

// reconcile begins, and lets the first tick end.
func (d *desk) reconcile(t *testing.T) *desk {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	d.end, d.done = cancel, make(chan error, 1)
	go func() { d.done <- d.Reconcile(ctx, time.Minute) }()
	synctest.Wait()
	t.Cleanup(cancel)
	return d
}

// ticks lets n more ticks pass.
func ticks(n int) {
	time.Sleep(time.Duration(n) * time.Minute)
	synctest.Wait()
}

func (d *desk) only(kind event.Kind) (events []event.Event) {
	for _, e := range d.All() {
		if e.Kind == kind {
			events = append(events, e)
		}
	}
	return events
}

// A resolverLog is a resolver that notes which keys it was asked about.
type resolverLog struct {
	mu     sync.Mutex
	asked  []idempotency.RecordInfo
	answer func(info idempotency.RecordInfo) (idempotency.Resolution, error)
}

func (r *resolverLog) resolve(_ context.Context, info idempotency.RecordInfo) (idempotency.Resolution, error) {
	r.mu.Lock()
	r.asked = append(r.asked, info)
	r.mu.Unlock()
	return r.answer(info)
}

func (r *resolverLog) keys() (keys []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, info := range r.asked {
		keys = append(keys, info.Key.Value)
	}
	return keys
}

// answering is the option of a resolver that always gives the same.
func answering(r *resolverLog, outcome idempotency.Outcome) idempotency.Option {
	r.answer = func(idempotency.RecordInfo) (idempotency.Resolution, error) {
		res := idempotency.Resolution{Outcome: outcome, Decision: idempotency.Decision{Reason: "the bank says so"}}
		if outcome == idempotency.Final {
			res.Status = http.StatusCreated
		}
		return res, nil
	}
	return idempotency.WithResolver(r.resolve)
}
