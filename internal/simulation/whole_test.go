package simulation

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/adapter"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/race"
	"example.com/idempotency/store"
)

// A wholeStore is the connection of a process to a store whose claims are part of the transactions that runs join. Such
// a claim ends with its transaction, and somebody waits for that.
type wholeStore struct {
	guardtest.FaultStore
	db *wholeDB
}

type wholeDB struct {
	connections [2]*wholeStore
	waiting     func() // whoever waits for the key
	rows        int

	mu     sync.Mutex
	claims map[store.Owner]bool // that end with their transactions
}

func (*wholeStore) JoinsTransactions() {}

func (s *wholeStore) Claim(ctx context.Context, key string, c store.Claim) (rec store.Record, err error) {
	err = s.Call(ctx, "claim", func(behind idempotency.Store) error {
		rec, err = behind.Claim(context.WithoutCancel(ctx), key, c)
		if rec.MayBeLost = rec.Mine && rec.Attempt == 1 && c.MayBeLost; rec.MayBeLost {
			s.db.set(c.Owner, true)
		}
		return err
	})
	return rec, err
}

func (db *wholeDB) set(o store.Owner, ends bool) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.claims[o] = ends
}

func (db *wholeDB) ends(o store.Owner) bool {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.claims[o]
}

// forget leaves nothing of the key, of which there is only one.
func (db *wholeDB) forget() {
	empty := idempotency.NewMemoryStore()
	for _, s := range db.connections {
		s.Replace(empty)
	}
}

// A wholeTx is a transaction of a run, and perhaps its claim.
type wholeTx struct {
	*wholeStore
	key   string
	owner store.Owner
	state store.TxState
}

func (x *wholeTx) State() store.TxState { return x.state }
func (x *wholeTx) MaySaveStep() error   { return nil }

func (x *wholeTx) Complete(ctx context.Context, c store.Completion) error {
	return x.Call(ctx, "commit", func(behind idempotency.Store) error {
		err := behind.Complete(context.WithoutCancel(ctx), x.key, x.owner, c)
		if err == nil && x.state == store.TxReady {
			x.db.rows++
		}
		x.db.set(x.owner, false)
		return err
	})
}

// Rollback implements [store.Transaction]. If it fails, the database does the same by itself.
func (x *wholeTx) Rollback(ctx context.Context) error {
	err := x.Call(ctx, "undo", func(idempotency.Store) error { return nil })
	if x.db.ends(x.owner) {
		x.db.forget()
	}
	x.db.waiting()
	return err
}

// KeepClaim implements [store.ClaimTransaction].
func (x *wholeTx) KeepClaim(context.Context) { x.db.set(x.owner, false) }

// A wholeWorld is a run with a transaction, which may have another effect, and ends in some way, while a second client
// waits for the key with the same request. The nth call of a kind has a fault.
type wholeWorld struct {
	recovery idempotency.Recovery
	state    store.TxState
	joins    bool
	status   int // 0 is a panic
	outside  bool
	op       string
	fault    guardtest.Fault
}

func TestClaimThatEndsWithItsTransaction(t *testing.T) {
	t.Parallel()
	type end struct {
		state store.TxState
		joins bool
	}
	for _, recovery := range []idempotency.Recovery{idempotency.Rerun, idempotency.Hold, idempotency.HoldAfter(2)} {
		t.Run(fmt.Sprint(recovery), func(t *testing.T) {
			n := 0
			for _, end := range []end{{}, {store.TxOpen, true}, {store.TxReady, true}, {store.TxGivenUp, true}} {
				for _, status := range []int{201, 402, 409, 429, 500, 503, 0} {
					for _, outside := range []bool{false, true} {
						for _, op := range []string{"", "claim", "renew", "commit", "undo", "complete", "release", "hold"} {
							for _, fault := range []guardtest.Fault{guardtest.Refuse, guardtest.LoseReply, guardtest.Hang} {
								if n++; race.Enabled && n%11 > 0 {
									continue
								}
								w := wholeWorld{recovery, end.state, end.joins, status, outside, op, fault}
								synctest.Test(t, w.play)
							}
						}
					}
				}
			}
		})
	}
}

func (w wholeWorld) play(t *testing.T) {
	db := &wholeDB{claims: map[store.Owner]bool{}}
	for i := range db.connections {
		db.connections[i] = &wholeStore{db: db}
	}
	db.forget()
	var events guardtest.Events
	var runs []int // the attempts after the first run
	first := true
	serve := func(st *wholeStore) *guardtest.Server {
		guard := guardtest.NewGuard(t, st, idempotency.WithRecovery(w.recovery), idempotency.WithTransaction(true), idempotency.WithObserver(events.Observe))
		guarded := guard.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			op := guardtest.Op(r.Context())
			begin := func(state store.TxState) {
				require.NoError(t, adapter.Join(r.Context(), op, st, func(key string, o store.Owner) (store.Transaction, error) {
					return &wholeTx{st, key, o, state}, nil
				}))
			}
			if !first {
				runs = append(runs, op.Attempt())
				begin(store.TxReady)
				rw.WriteHeader(http.StatusCreated)
				return
			}
			first = false
			if w.joins {
				begin(w.state)
			}
			if w.outside {
				op.SetOutcome(idempotency.Unknown)
			}
			if w.status == 0 {
				panic(http.ErrAbortHandler)
			}
			rw.Header().Set("Retry-After", "1")
			rw.WriteHeader(w.status)
		}))
		return guardtest.ServeRecorder(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			defer func() { _ = recover() }()
			guarded.ServeHTTP(rw, r)
		}))
	}
	faulty, healthy := db.connections[0], db.connections[1]
	if w.op != "" {
		faulty.On(w.op, guardtest.First(1, w.fault))
	}
	own, others := serve(faulty), serve(healthy)
	call := guardtest.Call{Key: "k"}
	db.waiting = func() {
		if !first {
			others.Do(t, call)
		}
	}
	var last guardtest.Reply
	for range 6 {
		last = own.Do(t, call)
		time.Sleep(20 * time.Second) // longer than a lease takes to lapse, in a few rounds
	}
	w.check(t, db.rows, runs, last)
	if w.op == "" {
		require.Zero(t, events.Count(event.LeaseLost)+events.Count(event.Overtaken), "%+v: nothing was lost", w)
	}
}

// check compares what has happened with what the first run has done.
func (w *wholeWorld) check(t *testing.T, rows int, runs []int, last guardtest.Reply) {
	t.Helper()
	require.LessOrEqual(t, rows, 1, "%+v", *w)
	if w.outside {
		for _, attempt := range runs {
			require.Greater(t, attempt, 1, "%+v: a run that does not know of the effect", *w)
			require.NotEqual(t, idempotency.Hold, w.recovery, "%+v: a second effect", *w)
		}
		return
	}
	definite := last.Status == http.StatusCreated || last.Status == http.StatusPaymentRequired
	undone := w.joins && w.state != store.TxGivenUp // whatever became of it
	require.True(t, definite || !undone || w.recovery > 0, "%+v: the last answer is %d %s", *w, last.Status, last.Problem.Code)
	if undone && w.state == store.TxReady && w.status == http.StatusCreated {
		require.Equal(t, 1, rows, "%+v", *w)
	}
}
