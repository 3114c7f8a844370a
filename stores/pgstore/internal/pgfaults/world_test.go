package pgfaults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/store"
	"example.com/idempotency/stores/pgstore"
	"example.com/idempotency/stores/pgstore/internal/pgproxy"
	"example.com/idempotency/stores/pgstore/internal/pgtest"
)

// This file is about one world: a request, a fault at one round trip, and a client that does not
// give up.

var keys atomic.Int64

// A site is a database and the API process that the faults spare.
type site struct {
	dsn, addr string // of the server, and where it listens
	pool      *pgxpool.Pool
	spared    *api
	kind      kind
}

// tables is held while a site makes its table: two CREATE TABLE IF NOT EXISTS at once may collide in the
// catalogue of a server that sites share.
var tables sync.Mutex

func newSite(t *testing.T, server *pgtest.Server, k kind) *site {
	t.Helper()
	// The default is four connections, which so many worlds at once would queue for.
	pool, err := pgxpool.New(t.Context(), server.DSN+"&pool_max_conns=16")
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	s := &site{dsn: server.DSN, pool: pool, kind: k}
	at, err := url.Parse(server.DSN)
	require.NoError(t, err)
	s.addr = at.Host
	// The last test may have made the server start anew.
	require.Eventually(t, func() bool { return pgstore.Migrate(t.Context(), s.pool) == nil }, time.Minute, 20*time.Millisecond)
	tables.Lock()
	_, err = s.pool.Exec(t.Context(), chargesTable)
	tables.Unlock()
	require.NoError(t, err)
	if k == mixed {
		k = joined
	}
	s.spared, err = newAPI(t.Context(), s.dsn+"&pool_max_conns=16", k)
	require.NoError(t, err)
	t.Cleanup(func() { s.spared.close(context.Background()) })
	return s
}

// dsnAt returns how to connect to the database by another address.
func (s *site) dsnAt(addr string) string {
	at, _ := url.Parse(s.dsn) // as newSite has done
	at.Host = addr
	return at.String()
}

// A mode is a kind of fault.
type mode struct {
	name      string
	process   bool // the fault kills the API process
	pipelines bool // the fault strikes round trips of several statements only
	crash     bool // the fault makes the server start anew, and disturbs other worlds
	fault     func(w *running) pgproxy.Fault
}

var modes = []mode{
	{name: "process killed before", process: true, fault: func(w *running) pgproxy.Fault {
		return pgproxy.Fault{Before: w.killProcess, LoseRequest: true}
	}},
	{name: "process killed after", process: true, fault: func(w *running) pgproxy.Fault {
		return pgproxy.Fault{After: w.killProcess, LoseReply: true}
	}},
	// The server gets the last words of a process that is dead: before its lease has ended, or when
	// another process has taken over.
	{name: "process killed, request late", process: true, fault: func(w *running) pgproxy.Fault {
		return pgproxy.Fault{Before: w.killProcess, Late: w.told}
	}},
	{name: "process killed, request very late", process: true, fault: func(w *running) pgproxy.Fault {
		return pgproxy.Fault{Before: w.killProcess, Late: w.settled}
	}},
	{name: "backend terminated before", fault: func(w *running) pgproxy.Fault { return pgproxy.Fault{Before: w.terminate} }},
	{name: "backend terminated during", fault: func(w *running) pgproxy.Fault { return pgproxy.Fault{During: w.terminate} }},
	// The client has heard all of the reply but its end, and with it the state of the transaction.
	{name: "backend terminated during, heard", fault: func(w *running) pgproxy.Fault {
		return pgproxy.Fault{During: w.terminate, Heard: true}
	}},
	{name: "backend terminated between", pipelines: true, fault: func(w *running) pgproxy.Fault {
		return pgproxy.Fault{During: w.terminate, Between: true}
	}},
	{name: "backend terminated after", fault: func(w *running) pgproxy.Fault { return pgproxy.Fault{After: w.terminate} }},
	{name: "reply lost", fault: func(*running) pgproxy.Fault { return pgproxy.Fault{LoseReply: true} }},
	{name: "silent", fault: func(w *running) pgproxy.Fault { return pgproxy.Fault{Silent: w.settled} }},
	{name: "request late", fault: func(w *running) pgproxy.Fault { return pgproxy.Fault{Late: w.told} }},
	{name: "request very late", fault: func(w *running) pgproxy.Fault { return pgproxy.Fault{Late: w.settled} }},
	{name: "backend killed before", crash: true, fault: func(w *running) pgproxy.Fault { return pgproxy.Fault{Before: w.killBackend} }},
	{name: "backend killed after", crash: true, fault: func(w *running) pgproxy.Fault { return pgproxy.Fault{After: w.killBackend} }},
}

// A world is a way of committing, an isolation level, and the fault at one of its round trips.
type world struct {
	way, level string
	mode       mode
	trip       int // 0: none fails
}

func (w world) String() string {
	return fmt.Sprintf("%s %s, %s trip %d", w.way, w.level, w.mode.name, w.trip)
}

// An end is what a world has come to.
type end struct {
	world
	fired    bool
	unseen   string // why there is no verdict, although the world was played
	trips    int
	tries    int64 // of the transaction by the API that was struck
	inserted int   // rows
	refusals map[string]int

	mu    sync.Mutex
	wrong []string // what must not be
}

func (e *end) failf(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.wrong = append(e.wrong, fmt.Sprintf(format, args...))
}

// blind says that the harness could not do or see what it wanted. That is no verdict on the library.
func (e *end) blind(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.unseen = fmt.Sprintf(format, args...)
}

func (e *end) failed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.wrong) > 0
}

// final reports whether it makes no sense to play the world again: it has a verdict, or needs no fault.
func (e *end) final() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.wrong) > 0 || e.unseen == "" && (e.fired || e.trip == 0 || e.mode.pipelines)
}

// A running world.
type running struct {
	*end
	pace    pace
	site    *site
	key     string
	proxy   *pgproxy.Proxy
	process *process
	struck  *api
	first   *guardtest.Server   // gets the first request
	next    []*guardtest.Server // get the others in turn
	undone  []string            // the IDs of runs that were said to be undone
	told    chan struct{}       // closed when the first request has its reply, or has waited long
	settled chan struct{}       // closed when there is an answer, or the client has waited longer
}

// run runs a world to its end.
func (s *site) run(ctx context.Context, w world) *end {
	r := &running{
		end: &end{world: w, refusals: make(map[string]int)}, site: s, key: fmt.Sprintf("key-%d", keys.Add(1)),
		told: make(chan struct{}), settled: make(chan struct{}),
	}
	err := r.retry(ctx, func(ctx context.Context) (err error) {
		r.pace, err = s.measure(ctx)
		return err
	})
	if err == nil {
		err = r.begin(ctx)
	}
	if err == nil {
		r.play(ctx)
	} else { // on a machine that is too busy; the world is missed
		r.blind("it does not begin: %v", err)
	}
	r.close(ctx)
	return r.end
}

// begin starts the API that the fault strikes, and lets it make its connections.
func (r *running) begin(ctx context.Context) (err error) {
	if r.proxy, err = pgproxy.New(r.site.addr); err != nil {
		return err
	}
	if err = r.retry(ctx, func(ctx context.Context) error { return r.start(ctx, r.site.dsnAt(r.proxy.Addr())) }); err != nil {
		return err
	}
	err = r.retry(ctx, func(ctx context.Context) error {
		warm, err := r.first.Try(ctx, r.call(r.key+"-warm", shortRun))
		if err == nil && warm.Status != http.StatusCreated {
			err = fmt.Errorf("%d %s", warm.Status, warm.Body)
		}
		return err
	})
	if err != nil {
		return err
	}
	r.next = []*guardtest.Server{guardtest.ServeRecorder(nil, r.site.spared.handler(r.pace.lease()))}
	if r.process == nil {
		r.next = append(r.next, r.first)
	}
	var fault pgproxy.Fault
	if r.mode.fault != nil {
		fault = r.mode.fault(r)
	}
	if r.struck != nil {
		r.struck.tries.Store(0)
		r.struck.other = func(ctx context.Context) (int, error) {
			got, err := r.next[0].Try(ctx, r.call(r.key, shortRun))
			return got.Status, err
		}
	}
	r.proxy.Arm(r.trip, fault)
	return nil
}

// start starts the API that the fault strikes.
func (r *running) start(ctx context.Context, dsn string) (err error) {
	if r.mode.process {
		if r.process, err = startProcess(dsn, r.site.kind, r.pace.lease()); err == nil {
			r.first = r.process.Server
		}
		return err
	}
	if r.struck, err = newAPI(ctx, dsn, r.site.kind); err == nil {
		r.first = guardtest.ServeRecorder(nil, r.struck.handler(r.pace.lease()))
	}
	return err
}

// retry repeats what fails while the server recovers from the world before, or the machine is busy. It
// has a time of its own, however long what was before has taken.
func (r *running) retry(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, r.pace.patience())
	defer cancel()
	for ; ; time.Sleep(50 * time.Millisecond) { // a poll
		if err := f(ctx); err == nil || ctx.Err() != nil {
			return err
		}
	}
}

// call is a request whose run takes so long. The other requests with its key are the same.
func (r *running) call(key string, length time.Duration) guardtest.Call {
	return guardtest.Call{Key: key, Path: "/" + r.way + "/" + r.level, Header: http.Header{"Length": {length.String()}}}
}

func (r *running) close(ctx context.Context) {
	if r.proxy != nil {
		r.proxy.Close() // first: the driver waits long for a connection that is silent
	}
	if r.struck != nil {
		ctx, cancel := context.WithTimeout(ctx, r.pace.patience())
		defer cancel()
		r.struck.close(ctx)
	}
	if r.process != nil {
		r.process.end()
	}
}

// play sends the request until it is answered, and checks what has come of it.
func (r *running) play(ctx context.Context) {
	tell := time.AfterFunc(r.pace.lease()/2, func() { close(r.told) })
	settle := time.AfterFunc(2*r.pace.lease(), func() { close(r.settled) })
	answer, ok := r.ask(ctx, func() {
		if tell.Stop() {
			close(r.told)
		}
	})
	if settle.Stop() {
		close(r.settled)
	}
	r.trips, r.fired = r.proxy.Trips(), r.proxy.Fired()
	if r.struck != nil {
		r.tries = r.struck.tries.Load()
	}
	ending, cancel := context.WithTimeout(ctx, r.pace.patience())
	defer cancel()
	if r.fired {
		select {
		case <-r.proxy.Done():
		case <-ending.Done():
			r.blind("the fault does not end")
		}
	}
	if r.struck != nil { // what it does in the background comes to its end
		_ = r.struck.guard.Shutdown(ending)
	}
	if ok {
		r.check(ctx, answer)
	}
}

// ask sends the request until it has an answer. It calls told when the first reply is there.
func (r *running) ask(ctx context.Context, told func()) (answer guardtest.Reply, ok bool) {
	call := r.call(r.key, r.pace.longRun())
	server := r.first
	patience := r.pace.patience()
	ctx, cancel := context.WithTimeout(ctx, 2*patience) // a request may hang
	defer cancel()
	for n, start := 0, time.Now(); ; n++ {
		got, err := server.Try(ctx, call)
		if n == 0 {
			told()
		}
		if got.Header.Get(besideStatus) == strconv.Itoa(http.StatusCreated) && !r.proxy.Fired() {
			r.failf("another run beside a run that nothing has struck")
		}
		switch {
		case err != nil:
			r.refusals["no reply"]++
		case got.Status == http.StatusUnprocessableEntity && strings.HasPrefix(r.way, "failed "):
			r.denied(ctx, n, "the handler")
		case got.Status == http.StatusCreated:
			return got, true
		default:
			r.refused(ctx, n, got)
		}
		if time.Since(start) > patience || r.failed() {
			r.failf("no answer after %d requests: %v", n+1, r.refusals)
			return got, false
		}
		time.Sleep(min(time.Duration(n+1)*20*time.Millisecond, 100*time.Millisecond)) // a client that retries
		server, call = r.next[n%len(r.next)], r.call(r.key, shortRun)
	}
}

// refused judges a reply that is not the answer.
func (r *running) refused(ctx context.Context, n int, got guardtest.Reply) {
	r.refusals[fmt.Sprint(got.Status, " ", got.Problem.Code)]++
	switch code := got.Problem.Code; {
	case code == "" && got.Status != http.StatusInternalServerError, code != "" && !code.Retryable():
		r.failf("reply %d: %d %s", n, got.Status, got.Body)
	case code.Undone():
		r.denied(ctx, n, code)
	}
}

// denied judges a reply that says that nothing was done.
func (r *running) denied(ctx context.Context, n int, by any) {
	if n == 0 && r.struck != nil {
		r.undone = r.struck.inserted(r.key)
	}
	rows, err := r.rows(ctx)
	if err == nil && len(rows) > 0 {
		r.failf("reply %d, of %s, says that nothing was done, and there is a row", n, by)
	}
}

// rows returns the IDs of the business rows.
func (r *running) rows(ctx context.Context) (ids []string, err error) {
	rows, err := r.site.pool.Query(ctx, "SELECT id FROM charges WHERE key = $1", r.key)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// check compares the answer with what is in the database.
func (r *running) check(ctx context.Context, answer guardtest.Reply) {
	var told struct{ ID string }
	if err := json.Unmarshal([]byte(answer.Body), &told); err != nil {
		r.failf("answer: %v", err)
	}
	var ids []string
	if err := r.retry(ctx, func(ctx context.Context) (err error) {
		ids, err = r.rows(ctx)
		return err
	}); err != nil {
		r.blind("rows: %v", err)
		return
	}
	r.inserted = len(ids)
	switch {
	case len(ids) != 1:
		r.failf("%d rows", len(ids))
	case ids[0] != told.ID:
		r.failf("the answer tells of %s, and the row is %s", told.ID, ids[0])
	case slices.Contains(r.undone, told.ID):
		r.failf("the client was told that what is committed was undone")
	}
	var again guardtest.Reply
	err := r.retry(ctx, func(ctx context.Context) (err error) {
		if again, err = r.next[0].Try(ctx, r.call(r.key, 0)); again.Problem.Code.Retryable() {
			err = errors.New(string(again.Problem.Code))
		}
		return err
	})
	if err != nil || !again.Replayed() || again.Status != answer.Status || again.Body != answer.Body {
		r.failf("the replay is %d %s %v", again.Status, again.Body, err)
	}
	r.checkRecord(ctx)
	if r.struck == nil {
		return
	}
	for _, kind := range []event.Kind{event.Held, event.CommittedAlone, event.NotKept} {
		if n := r.struck.events.Count(kind); n > 0 {
			r.failf("%d events %s", n, kind)
		}
	}
}

// checkRecord looks for what only an operator could settle: in the record of this world, and in no other.
func (r *running) checkRecord(ctx context.Context) {
	var rec idempotency.RecordInfo
	if err := r.retry(ctx, func(ctx context.Context) (err error) {
		rec, err = r.site.spared.guard.Lookup(ctx, idempotency.Key{Scope: "acme", Value: r.key})
		return err
	}); err != nil {
		r.blind("the record: %v", err)
		return
	}
	if rec.State != store.Completed {
		r.failf("the record is %s", rec.State)
	}
}

func (r *running) killProcess(int) { r.process.kill() }

// terminate ends a backend as an operator does.
func (r *running) terminate(pid int) {
	ctx, cancel := context.WithTimeout(context.Background(), r.pace.patience())
	defer cancel()
	var ended bool
	err := r.site.pool.QueryRow(ctx, "SELECT pg_terminate_backend($1, $2)", pid, r.pace.patience().Milliseconds()).Scan(&ended)
	if err != nil || !ended {
		r.blind("the backend is not terminated: %v", err)
	}
}

// killBackend kills a backend. The server ends all others, recovers and goes on.
func (r *running) killBackend(pid int) {
	p, err := os.FindProcess(pid)
	if err == nil {
		err = p.Kill()
	}
	if err != nil {
		r.blind("the backend is not killed: %v", err)
	}
}
