package storetest

// The calls that the cases make for the key of an env, and the records that they begin with.

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"example.com/idempotency/store"
)

// An edit changes a claim.
type edit func(*store.Claim)

func holding(c *store.Claim)     { c.Hold = true }
func holdEnding(c *store.Claim)  { c.HoldEnds = true }
func watching(c *store.Claim)    { c.Watch = true }
func mismatching(c *store.Claim) { c.Fingerprint = otherPayload }

func noted(note string) edit     { return func(c *store.Claim) { c.Note = []byte(note) } }
func labelled(label string) edit { return func(c *store.Claim) { c.Label = label } }
func sealing(sealed string) edit { return func(c *store.Claim) { c.SealedKey = []byte(sealed) } }

// claimOf is a claim of the owner with the durations and the payload of the kit.
func claimOf(o store.Owner, edits ...edit) store.Claim {
	c := store.Claim{Owner: o, Fingerprint: payload, Lease: lease, Retention: retention}
	for _, edit := range edits {
		edit(&c)
	}
	return c
}

// completion is what a run with that answer gives to Complete.
func completion(answer string) store.Completion {
	return store.Completion{Answer: []byte(answer), Status: status, TTL: ttl}
}

// What a run says that has done nothing, and what is said of a claim under which none has begun.
var (
	undone = store.Release{Undone: true, Keep: kept, Unbind: true}
	unused = store.Release{Undone: true, Keep: kept, Unused: true}
)

// answered is what an operator with that answer gives to Resolve.
func answered(answer string) store.Settlement {
	c := completion(answer)
	return store.Settlement{Completion: &c}
}

// released is what an operator without an answer gives to Resolve.
var released store.Settlement

// undoing is what an operator gives to Resolve who knows that steps did not happen: names and
// values in turn.
func undoing(steps ...string) store.Settlement {
	return store.Settlement{Undone: inTurn(steps)}
}

// heldBy is what somebody has seen of a held record.
func heldBy(o store.Owner, attempt int) store.Seen {
	return store.Seen{Owner: o, Attempt: attempt, State: store.Held}
}

// claim makes the claim of claimOf.
func (e *env) claim(o store.Owner, edits ...edit) view {
	e.t.Helper()
	r, err := e.store.Claim(e.ctx, e.key, claimOf(o, edits...))
	e.returned("Claim", err)
	return view{r, e.t}
}

func (e *env) renew(o store.Owner) {
	e.t.Helper()
	e.returned("Renew", e.store.Renew(e.ctx, e.key, o))
}

func (e *env) complete(o store.Owner, answer string) {
	e.t.Helper()
	e.completeWith(o, completion(answer))
}

func (e *env) completeWith(o store.Owner, c store.Completion) {
	e.t.Helper()
	e.returned("Complete", e.store.Complete(e.ctx, e.key, o, c))
}

// release releases the key as o. Without a Release it says nothing about what o has done.
func (e *env) release(o store.Owner, said ...store.Release) {
	e.t.Helper()
	e.returned("Release", e.store.Release(e.ctx, e.key, o, append(said, store.Release{})[0]))
}

// hold holds the key as o. Without a note, that of the claim stays.
func (e *env) hold(o store.Owner, note ...string) {
	e.t.Helper()
	e.returned("Hold", e.store.Hold(e.ctx, e.key, o, []byte(strings.Join(note, ""))))
}

// save saves steps, given as names and values in turn.
func (e *env) save(o store.Owner, steps ...string) {
	e.t.Helper()
	for i := 0; i < len(steps); i += 2 {
		err := optional[store.StepStore](e).SaveStep(e.ctx, e.key, o, steps[i], []byte(steps[i+1]))
		e.returned("SaveStep", err)
	}
}

func (e *env) resolve(seen store.Seen, s store.Settlement) {
	e.t.Helper()
	err := optional[store.Inspector](e).Resolve(e.ctx, e.key, seen, s)
	e.returned("Resolve of "+seen.String(), err)
}

func (e *env) forget(seen store.Seen) {
	e.t.Helper()
	e.returned("Forget of "+seen.String(), optional[store.Inspector](e).Forget(e.ctx, e.key, seen))
}

func (e *env) get() view {
	e.t.Helper()
	r, err := optional[store.Inspector](e).Get(e.ctx, e.key)
	e.returned("Get", err)
	return view{r, e.t}
}

func (e *env) getAnswer() view {
	e.t.Helper()
	r, err := optional[store.Inspector](e).GetAnswer(e.ctx, e.key)
	e.returned("GetAnswer", err)
	return view{r, e.t}
}

// page returns one page of a query.
func (e *env) page(q store.Query) store.Page {
	e.t.Helper()
	page, err := optional[store.Lister](e).List(e.ctx, q)
	e.returned(fmt.Sprintf("List with the cursor %.40q", q.Cursor), err)
	return page
}

// list returns all entries of a query, page by page.
func (e *env) list(q store.Query) []store.Entry {
	e.t.Helper()
	return e.walk("List", q, e.page)
}

// walk returns all entries of the pages that page returns. It fails the case if one is too large, or if there is
// no end.
func (e *env) walk(call string, q store.Query, page func(store.Query) store.Page) (entries []store.Entry) {
	e.t.Helper()
	for range 10_000 {
		page := page(q)
		if q.Limit > 0 && len(page.Entries) > q.Limit {
			e.t.Fatalf("%s: a page has %d records, the limit is %d", call, len(page.Entries), q.Limit)
		}
		entries = append(entries, page.Entries...)
		if q.Cursor = page.Next; q.Cursor == "" {
			return entries
		}
	}
	e.t.Fatalf("%s: there is no end", call)
	return nil
}

// listed fails the case unless the query has these keys, in any order.
func (e *env) listed(q store.Query, want ...*env) {
	e.t.Helper()
	e.shows(fmt.Sprintf("List of %+v", q), e.list(q), want)
}

// shows fails the case unless these entries are those of the keys, in any order.
func (e *env) shows(call string, entries []store.Entry, want []*env) {
	e.t.Helper()
	found := make(map[string]bool)
	for _, entry := range entries {
		found[entry.Key] = true
		if !slices.ContainsFunc(want, func(w *env) bool { return w.key == entry.Key }) {
			e.t.Errorf("%s shows %v, which it does not ask for", call, view{entry.Record, e.t})
		}
	}
	for i, w := range want {
		if !found[w.key] {
			e.t.Errorf("%s misses number %d of %d records", call, i, len(want))
		}
	}
}

// sealedKey fails the case unless operators are told this sealed key, by whatever they use.
func (e *env) sealedKey(want string) {
	e.t.Helper()
	seen := map[string]store.Record{"Get": e.get().Record, "GetAnswer": e.getAnswer().Record}
	for _, entry := range e.list(store.Query{}) {
		if entry.Key == e.key {
			seen["List"] = entry.Record
		}
	}
	for from, r := range seen {
		if string(r.SealedKey) != want || want == "" && r.SealedKey != nil {
			e.t.Errorf("%s: got the sealed key %.40q, want %.40q", from, r.SealedKey, want)
		}
	}
}

// watch watches the key until the case ends.
func (e *env) watch() (settled <-chan struct{}, stop func()) {
	e.t.Helper()
	settled, stop, err := optional[store.Watcher](e).Watch(e.ctx, e.key)
	e.returned("Watch", err)
	e.t.Cleanup(stop)
	return settled, stop
}

// woken reports whether a value comes within the kit's patience.
func woken(settled <-chan struct{}) bool {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-settled:
		return true
	case <-timer.C:
		return false
	}
}

// wakes fails the case unless each channel gets a value.
func (e *env) wakes(settled ...<-chan struct{}) {
	e.t.Helper()
	for i, c := range settled {
		if !woken(c) {
			e.t.Fatalf("watcher %d was not woken", i+1)
		}
	}
}

// The records that cases begin with. Without more, they are alice's, attempt 1.

func (e *env) claimed(edits ...edit) {
	e.t.Helper()
	e.claim(alice, edits...).mine(1)
}

func (e *env) lapsed(edits ...edit) {
	e.t.Helper()
	e.claimed(edits...)
	e.advance(lease + margin)
}

// takenOver makes a record that bob has taken over from alice.
func (e *env) takenOver() {
	e.t.Helper()
	e.lapsed()
	e.claim(bob).mine(2)
}

func (e *env) released(edits ...edit) {
	e.t.Helper()
	e.claimed(edits...)
	e.release(alice)
}

func (e *env) held(edits ...edit) {
	e.t.Helper()
	e.claimed(edits...)
	e.hold(alice)
}

func (e *env) completed(answer string, edits ...edit) {
	e.t.Helper()
	e.claimed(edits...)
	e.complete(alice, answer)
}

// undo makes a claim, as the given attempt, and releases it as undone.
func (e *env) undo(o store.Owner, attempt int, edits ...edit) {
	e.t.Helper()
	e.claim(o, edits...).mine(attempt)
	e.release(o, undone)
}

// mismatch claims the key for another payload. It fails the case unless the record comes
// back unchanged.
func (e *env) mismatch(s store.State, attempt int) {
	e.t.Helper()
	e.claim(carol, mismatching).notMine(s, attempt).bound()
}

// absent fails the case unless a claim of bob finds nothing and makes a new record.
func (e *env) absent() {
	e.t.Helper()
	e.claim(bob, mismatching).mine(1).boundTo(otherPayload).steps()
}

// stays fails the case unless the record, which carol has released as undone, is bound and kept
// as if she had not said so.
func (e *env) stays(attempt int) {
	e.t.Helper()
	e.claim(carol).released(attempt).ttl(retention)
	e.claim(bob, mismatching).released(attempt).bound()
}

// concurrently calls f n times at once. An error of any call fails the case.
func (e *env) concurrently(n int, f func(i int) error) {
	e.t.Helper()
	errs := make([]error, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			errs[i] = f(i)
		})
	}
	close(start)
	wg.Wait()
	e.returned("concurrent call", errors.Join(errs...))
}

// race lets a hundred owners claim the key at once, each for its payload. It fails the case unless
// one of them gets the attempt, and all others see that attempt in flight.
func (e *env) race(attempt int, payloadOf func(i int) store.Fingerprint) {
	e.t.Helper()
	seen := make([]view, 100)
	e.concurrently(len(seen), func(i int) error {
		c := claimOf(ownerOf(fmt.Sprint("racer ", i)))
		c.Fingerprint = payloadOf(i)
		r, err := e.store.Claim(e.ctx, e.key, c)
		seen[i] = view{r, e.t}
		return err
	})
	winner := slices.IndexFunc(seen, func(r view) bool { return r.Mine })
	if winner < 0 {
		e.t.Fatalf("none of %d callers holds the claim", len(seen))
	}
	for i, r := range seen {
		switch {
		case i == winner:
			r.mine(attempt).boundTo(payloadOf(winner))
		case r.State == store.Claimed && r.Attempt == attempt-1 && attempt > 1:
			// The store has seen the record as it was while the winner was changing it. So it may bind
			// it to another payload still.
		default:
			r.claimed(attempt).boundTo(payloadOf(winner))
		}
	}
}
