package storetest

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"reflect"
	"testing"
	"time"

	"example.com/idempotency/store"
)

// A testCase is one behaviour. It reports to a testing.TB and not to a *testing.T, so that
// the kit's own test can see it fail.
type testCase struct {
	name string
	run  func(e *env)
}

// The durations of the cases. They lie far apart, so that the moment alone tells which of
// them a store has used.
const (
	lease     = 5 * time.Minute
	retention = 100 * time.Minute
	ttl       = 10 * time.Hour

	// kept is how long a record is kept of which a release says that nothing was done.
	kept = 20 * time.Minute

	// margin is how much two moments may differ and still count as the same, because real
	// time passes on a server while a case runs: on a busy machine, many seconds.
	margin = 20 * time.Second

	// patience is how long a case waits for something that must happen although the case
	// moves no clock. In a bubble it costs nothing. Elsewhere only a failing case waits
	// that long.
	patience = 10 * time.Second
)

// status is that of all answers.
const status = 201

// The owners of the cases, and the payload that their keys are bound to.
var (
	alice = ownerOf("alice")
	bob   = ownerOf("bob")
	carol = ownerOf("carol")

	payload      = store.Fingerprint(sha256.Sum256([]byte("payload")))
	otherPayload = store.Fingerprint(sha256.Sum256([]byte("other payload")))
)

func ownerOf(name string) store.Owner {
	sum := sha256.Sum256([]byte(name))
	return store.Owner(sum[:16])
}

// keyOf returns a key in the form that stores are given: a digest in printable ASCII.
func keyOf(name string) string {
	sum := sha256.Sum256([]byte(name))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// An env is what one case runs with: a fresh store, its clock, and where to report.
type env struct {
	t       testing.TB
	ctx     context.Context
	store   store.Store
	advance func(time.Duration)
	txs     Transactions // nil unless the store is a TxStore

	key  string // of the calls
	want error  // what they must return
}

func newEnv(t testing.TB, h Harness) *env {
	t.Helper()
	st, advance := h.New(t)
	e := &env{t: t, ctx: t.Context(), store: st, advance: advance, key: keyOf("key")}
	if _, ok := st.(store.TxStore); ok && h.Transactions != nil {
		e.txs = h.Transactions(t, st)
	}
	return e
}

// on returns an env of the same case that makes its calls for another key.
func (e *env) on(name string) *env {
	other := *e
	other.key = keyOf(name)
	return &other
}

// refused returns an env of the same case whose calls must return the error.
func (e *env) refused(want error) *env {
	other := *e
	other.want = want
	return &other
}

// errAny stands for any error.
var errAny = errors.New("an error")

// cancelled returns an env of the same case whose context is over. Its calls must return an error,
// because a caller must not go on as if nothing had happened. A call may have taken effect or not,
// as when a server is cut off in the middle of it.
func (e *env) cancelled() *env {
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	other := e.refused(errAny)
	other.ctx = ctx
	return other
}

// returned fails the case unless a call has returned what it must: without more, nil.
func (e *env) returned(call string, err error) {
	e.t.Helper()
	if !errors.Is(err, e.want) && (err == nil || !errors.Is(e.want, errAny)) {
		e.t.Fatalf("%s: got error %v, want %v", call, err, e.want)
	}
}

// optional returns the store as one of the optional interfaces, or skips the case.
func optional[I any](e *env) I {
	e.t.Helper()
	i, ok := e.store.(I)
	if !ok {
		e.t.Skip("the store is not an", reflect.TypeFor[I]())
	}
	return i
}

// transactions returns those of a TxStore, or skips the case.
func (e *env) transactions() Transactions {
	e.t.Helper()
	optional[store.TxStore](e)
	if e.txs == nil {
		e.t.Fatalf("the store is an idempotency.TxStore: set Harness.Transactions")
	}
	return e.txs
}
