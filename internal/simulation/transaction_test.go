package simulation

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"strings"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/adapter"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/store"
)

// In a joined world, each run does what it does in a transaction of the store: it inserts a row.
// Whatever befalls the calls, a key has one row at most, and no more after somebody has forgotten
// its record. Its clients are told the truth of it, and nobody is ever told that an outcome is
// unknown. So no handler ends its transaction past the store here, whose outcome is unknown then whatever
// else befalls: package txtest has those, and the stores find them out.

// A simTill is the connection of a process to a store that joins transactions.
type simTill struct{ simDesk }

// JoinsTransactions marks the store.
func (*simTill) JoinsTransactions() {}

// A simTx is a transaction. The world's mutex guards it.
type simTx struct {
	till    *simTill
	run     *simRun
	key     string
	owner   store.Owner
	state   store.TxState
	spoiled *store.RolledBackError // why the commit will be refused

	ended     bool // the guard has ended it
	sent      bool // the store has had its commit
	committed bool
	denied    bool // its client was told that it is not committed
}

var errTxGone = errors.New("the connection knows of no transaction")

// wasReady reports whether a run has wished for a commit.
func (r *simRun) wasReady() bool { return r.tx != nil && r.tx.state == store.TxReady }

// isUndone reports whether nothing is left of what a run has done, unless its commit is still under way.
func (w *simulation) isUndone(r *simRun) bool {
	return w.kind == joined && !r.answersAlone() && (r.tx == nil || !r.tx.committed)
}

// isForgotten reports whether somebody has forgotten the record of a run. Its guard cannot tell what was
// in it, and gives back the next one.
func (w *simulation) isForgotten(r *simRun) bool {
	return w.kind == joined && r.life != r.request.key.life
}

// answersAlone reports whether the answer of a run says that it has done nothing, or that another has.
func (r *simRun) answersAlone() bool {
	return r.outcome == idempotency.Final && r.tx != nil && (r.tx.state == store.TxGivenUp ||
		r.tx.state == store.TxOpen && r.status >= http.StatusBadRequest)
}

// begin begins the transaction of a run.
func (t *simTill) begin(r *simRun) (*simTx, error) {
	tx := &simTx{till: t, run: r, state: store.TxOpen}
	ctx, cancel := context.WithTimeout(r.ctx, 2*time.Second) // no handler waits for ever
	defer cancel()
	err := adapter.Join(ctx, r.op, t, func(key string, o store.Owner) (store.Transaction, error) {
		tx.key, tx.owner = key, o
		return tx, t.callAsOwner(ctx, "begin", key, o, func(*idempotency.MemoryStore, string) error { return nil })
	})
	if err != nil {
		return nil, err
	}
	w := t.process.world
	w.mu.Lock()
	defer w.mu.Unlock()
	r.tx = tx
	return tx, nil
}

func (tx *simTx) say(state store.TxState) {
	w := tx.till.process.world
	w.mu.Lock()
	defer w.mu.Unlock()
	tx.state = state
}

// State implements [store.Transaction].
func (tx *simTx) State() store.TxState {
	w := tx.till.process.world
	w.mu.Lock()
	defer w.mu.Unlock()
	return tx.state
}

// MaySaveStep implements [store.Transaction].
func (tx *simTx) MaySaveStep() error { return nil }

// Complete implements [store.Transaction].
func (tx *simTx) Complete(ctx context.Context, c store.Completion) error {
	tx.end()
	err := tx.till.callAsOwner(ctx, "commit", tx.key, tx.owner, func(s *idempotency.MemoryStore, key string) error {
		w := tx.till.process.world // whose mutex is locked
		if tx.sent {
			return errTxGone
		}
		tx.sent = true
		if tx.spoiled != nil {
			return tx.spoiled
		}
		err := s.Complete(context.WithoutCancel(ctx), key, tx.owner, c)
		if errors.Is(err, store.ErrNotOwner) {
			w.seen[simFenced]++
		}
		return err
	})
	if _, definite := errors.AsType[*store.RolledBackError](err); err != nil && !definite && !errors.Is(err, store.ErrNotOwner) {
		w := tx.till.process.world
		w.mu.Lock()
		defer w.mu.Unlock()
		w.seen[simLookedUp]++
	}
	return err
}

// Rollback implements [store.Transaction].
func (tx *simTx) Rollback(ctx context.Context) error {
	tx.end()
	return tx.till.callAsOwner(ctx, "undo", tx.key, tx.owner, func(*idempotency.MemoryStore, string) error {
		tx.sent = true
		return nil
	})
}

// end is called once, and never for a transaction that was given up.
func (tx *simTx) end() {
	w := tx.till.process.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if tx.ended || tx.state == store.TxGivenUp {
		w.failf(tx.run.request.key.index, "the transaction of %v is ended twice", tx.run.request)
	}
	tx.ended = true
}

// committed enters a commit.
func (w *simulation) committed(k *simKey, r *simRun) {
	if r.outcome != idempotency.Final || !r.wasReady() {
		w.failf(k.index, "%v is committed, but %v", r.request, r.outcome)
	}
	// A claim that came again after its run was over, and after others, lets a commit pass that comes as late.
	if r.tx.denied && (k.attempt == r.attempt || !r.request.copied) {
		w.failf(k.index, "%v is committed after its client was told that it is not", r.request)
	}
	for _, other := range k.runs {
		if other.tx != nil && other.tx.committed {
			w.failf(k.index, "%v and %v both have a row", other.request, r.request)
		}
	}
	r.tx.committed = true
	w.seen[simCommitted]++
	k.completes(r)
}

// completesAlone checks an answer that is recorded by itself.
func (w *simulation) completesAlone(r *simRun) {
	if r.wasReady() {
		w.failf(r.request.key.index, "the answer of %v is recorded, and its row is not there", r.request)
	}
}

// deniesCommit enters that a client was told that a transaction was rolled back.
func (w *simulation) deniesCommit(q *simRequest) {
	w.seen[simRolledBack]++
	switch r := q.run; {
	case r == nil:
		w.failf(q.key.index, "%v is told of a run that it has not had", q)
	case r.tx == nil:
	case r.tx.committed:
		w.failf(q.key.index, "%v is told that its transaction is rolled back, and its row is there", q)
	default:
		r.tx.denied = true
	}
}

// checkNothingIsOpen is what has to be true a lease after all faults: a process that has lived on
// has ended its transactions.
func (w *simulation) checkNothingIsOpen() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range w.keys {
		for _, r := range k.all {
			if r.tx != nil && !r.tx.ended && r.tx.state != store.TxGivenUp && !r.request.process.isDead() {
				w.failf(k.index, "the transaction of %v is left open", r.request)
			}
		}
	}
}

// joinedConduct is what a run does instead of what it has drawn: it cannot stream, nor is anything
// left of it about which it may say that nobody knows. When all is calm, it keeps to the limit.
func (w *simulation) joinedConduct(r *simRun) simConduct {
	switch c := r.conduct; c {
	case runStreaming, runBulky:
		return runKept
	case runDenying:
		return runFailing
	case runLarge:
		if w.now() >= w.calm || r.attempt > lastFailure {
			return runKept
		}
		return c
	default:
		return c
	}
}

// transacts is what a run does: it inserts a row and answers, as its conduct says.
func (w *simulation) transacts(p *simProcess, r *simRun, rw http.ResponseWriter, after time.Duration, careful bool, d simDice) {
	fails := w.now() < w.calm && r.attempt <= lastFailure
	unavailable := func() { w.finish(r, rw, idempotency.Unknown, http.StatusServiceUnavailable) }
	tx, err := p.till.begin(r)
	if err == nil && d.oneIn(6) { // it tries something else first
		tx.say(store.TxGivenUp)
		tx, err = p.till.begin(r)
	}
	if err != nil {
		unavailable()
		return
	}
	if fails && d.oneIn(6) {
		tx.spoiled = &store.RolledBackError{Retry: d.oneIn(2), Err: errors.New("in the way of another")}
	}
	if !w.works(p, r, after, careful, d) {
		if d.oneIn(2) {
			tx.say(store.TxGivenUp)
		}
		unavailable()
		return
	}
	state := store.TxReady
	switch refuses := r.conduct == runRefusing || r.conduct == runInsisting; {
	case refuses && d.oneIn(2):
		state = store.TxGivenUp
	case fails && d.oneIn(10):
		state = store.TxOpen // it forgets to say
	}
	tx.say(state)
	w.answersJoined(r, rw, "charged by "+r.name())
}

// answersJoined is how such a run ends.
func (w *simulation) answersJoined(r *simRun, rw http.ResponseWriter, body string) {
	write := func(outcome idempotency.Outcome, status int) {
		r.body = body
		w.finish(r, rw, outcome, status)
	}
	switch r.conduct {
	case runLarge:
		body += strings.Repeat("!", keptBody)
		write(idempotency.Final, http.StatusCreated)
	case runRefusing, runInsisting:
		outcome, status := idempotency.Final, http.StatusUnprocessableEntity
		if r.conduct == runInsisting {
			r.op.SetOutcome(idempotency.Final)
		} else if r.ctx.Err() != nil {
			outcome, status = idempotency.Unknown, r.statusNow(status)
		}
		write(outcome, status)
	case runFailing:
		write(idempotency.Unknown, http.StatusBadGateway)
	case runPanicking:
		w.end(r, idempotency.Unknown, 0)
		panic(guardtest.Boom)
	case runExiting:
		w.end(r, idempotency.Unknown, 0)
		runtime.Goexit()
	case runShort:
		rw.Header().Set("Content-Length", "1000")
		write(idempotency.Unknown, http.StatusOK)
	default:
		write(idempotency.Final, http.StatusCreated)
	}
}
