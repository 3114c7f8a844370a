package storetest

import (
	"slices"
	"testing"
	"time"

	"example.com/idempotency/store"
)

// A Harness tells [Run] how to test one kind of store.
type Harness struct {
	// New returns a fresh, empty store and a function that lets time pass on the clock
	// of that store. Run calls it once for each case, inside the bubble if there is one.
	// If something has to be closed, New registers that with t.Cleanup. Required.
	New func(t testing.TB) (st store.Store, advance func(time.Duration))

	// Transactions returns the transactions of a store that New has returned. Run calls it once for
	// each case. Required if the store is an [store.TxStore].
	Transactions func(t testing.TB, st store.Store) Transactions

	// Bubble, if set, runs the body of each subtest. [testing/synctest.Test] fits.
	Bubble func(t *testing.T, f func(t *testing.T))
}

// Run tests the store of the harness against the contract of [store.Store] and of
// each optional interface that the store has. The cases run in parallel, each with its own
// store.
func Run(t *testing.T, h Harness) {
	t.Helper()
	if h.New == nil {
		t.Fatal("storetest: Harness.New is required")
	}
	bubble := h.Bubble
	if bubble == nil {
		bubble = func(t *testing.T, f func(t *testing.T)) { f(t) }
	}
	for _, c := range allCases() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // before the bubble, which does not allow it
			bubble(t, func(t *testing.T) { c.run(newEnv(t, h)) })
		})
	}
}

// A testCase is one behaviour. It reports to a testing.TB and not to a *testing.T, so that
// the kit's own test can see it fail.
type testCase struct {
	name string
	run  func(e *env)
}

// allCases returns every case of the kit.
func allCases() []testCase {
	return slices.Concat(
		claimCases(),
		mismatchCases(),
		leaseCases(),
		completeCases(),
		releaseCases(),
		undoneCases(),
		holdCases(),
		expiryCases(),
		answerCases(),
		contextCases(),
		contextStoreCases(),
		noteCases(),
		stepCases(),
		watcherCases(),
		inspectorCases(),
		listCases(),
		transactionCases(),
	)
}
