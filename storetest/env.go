package storetest

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"example.com/idempotency/store"
)

// The durations of the cases. They lie far apart, so that the moment alone tells which of
// them a store has used.
const (
	lease     = 30 * time.Second
	retention = 10 * time.Minute
	ttl       = time.Hour

	// status is that of all answers.
	status = 201

	// margin is how much two moments may differ and still count as the same, because real
	// time passes on a server while a case runs.
	margin = 2 * time.Second

	// patience is how long a case waits for something that must happen although the case
	// moves no clock. In a bubble it costs nothing. Elsewhere only a failing case waits
	// that long.
	patience = 10 * time.Second
)

// The owners of the cases, and the payload that their keys are bound to.
var (
	alice = ownerOf("alice")
	bob   = ownerOf("bob")
	carol = ownerOf("carol")

	payload      = store.Fingerprint(sha256.Sum256([]byte("payload")))
	otherPayload = store.Fingerprint(sha256.Sum256([]byte("other payload")))
)

// key is the key of the cases that need only one.
var key = keyOf("key")

// keyOf returns a key in the form that stores are given: a digest in printable ASCII.
func keyOf(name string) string {
	sum := sha256.Sum256([]byte(name))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

func ownerOf(name string) store.Owner {
	sum := sha256.Sum256([]byte(name))
	return store.Owner(sum[:16])
}

// An env is what one case runs with: a fresh store, its clock, and where to report.
type env struct {
	t       testing.TB
	ctx     context.Context
	store   store.Store
	advance func(time.Duration)

	transactions Transactions // nil unless the store is a TxStore
}

func newEnv(t testing.TB, h Harness) *env {
	t.Helper()
	st, advance := h.New(t)
	e := &env{t: t, ctx: t.Context(), store: st, advance: advance}
	if _, ok := st.(store.TxStore); ok && h.Transactions != nil {
		e.transactions = h.Transactions(t, st)
	}
	return e
}

// claim makes the claim of claimOf, changed by edits, and fails the case if the store
// returns an error.
func (e *env) claim(key string, o store.Owner, edits ...func(*store.Claim)) store.Record {
	e.t.Helper()
	c := claimOf(o)
	for _, edit := range edits {
		edit(&c)
	}
	r, err := e.store.Claim(e.ctx, key, c)
	if err != nil {
		e.t.Fatalf("Claim: unexpected error: %v", err)
	}
	return r
}

// claimOf is a claim of the owner with the durations and the payload of the kit.
func claimOf(o store.Owner) store.Claim {
	return store.Claim{Owner: o, Fingerprint: payload, Lease: lease, Retention: retention}
}

// Edits of a claim.
func holding(c *store.Claim)     { c.Hold = true }
func holdEnding(c *store.Claim)  { c.HoldEnds = true }
func watching(c *store.Claim)    { c.Watch = true }
func mismatching(c *store.Claim) { c.Fingerprint = otherPayload }

// claimed makes a record that is in flight: alice's, attempt 1.
func (e *env) claimed(edits ...func(*store.Claim)) {
	e.t.Helper()
	e.mine(e.claim(key, alice, edits...), 1)
}

// completed makes a record that alice has completed with answer.
func (e *env) completed(answer string) {
	e.t.Helper()
	e.claimed()
	e.ok("Complete", e.store.Complete(e.ctx, key, alice, completion(answer)))
}

// release releases the key as o, and says nothing about what o has done.
func (e *env) release(o store.Owner) error {
	return e.store.Release(e.ctx, key, o, store.Release{})
}

// completion is what a run with that answer gives to Complete.
func completion(answer string) store.Completion {
	return store.Completion{Answer: []byte(answer), Status: status, TTL: ttl}
}

// answered is what an operator with that answer gives to Resolve.
func answered(answer string) store.Settlement {
	c := completion(answer)
	return store.Settlement{Completion: &c}
}

// released is what an operator without an answer gives to Resolve.
var released store.Settlement

// undoing is what an operator gives to Resolve who knows that steps did not happen. names
// and values of the steps take turns.
func undoing(steps ...string) store.Settlement {
	undone := make(map[string][]byte)
	for i := 0; i < len(steps); i += 2 {
		undone[steps[i]] = []byte(steps[i+1])
	}
	return store.Settlement{Undone: undone}
}

// heldAs is what somebody has seen of a held record.
func heldBy(o store.Owner, attempt int) store.Seen {
	return store.Seen{Owner: o, Attempt: attempt, State: store.Held}
}

// mine fails the case unless the caller holds the claim, as the given attempt, and the
// claim is protected from takeover.
func (e *env) mine(r store.Record, attempt int) {
	e.t.Helper()
	if !r.Mine || r.State != store.Claimed || r.Attempt != attempt {
		e.t.Fatalf("Claim: got %s, want mine, claimed, attempt %d", show(r), attempt)
	}
	if r.Lease <= 0 {
		e.t.Fatalf("Claim: the claim is mine, but its lease is %v", r.Lease)
	}
}

// notMine fails the case unless the record has the given state and attempt, and the
// caller does not hold it.
func (e *env) notMine(r store.Record, s store.State, attempt int) {
	e.t.Helper()
	if r.Mine || r.State != s || r.Attempt != attempt {
		e.t.Fatalf("record: got %s, want not mine, %v, attempt %d", show(r), s, attempt)
	}
}

// bound fails the case unless the record has the fingerprint of the first claim.
func (e *env) bound(r store.Record) {
	e.t.Helper()
	if r.Fingerprint != payload {
		e.t.Errorf("record: the fingerprint is not that of the first claim")
	}
}

// answer fails the case unless the record is completed with the answer.
func (e *env) answer(r store.Record, want string) {
	e.t.Helper()
	if r.State != store.Completed || r.Mine {
		e.t.Fatalf("record: got %s, want completed", show(r))
	}
	if string(r.Answer) != want {
		e.t.Fatalf("answer: got %.40q (%d bytes), want %.40q (%d bytes)", r.Answer, len(r.Answer), want, len(want))
	}
	if r.Answer == nil {
		e.t.Fatalf("answer: got nil, want an empty one")
	}
}

// ok fails the case if err is not nil.
func (e *env) ok(call string, err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatalf("%s: unexpected error: %v", call, err)
	}
}

// refused fails the case unless err is the wanted sentinel.
func (e *env) refused(call string, err, want error) {
	e.t.Helper()
	if !errors.Is(err, want) {
		e.t.Fatalf("%s: got error %v, want %v", call, err, want)
	}
}

// near fails the case unless the two durations are the same, apart from the time that the
// case itself may take.
func (e *env) near(what string, got, want time.Duration) {
	e.t.Helper()
	if (got - want).Abs() > margin {
		e.t.Errorf("%s: got %v, want about %v", what, got, want)
	}
}

// concurrently calls f n times at once and returns the records. An error of any call
// fails the case.
func (e *env) concurrently(n int, f func(i int) (store.Record, error)) []store.Record {
	e.t.Helper()
	records, errs := make([]store.Record, n), make([]error, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			records[i], errs[i] = f(i)
		})
	}
	close(start)
	wg.Wait()
	e.ok("concurrent call", errors.Join(errs...))
	return records
}

// show prints the fields that most failures are about.
func show(r store.Record) string {
	return fmt.Sprintf("{%v mine=%t attempt=%d lease=%v ttl=%v}", r.State, r.Mine, r.Attempt, r.Lease, r.TTL)
}
