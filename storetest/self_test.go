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

// brokenStores lists the bugs that a naiveStore can have, each with a case that finds it.
var brokenStores = []struct{ bug, caughtBy string }{
	{"claim looks first and writes afterwards", "Claim/one of a hundred gets a new key"},
	{"takeover looks first and writes afterwards", "Claim/one of a hundred takes over a lapsed claim"},
	{"a released key is given to all who look", "Claim/one of a hundred gets a released key"},
	{"the owner does not know its own claim", "Claim/the owner that claims again holds it"},
	{"a repeated claim is another attempt", "Claim/the owner that claims again holds it"},
	{"a repeated claim has no lease", "Claim/the owner that claims again after its lease holds it"},
	{"a repeated claim is held", "Claim/the owner that claims again after its lease holds it"},
	{"a repeated claim has the lease of the first", "Claim/the owner that claims again is protected anew"},
	{"one who waits gets a released key", "Claim/one who waits does not get a released key"},
	{"one who waits gets an unbound key", "Claim/one who waits does not get an unbound key"},
	{"one who waits gets no lapsed key", "Claim/one who waits takes over a lapsed claim"},
	{"one who waits gets no new key", "Claim/one who waits gets a new key"},
	{"in flight reports the whole lease", "Claim/in flight reports the lease"},
	{"times are not reported", "Claim/a new key is mine"},
	{"one record for all keys", "Claim/keys do not influence each other"},
	{"keys are cut to one byte", "Claim/many keys"},

	{"a mismatch renews the lease", "Mismatch/changes nothing in flight"},
	{"a mismatch takes over when lapsed", "Mismatch/does not take over a lapsed claim"},
	{"a mismatch holds a lapsed claim", "Mismatch/does not turn a lapsed claim into a held one"},
	{"a mismatch gets a released key", "Mismatch/does not get a released key"},
	{"a mismatch prolongs the answer", "Mismatch/changes nothing when completed"},
	{"a mismatch prolongs the hold", "Mismatch/changes nothing when held"},
	{"a mismatch changes the fingerprint", "Mismatch/changes nothing in flight"},

	{"takeover a moment early", "Lease/protects until its end"},
	{"the lease is the retention", "Lease/a lapsed claim is taken over"},
	{"a takeover keeps the old durations", "Lease/each claim brings its own durations"},
	{"the attempt is constant", "Lease/attempt rises over lapse and release"},
	{"a release does not count as an attempt", "Lease/attempt rises over lapse and release"},
	{"the record's Hold is ignored", "Lease/a lapsed claim that says Hold becomes held"},
	{"the finder's Hold is ignored", "Lease/a lapsed claim found by a Hold becomes held"},

	{"Renew does nothing", "Renew/extends the lease"},
	{"Renew leaves the retention", "Renew/extends the retention"},
	{"Renew is refused after the lease", "Renew/revives a lapsed claim"},
	{"Renew does not look at the owner", "Renew/by another owner is refused"},
	{"Renew trusts an owner of the past", "Renew/after a takeover is refused"},
	{"Renew of an absent record makes one", "Renew/without a claim is refused"},
	{"Renew is accepted when released", "Renew/without a claim is refused"},
	{"Renew is accepted when held", "Hold/nobody may run"},
	{"Renew is accepted when completed", "Completed/does not change"},
	{"Renew ignores its context", "Context/a cancelled Complete can be repeated"},

	{"a settled record has a lease", "Complete/records the answer"},
	{"a second Complete restarts the TTL", "Complete/repeated is success without effect"},
	{"a second Complete overwrites the answer", "Completed/does not change"},
	{"Complete does not look at the owner", "Complete/by another owner is refused"},
	{"Complete is refused after the lease", "Complete/after the lease is accepted"},
	{"Complete trusts an owner of the past", "Complete/after a takeover is refused"},
	{"Complete is refused when held", "Complete/after Hold is accepted"},
	{"a lapsed hold forgets its owner", "Complete/after a lapsed claim became held is accepted"},
	{"Complete is accepted when released", "Complete/after Release is refused"},
	{"Complete of an absent record makes one", "Complete/of an absent record is refused"},
	{"Complete is refused when completed", "Complete/repeated is success without effect"},
	{"Complete ignores its context", "Context/a cancelled Complete can be repeated"},

	{"Release deletes the record", "Release/the next claim is the next attempt"},
	{"Release is refused when released", "Release/repeated is success"},
	{"Release is refused after the lease", "Release/after the lease is accepted"},
	{"Release does not look at the owner", "Release/by another owner is refused"},
	{"Release trusts an owner of the past", "Release/after a takeover is refused"},
	{"Release of an absent record makes one", "Release/of an absent record is refused"},
	{"Release is accepted when held", "Hold/nobody may run"},
	{"Release is accepted when completed", "Completed/does not change"},
	{"a delayed claim revives a release", "Release/a delayed claim does not come alive"},
	{"Release leaves the retention", "Release/starts the retention anew"},
	{"what lapsed stays held", "Release/of what became held by lapse is accepted"},
	{"a lapsed hold stays one of nobody", "Release/of what the owner has held after the lapse is refused"},
	{"Release ignores its context", "Context/a cancelled Release can be repeated"},

	{"Keep is ignored", "Undone/is kept as long as the release says"},
	{"Keep is longer than the retention", "Undone/is not kept beyond the retention"},
	{"a second Release starts anew", "Undone/repeated is success without effect"},
	{"Unbind is ignored", "Undone/unbound, it gets the next payload"},
	{"an unbound record is bound to the first payload again", "Undone/unbound, it gets the next payload"},
	{"an unbound key is given to all who look", "Undone/unbound, it is one of a hundred's"},
	{"a delayed claim revives what is unbound", "Undone/unbound, a delayed claim does not come alive"},
	{"what is not used is unbound", "Undone/unused, it stays bound"},
	{"Unused is ignored", "Undone/unused, it stays unbound"},
	{"what lapsed is bound", "Undone/unused, it stays unbound through a lapse"},
	{"what was unbound stays so", "Undone/used, it is bound again"},
	{"Undone need not be said", "Undone/must be said"},
	{"only the first attempt is blank", "Undone/several attempts have done nothing"},
	{"a repeated claim is not blank", "Undone/a repeated claim changes nothing"},
	{"what lapsed is not blank", "Undone/of what became held by lapse"},
	{"a lapse leaves a record blank", "Undone/after a lapse the record stays"},
	{"what is released is blank", "Undone/after another release the record stays"},
	{"a resolution leaves a record blank", "Resolve/without an answer, the record is not blank"},
	{"a step leaves a record blank", "Step/outlives a release that says that nothing was done"},

	{"held lapses", "Hold/nobody may run"},
	{"Hold is refused when held", "Hold/repeated is success"},
	{"Hold does not look at the owner", "Hold/by another owner is refused"},
	{"Hold trusts an owner of the past", "Hold/after a takeover is refused"},
	{"Hold of an absent record makes one", "Release/of an absent record is refused"},
	{"Hold is accepted when released", "Hold/after Release is refused"},
	{"Hold is accepted when completed", "Completed/does not change"},
	{"a delayed claim revives a hold", "Hold/a delayed claim does not come alive"},
	{"Hold leaves the retention", "Hold/starts the retention anew"},
	{"Hold ignores its context", "Context/a cancelled Release can be repeated"},

	{"the TTL never ends", "Expiry/an answer is kept until its TTL ends"},
	{"the TTL runs from the claim", "Expiry/the TTL runs from Complete"},
	{"a short TTL is lost", "Expiry/a short TTL ends before the retention"},
	{"reading prolongs the TTL", "Expiry/reading does not prolong it"},
	{"a claim never expires", "Expiry/a claimed record ends with its retention"},
	{"a release never expires", "Expiry/a released record ends with its retention"},
	{"a hold always ends", "Expiry/a held record has no end"},
	{"a lapsed hold ends", "Expiry/a claim that says Hold has no end"},
	{"a hold by the finder ends", "Expiry/a lapsed claim found by a Hold has no end"},
	{"a released claim never expires", "Expiry/a claim that says Hold ends once it is released"},
	{"HoldEnds is ignored", "Expiry/a held record ends with its retention if its claim says so"},
	{"an expired record lives until it is swept", "Expiry/many records end at once"},
	{"times are not reported", "Expiry/a record reports its times"},

	{"an empty answer is none", "Answer/empty"},
	{"an empty answer is nil", "Answer/empty"},
	{"an empty answer is nil", "GetAnswer/returns the answer"},
	{"an answer ends at NUL", "Answer/one byte"},
	{"an answer ends at NUL", "Answer/binary"},
	{"an answer is cut at 32 KiB", "Answer/64 KiB"},
	{"an answer is cut at 1 MiB", "Answer/10 MiB"},
	{"memory is used again while it is read", "Answer/every reader gets the same bytes"},
	{"Complete keeps what it was given", "Copy/of an answer"},
	{"Resolve keeps what it was given", "Copy/of an answer given by hand"},
	{"SaveStep keeps what it was given", "Copy/of a step"},
	{"note keeps what it was given", "Copy/of a note"},
	{"sealed key keeps what it was given", "Copy/of a sealed key"},
	{"a claim ignores its context", "Context/a cancelled Claim can be repeated"},
	{"a cancelled claim is held by nobody", "Context/a cancelled Claim can be repeated"},

	{"notes are not kept", "Note/is kept with the record"},
	{"a note ends at NUL", "Note/is opaque"},
	{"a note has 32 bytes at most", "Note/is opaque"},
	{"only the last note is kept", "Note/of each attempt is kept"},
	{"notes are kept without end", "Note/the last sixteen are kept"},
	{"a repeated claim leaves another note", "Note/of a repeated claim is kept once"},
	{"every claim leaves its note", "Note/of a claim that is not granted is not kept"},
	{"notes outlive their record", "Note/ends with its record"},
	{"a note overwrites what was handed out", "Note/what was handed out does not change"},
	{"the label of the first claim stays", "Note/Get tells note and label"},
	{"sealed keys are not kept", "SealedKey/is kept with the record"},
	{"List leaves out sealed keys", "SealedKey/is kept with the record"},
	{"a sealed key has 64 bytes at most", "SealedKey/is opaque"},
	{"every claim leaves its sealed key", "SealedKey/of a claim that is not granted is not kept"},
	{"a claim without a sealed key takes it away", "SealedKey/stays when a later claim has none"},
	{"sealed keys outlive their record", "SealedKey/ends with its record"},
	{"a takeover is not told", "Lapsed/is told to the claim that takes over"},
	{"a repeated claim is no takeover", "Lapsed/is told again when the claim is repeated"},
	{"a takeover is told for ever", "Lapsed/is not told of a released record"},

	{"takeover forgets the steps", "Step/is known to the run that takes over"},
	{"a release forgets the steps", "Step/is known to the run after a release"},
	{"a resolution forgets the steps", "Step/is known to the run after a resolution"},
	{"a step looks first and writes afterwards", "Step/fifty at once are all kept"},
	{"a repeated claim has no steps", "Step/is known to a claim that is repeated"},
	{"a step cannot be replaced", "Step/is replaced by name"},
	{"a step overwrites a field of the record", "Step/is opaque"},
	{"SaveStep is refused after the lease", "Step/after the lease is accepted"},
	{"SaveStep trusts an owner of the past", "Step/after a takeover is refused"},
	{"SaveStep does not look at the owner", "Step/by another owner is refused"},
	{"SaveStep of an absent record makes one", "Step/without a claim is refused"},
	{"SaveStep is accepted when released", "Step/without a claim is refused"},
	{"SaveStep is accepted when held", "Step/without a claim is refused"},
	{"SaveStep is accepted when completed", "Step/without a claim is refused"},
	{"SaveStep ignores its context", "Step/a cancelled SaveStep can be repeated"},
	{"steps outlive their record", "Step/ends with its record"},
	{"a step renews the lease", "Step/does not prolong the lease"},

	{hangs("Claim"), "ContextStore/calls after their deadline return"},
	{hangs("Claim"), "ContextStore/calls return by their deadline"},

	{"completed wakes nobody", "Watch/is woken by Complete"},
	{"a wakeup is lost unless it is waited for", "Watch/is woken by Complete"},
	{"released wakes nobody", "Watch/is woken by Release"},
	{"held wakes nobody", "Watch/is woken by Hold"},
	{"Resolve with an answer wakes nobody", "Watch/is woken by Resolve"},
	{"Resolve without an answer wakes nobody", "Watch/is woken by Resolve"},
	{"watchers are woken once", "Watch/is woken each time"},
	{"settling waits for the watcher", "Watch/a watcher that does not look blocks nobody"},
	{"only one watcher is woken", "Watch/every watcher is woken"},
	{"stopping one watcher stops all", "Watch/a stopped watcher does not end another"},
	{"watching begins late", "Watch/no settling is missed"},

	{"Get returns an empty record", "Get/of an absent record"},
	{"Complete forgets the status", "Get/tells what a claim tells"},
	{"the size is not told", "Get/tells what a claim tells"},
	{"Get carries the answer", "Get/leaves out the answer"},
	{"Complete forgets the status", "Get/leaves out the answer"},
	{"Resolve forgets the status", "Get/tells status and size of an answer by hand"},
	{"GetAnswer is Get", "GetAnswer/returns the answer"},
	{"GetAnswer of nothing is success", "GetAnswer/of an absent record"},
	{"Get takes over", "Get/changes nothing"},
	{"Get prolongs the record", "Get/changes nothing"},
	{"Get does not see a lapsed hold", "Get/a lapsed claim that says Hold is held"},
	{"Get leaves out the steps", "Get/returns the steps"},
	{"completing by hand fails", "Resolve/with an answer completes"},
	{"Resolve takes an empty answer for none", "Resolve/with an empty answer completes"},
	{"releasing by hand fails", "Resolve/without an answer releases"},
	{"Resolve does not see a lapsed hold", "Resolve/of a lapsed claim that says Hold"},
	{"Resolve cannot be repeated", "Resolve/repeated is success"},
	{"Resolve does not look at the attempt", "Resolve/of another attempt is refused"},
	{"Resolve does not look at the owner", "Resolve/of a later record is refused"},
	{"Resolve does not look at what was seen", "Resolve/of another state is refused"},
	{"Resolve leaves the undone steps", "Resolve/takes the undone steps away"},
	{"Resolve undoes all steps", "Resolve/takes the undone steps away"},
	{"Resolve cannot be repeated without its steps", "Resolve/repeated with its undone steps is success"},
	{"Resolve does not look for the steps when it is repeated", "Resolve/repeated with its undone steps is success"},
	{"Resolve does not compare the steps", "Resolve/of steps that have changed is refused"},
	{"Resolve takes a missing step for an empty one", "Resolve/of steps that have changed is refused"},
	{"Resolve is half done", "Resolve/of steps that have changed is refused"},
	{"Resolve does not look at the state", "Resolve/unless held is refused"},
	{"Resolve takes what a run did for a repeated call", "Resolve/unless held is refused"},
	{"Resolve of nothing is success", "Resolve/unless held is refused"},
	{"Resolve leaves the owner its claim", "Resolve/is not overruled by the owner"},
	{"Resolve remembers who lost the claim", "Resolve/without an answer lets the owner claim anew"},
	{"Forget keeps the record", "Forget/makes the key new"},
	{"Forget takes only what is held", "Forget/a completed, released or lapsed record"},
	{"Forget of nothing is an error", "Forget/repeated is success"},
	{"Forget takes a live claim", "Forget/of a live claim is refused"},
	{"Forget does not look at the attempt", "Forget/of another attempt is refused"},
	{"Forget does not look at the owner", "Forget/of a later record is refused"},
	{"Forget does not look at the state", "Forget/of another state is refused"},
	{"Forget takes everything for corrupt", "Forget/as corrupt of what can be read is refused"},

	{"List carries the answers", "List/shows every record"},
	{"List leaves out the owners", "List/shows every record"},
	{"List leaves out held records", "List/shows every record"},
	{"a page ignores its limit", "List/a page has its limit at most"},
	{"a cursor is a number of records", "List/shows what stays while others come and go"},
	{"List ignores the states", "List/filters"},
	{"List ignores the label", "List/filters"},
	{"List ignores the age", "List/filters"},
	{"the label of the first claim stays", "List/tells note and label"},
	{"List shows what has expired", "List/leaves out what has expired"},
	{"a bad cursor is no cursor", "List/with another cursor is refused"},
	{"a cursor does not tell its query", "List/with another cursor is refused"},
	{"a claim is entered when it is held", "Holding/a claim that says Hold is listed at once"},
	{"all claims are entered", "Holding/other claims are not listed"},
	{"the index is in no order", "Holding/oldest first"},
	{"what is held is entered again", "Holding/oldest first"},
	{"only claims that say Hold are entered", "Holding/what was held by its run is listed"},
	{"what lapses is not entered", "Holding/a lapsed claim found by a Hold is listed"},
	{"what is settled stays in the index", "Holding/what is settled is not listed"},
	{"List shows what has expired", "Holding/what has expired is not listed"},
	{"only the first claim is entered", "Holding/another claim of the key is listed"},
	{"a repeated claim is listed twice", "Holding/a repeated claim is listed once"},
	{"the index has no filters", "Holding/with filters"},

	{"a commit leaves out the rows", "Transaction/commits its rows with the answer"},
	{"a commit leaves out the record", "Transaction/commits its rows with the answer"},
	{"rows are there before the commit", "Transaction/commits its rows with the answer"},
	{"completed wakes nobody", "Transaction/wakes those who wait"},
	{"a rollback commits", "Transaction/rolls back without a record"},
	{"what was given up is committed with the next", "Transaction/that was given up is followed by another"},
	{"a commit does not look at the owner", "Transaction/of an owner that was overtaken is not committed"},
	{"a commit trusts an owner of the past", "Transaction/of an owner that was overtaken is not committed"},
	{"the owner is looked at when the transaction begins", "Transaction/that is open when another takes over is not committed"},
	{"a commit is accepted when released", "Transaction/after Release is not committed"},
	{"a commit is accepted when held", "Transaction/after Hold is not committed"},
	{"a commit looks first and writes afterwards", "Transaction/is committed or released"},
	{"a refused commit is unknown", "Transaction/whose commit is refused is rolled back"},
	{"a refused commit leaves its answer", "Transaction/whose commit is refused is rolled back"},
	{"a cancelled commit has rolled back what is there", "Transaction/a cancelled commit is looked up"},
	{"a step leaves out its rows", "Transaction/a step is recorded with its rows"},
	{"a step is recorded before its rows", "Transaction/a step is recorded with its rows"},
	{"rows are there before the commit", "Transaction/a step is recorded with its rows"},
	{"a step that fails is committed", "Transaction/a step that fails leaves nothing"},
	{"a step is recorded after its rows", "Transaction/a step of an owner that was overtaken leaves nothing"},
	{"a step outside of a run needs a record", "Transaction/a step outside of a run leaves its rows"},
}

// hangs is the bug that calls of a method outlive the deadline of their context.
func hangs(method string) string { return method + " hangs" }

// ObeysContext is about all methods of a store. One method that hangs is enough to fail.
func TestEveryMethodMustKeepItsDeadline(t *testing.T) {
	t.Parallel()
	for method := range (&env{store: &naiveStore{}}).calls() {
		for _, c := range contextStoreCases() {
			if !fails(t, c.name, naive(hangs(method))) {
				t.Errorf("a store whose %s hangs passes the case %q", method, c.name)
			}
		}
	}
}

// A store whose ObeysContext returns false need not keep deadlines.
func TestStoreMayDisobeyContexts(t *testing.T) {
	t.Parallel()
	for _, c := range contextStoreCases() {
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
	for _, c := range allCases() {
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
	for _, c := range allCases() {
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
	if want := len(contextStoreCases()) + len(stepCases()) + len(watcherCases()) + len(inspectorCases()) + len(listCases()) + len(transactionCases()) + noted + copied; skipped != want {
		t.Errorf("%d cases are skipped, want %d", skipped, want)
	}
}

// fails reports whether the case of that name fails with the harness.
func fails(t *testing.T, name string, h Harness) bool {
	t.Helper()
	for _, c := range allCases() {
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
