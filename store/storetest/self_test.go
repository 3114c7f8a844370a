package storetest

import (
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/idempotency/store"
)

// ObeysContext is about all methods of a store. One method that hangs is enough to fail.
func TestEveryMethodMustKeepItsDeadline(t *testing.T) {
	t.Parallel()
	for method := range callsOf(&naiveStore{}) {
		for _, c := range contextStoreCases {
			if !fails(t, c.name, naive(hangs(method))) {
				t.Errorf("a store whose %s hangs passes the case %q", method, c.name)
			}
		}
	}
}

// A store whose ObeysContext returns false need not keep deadlines.
func TestStoreMayDisobeyContexts(t *testing.T) {
	t.Parallel()
	for _, c := range contextStoreCases {
		h := naive(hangs("Claim"))
		if fails(t, c.name, Harness{New: func(t testing.TB) (store.Store, func(time.Duration)) {
			st, advance := h.New(t)
			return disobedient{st.(*naiveStore)}, advance
		}}) {
			t.Errorf("a store that does not promise to obey contexts fails the case %q", c.name)
		}
	}
}

type disobedient struct{ *naiveStore }

func (disobedient) ObeysContext() bool { return false }

// The naive store passes without a bug. So what a case finds in the others is the bug.
func TestNaiveStorePasses(t *testing.T) {
	t.Parallel()
	h := naive("")
	h.Bubble = synctest.Test
	Run(t, h)
}

func TestBrokenStoresFail(t *testing.T) {
	t.Parallel()
	for _, broken := range brokenStores {
		t.Run(broken.bug+"/"+broken.caughtBy, func(t *testing.T) {
			t.Parallel()
			if !fails(t, broken.caughtBy, naive(broken.bug)) {
				t.Errorf("a store with the bug %q passes the case %q", broken.bug, broken.caughtBy)
			}
		})
	}
}

// A case that no store fails proves nothing.
func TestEveryCaseCatchesSomething(t *testing.T) {
	t.Parallel()
	for _, c := range allCases {
		if !slices.ContainsFunc(brokenStores, func(b struct{ bug, caughtBy string }) bool { return b.caughtBy == c.name }) {
			t.Errorf("no broken store is caught by the case %q", c.name)
		}
	}
}

// A store need not have the optional interfaces. Their cases are then reported as skipped.
func TestOptionalInterfacesAreSkipped(t *testing.T) {
	t.Parallel()
	type plain struct{ store.Store }
	full := naive("")
	h := Harness{New: func(t testing.TB) (store.Store, func(time.Duration)) {
		st, advance := full.New(t)
		return plain{st}, advance
	}}
	skipped := 0
	for _, c := range allCases {
		r := runCase(t, c, h)
		if r.failed.Load() {
			t.Errorf("the case %q fails", c.name)
		}
		if r.skipped.Load() {
			skipped++
		}
	}
	h.Bubble = synctest.Test
	Run(t, h)        // A skip inside a bubble is not a failure either.
	const noted = 6  // the cases of notes and sealed keys that need an Inspector
	const copied = 3 // the cases of copies that need an optional interface
	if want := len(contextStoreCases) + len(stepCases) + len(watcherCases) + len(lookupCases) + len(inspectorCases) + len(listCases) + len(tagCases) + len(transactionCases) + len(decisionCases) + noted + copied; skipped != want {
		t.Errorf("%d cases are skipped, want %d", skipped, want)
	}
}

// fails reports whether the case of that name fails with the harness.
func fails(t *testing.T, name string, h Harness) bool {
	t.Helper()
	for _, c := range allCases {
		if c.name == name {
			return runCase(t, c, h).failed.Load()
		}
	}
	t.Fatalf("there is no case %q", name)
	return false
}

// runCase runs one case in a bubble and returns what it reported.
func runCase(t *testing.T, c testCase, h Harness) *recorder {
	t.Helper()
	r := &recorder{}
	synctest.Test(t, func(t *testing.T) {
		r.TB = t
		done := make(chan struct{})
		go func() { // Fatal and Skip end the goroutine that calls them.
			defer close(done)
			c.run(newEnv(r, h))
		}()
		<-done
		time.Sleep(2 * time.Hour) // A broken store may keep calls for an hour.
	})
	return r
}

// A recorder is a testing.TB that notes what is reported to it.
type recorder struct {
	testing.TB
	failed  atomic.Bool
	skipped atomic.Bool
}

func (r *recorder) Error(...any)          { r.failed.Store(true) }
func (r *recorder) Errorf(string, ...any) { r.failed.Store(true) }

func (r *recorder) Fatalf(string, ...any) {
	r.failed.Store(true)
	runtime.Goexit()
}

func (r *recorder) Skip(...any) {
	r.skipped.Store(true)
	runtime.Goexit()
}
