package storetest

import (
	"slices"
	"testing"
)

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
	for _, c := range allCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // before the bubble, which does not allow it
			bubble(t, func(t *testing.T) { c.run(newEnv(t, h)) })
		})
	}
}

// allCases is the contract: every case of the kit.
var allCases = slices.Concat(
	claimCases,
	mismatchCases,
	leaseCases,
	completeCases,
	releaseCases,
	undoneCases,
	holdCases,
	expiryCases,
	answerCases,
	contextCases,
	contextStoreCases,
	noteCases,
	decisionCases,
	stepCases,
	watcherCases,
	lookupCases,
	inspectorCases,
	listCases,
	tagCases,
	transactionCases,
)
