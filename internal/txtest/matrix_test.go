package txtest

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/client"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// This file crosses what handlers do with what happens to the database.

const row = "charge 100"

var errDeclined = errors.New("declined")

// insert is what each run does in its transaction.
func insert(tx *guardtest.Tx) error { return tx.Insert(row) }

// charge is the handler that does everything right.
func charge(s *guardtest.TxStore, w http.ResponseWriter, r *http.Request) {
	if err := s.InTx(r.Context(), insert); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write([]byte(`{"id":1}`))
}

// A way is one of a handler's first run. The next runs charge.
type way struct {
	run    func(s *guardtest.TxStore, w http.ResponseWriter, r *http.Request)
	status int          // that the client of the first run is shown; 0 if the connection is cut
	code   problem.Code // of the refusal that it is shown instead
	rows   int          // that the first run leaves
	final  bool         // the first answer is recorded
}

var ways = map[string]way{
	"commits": {run: charge, status: 201, rows: 1, final: true},
	"commits with a refusal": {run: func(s *guardtest.TxStore, w http.ResponseWriter, r *http.Request) {
		_ = s.InTx(r.Context(), insert)
		w.WriteHeader(http.StatusPaymentRequired)
	}, status: 402, rows: 1, final: true},
	"gives up with a refusal": {run: func(s *guardtest.TxStore, w http.ResponseWriter, r *http.Request) {
		_ = s.InTx(r.Context(), func(tx *guardtest.Tx) error { return errors.Join(insert(tx), errDeclined) })
		w.WriteHeader(http.StatusPaymentRequired)
	}, status: 402, final: true},
	"gives up with a success": {run: func(s *guardtest.TxStore, w http.ResponseWriter, r *http.Request) {
		_ = s.InTx(r.Context(), func(tx *guardtest.Tx) error { return errors.Join(insert(tx), errDeclined) })
		w.WriteHeader(http.StatusAlreadyReported)
	}, status: 208, final: true},
	"gives up, and commits another": {run: func(s *guardtest.TxStore, w http.ResponseWriter, r *http.Request) {
		_ = s.InTx(r.Context(), func(tx *guardtest.Tx) error { return errors.Join(insert(tx), errDeclined) })
		charge(s, w, r)
	}, status: 201, rows: 1, final: true},
	"gives up with an error": {run: func(s *guardtest.TxStore, w http.ResponseWriter, r *http.Request) {
		_ = s.InTx(r.Context(), func(tx *guardtest.Tx) error { return errors.Join(insert(tx), errDeclined) })
		w.WriteHeader(http.StatusBadGateway)
	}, status: 502},
	"commits and fails": {run: func(s *guardtest.TxStore, w http.ResponseWriter, r *http.Request) {
		_ = s.InTx(r.Context(), insert)
		w.WriteHeader(http.StatusInternalServerError)
	}, status: 500},
	"commits and says that it did not": {run: func(s *guardtest.TxStore, w http.ResponseWriter, r *http.Request) {
		guardtest.Op(r.Context()).SetOutcome(idempotency.NotExecuted)
		charge(s, w, r)
	}, status: 503, code: problem.RolledBack},
	"answers less than it declared": {run: func(s *guardtest.TxStore, w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100")
		charge(s, w, r)
	}, status: 503, code: problem.RolledBack},
	"leaves it open": {run: func(s *guardtest.TxStore, w http.ResponseWriter, r *http.Request) {
		tx, err := s.Begin(r.Context())
		if err == nil {
			err = insert(tx)
		}
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}, status: 500, code: problem.CannotCommit},
	"leaves it open with a refusal": {run: func(s *guardtest.TxStore, w http.ResponseWriter, r *http.Request) {
		if tx, err := s.Begin(r.Context()); err == nil {
			_ = insert(tx)
		}
		w.WriteHeader(http.StatusUnprocessableEntity)
	}, status: 422, final: true},
	"commits it alone": {run: func(s *guardtest.TxStore, w http.ResponseWriter, r *http.Request) {
		tx, err := s.Begin(r.Context())
		if err == nil {
			err = errors.Join(insert(tx), tx.CommitAlone())
		}
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}, status: 200, rows: 1, final: true},
	"answers more than the limit": {run: func(s *guardtest.TxStore, w http.ResponseWriter, r *http.Request) {
		_ = s.InTx(r.Context(), insert)
		for range 4 {
			_, _ = w.Write(make([]byte, 1000))
		}
	}, status: 500, code: problem.CannotCommit},
	"flushes": {run: func(s *guardtest.TxStore, w http.ResponseWriter, r *http.Request) {
		_ = s.InTx(r.Context(), insert)
		if err := http.NewResponseController(w).Flush(); !errors.Is(err, http.ErrNotSupported) {
			panic("the flush was not refused")
		}
		w.(http.Flusher).Flush()
		w.WriteHeader(http.StatusCreated)
	}, status: 201, rows: 1, final: true},
	"panics": {run: func(s *guardtest.TxStore, _ http.ResponseWriter, r *http.Request) {
		_ = s.InTx(r.Context(), insert)
		panic(guardtest.Boom)
	}},
	"exits": {run: func(s *guardtest.TxStore, _ http.ResponseWriter, r *http.Request) {
		_ = s.InTx(r.Context(), insert)
		runtime.Goexit()
	}},
}

// A mishap is what happens to the first calls of the database.
type mishap struct {
	op    string
	fault guardtest.Fault
	// undone says that the first commit does not take place; code is what its client is told.
	undone bool
	code   problem.Code
}

var (
	conflict   = &store.RolledBackError{Retry: true, Err: errors.New("could not serialize access")}
	constraint = &store.RolledBackError{Err: errors.New("deferred constraint")}
)

var mishaps = map[string]mishap{
	"none":                            {},
	"commit conflicts":                {op: "commit", fault: guardtest.FailWith(conflict), undone: true, code: problem.RolledBack},
	"commit breaks a constraint":      {op: "commit", fault: guardtest.FailWith(constraint), undone: true, code: problem.CannotCommit},
	"commit finds no owner":           {op: "commit", fault: guardtest.FailWith(store.ErrNotOwner), undone: true, code: problem.RolledBack},
	"commit is lost":                  {op: "commit", fault: guardtest.Refuse, undone: true, code: problem.RolledBack},
	"commit hangs":                    {op: "commit", fault: guardtest.Hang, undone: true, code: problem.RolledBack},
	"commit arrives after a minute":   {op: "commit", fault: guardtest.Late(time.Minute), undone: true, code: problem.RolledBack},
	"commit arrives after the wait":   {op: "commit", fault: guardtest.Late(3 * time.Second), undone: true, code: problem.RolledBack},
	"reply of the commit is lost":     {op: "commit", fault: guardtest.LoseReply},
	"reply of the rollback is lost":   {op: "rollback", fault: guardtest.LoseReply},
	"rollback hangs":                  {op: "rollback", fault: guardtest.Hang},
	"reply of the release is lost":    {op: "release", fault: guardtest.LoseReply},
	"release hangs":                   {op: "release", fault: guardtest.Hang},
	"reply of the completion is lost": {op: "complete", fault: guardtest.LoseReply},
}

// A shop is a server with a database, and a handler whose first run has a way of its own.
type shop struct {
	*guardtest.Server
	store  *guardtest.TxStore
	guard  *idempotency.Guard
	events *guardtest.Events
	runs   *guardtest.Counter
}

func newShop(t *testing.T, first func(s *guardtest.TxStore, w http.ResponseWriter, r *http.Request), opts ...idempotency.Option) *shop {
	t.Helper()
	s := &shop{store: guardtest.NewTxStore(), events: &guardtest.Events{}}
	s.runs = &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, run int64) {
		if run == 1 {
			first(s.store, w, r)
			return
		}
		charge(s.store, w, r)
	}}
	opts = append([]idempotency.Option{
		idempotency.WithTransaction(true), idempotency.WithLease(guardtest.LeaseTime),
		idempotency.WithObserver(s.events.Observe), idempotency.WithLimits(idempotency.Limits{ResponseBody: 2000}),
	}, opts...)
	s.guard = guardtest.NewGuard(t, s.store, opts...)
	s.Server = guardtest.ServeRecorder(t, s.guard.Handler(s.runs))
	return s
}

// requireTruth checks that what a client is told agrees with the rows that are there.
func (s *shop) requireTruth(t *testing.T, got guardtest.Reply, err error) {
	t.Helper()
	rows := len(s.store.Rows())
	require.LessOrEqual(t, rows, 1)
	require.NotEqual(t, problem.OutcomeUnknown, got.Problem.Code)
	switch {
	case err != nil:
		require.ErrorIs(t, err, guardtest.ErrCut)
	case got.Problem.Code == problem.RolledBack, got.Problem.Code == problem.CannotCommit:
		require.Zero(t, rows, "told: undone")
	case got.Status < 300 && got.Status != http.StatusAlreadyReported:
		require.Equal(t, 1, rows, "told: done")
	}
}

// After each way and each mishap, one row is there for the key in the end, and at no time more.
// No client is told that a row is there that is not, or the reverse, and Hold holds nothing.
func TestRowAndRecordAreThereTogether(t *testing.T) {
	for _, recovery := range []idempotency.Recovery{idempotency.Rerun, idempotency.Hold} {
		for wayName, w := range ways {
			for mishapName, m := range mishaps {
				guardtest.Bubble(t, fmt.Sprintf("%v/%s/%s", recovery, wayName, mishapName), func(t *testing.T) { cross(t, recovery, w, m) })
			}
		}
	}
}

func cross(t *testing.T, recovery idempotency.Recovery, w way, m mishap) {
	s := newShop(t, w.run, idempotency.WithRecovery(recovery))
	if m.fault != nil {
		s.store.On(m.op, guardtest.First(1, m.fault))
	}
	call := guardtest.Call{Key: "k"}
	first, err := s.TryAlone(t.Context(), call)
	s.requireTruth(t, first, err)
	committed := s.store.Count("commit") > 0
	switch {
	case committed && m.undone:
		require.Equal(t, m.code, first.Problem.Code)
		require.Empty(t, s.store.Rows())
	case w.status == 0:
		require.ErrorIs(t, err, guardtest.ErrCut)
	default:
		require.Equal(t, w.code, first.Problem.Code)
		require.Equal(t, w.status, first.Status)
		require.Len(t, s.store.Rows(), w.rows)
	}
	code := first.Problem.Code
	if code != "" {
		refusals := slices.DeleteFunc(s.events.All(), func(e event.Event) bool { return e.Kind != event.Refused })
		require.Len(t, refusals, 1)
		require.Equal(t, code, refusals[0].Code)
		require.Error(t, refusals[0].Err, "somebody learns why")
	}
	if code == problem.RolledBack {
		resp := &http.Response{StatusCode: first.Status, Header: first.Header, Body: http.NoBody}
		require.Equal(t, client.Retry, client.Classify(resp, nil), "the client half takes it as not executed")
	}

	synctest.Wait()
	var last guardtest.Reply
	for range 60 {
		last, err = s.TryAlone(t.Context(), call)
		s.requireTruth(t, last, err)
		if last.Problem.Code == "" {
			break
		}
		time.Sleep(time.Second)
	}
	time.Sleep(time.Hour) // whatever was on its way has arrived
	require.Empty(t, slices.DeleteFunc(s.store.Rows(), func(r string) bool { return r == row }))
	if w.final && (!committed || !m.undone) {
		guardtest.RequireReplay(t, first, last)
		require.EqualValues(t, 1, s.runs.Runs.Load())
		require.Len(t, s.store.Rows(), w.rows)
		return
	}
	require.Equal(t, http.StatusCreated, last.Status, last.Body)
	require.Len(t, s.store.Rows(), 1)
	guardtest.RequireReplay(t, last, s.Do(t, call))
	require.Zero(t, s.events.Count(event.Held))
	require.Equal(t, strings.Contains(t.Name(), "alone"), s.events.Count(event.CommittedAlone) > 0)
}

func TestMain(m *testing.M) { os.Exit(guardtest.Main(m)) }
