package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"example.com/idempotency/store"
)

// What an operator sees of many records, and of those that nobody has settled.

func listCases() []testCase {
	return []testCase{
		{"List/shows every record", listAll},
		{"List/a page has its limit at most", listPages},
		{"List/shows what stays while others come and go", listBusy},
		{"List/filters", listFilters},
		{"List/tells note and label", listNoted},
		{"List/leaves out what has expired", listExpired},
		{"List/with another cursor is refused", listBadCursor},
		{"Holding/a claim that says Hold is listed at once", holdingClaimed},
		{"Holding/other claims are not listed", holdingOthers},
		{"Holding/oldest first", holdingOldest},
		{"Holding/what was held by its run is listed", holdingHeld},
		{"Holding/a lapsed claim found by a Hold is listed", holdingFound},
		{"Holding/what is settled is not listed", holdingSettled},
		{"Holding/what has expired is not listed", holdingExpired},
		{"Holding/another claim of the key is listed", holdingAgain},
		{"Holding/a repeated claim is listed once", holdingRepeated},
		{"Holding/with filters", holdingFilters},
	}
}

// lister returns the store as a Lister, or skips the case.
func (e *env) lister() store.Lister {
	e.t.Helper()
	l, ok := e.store.(store.Lister)
	if !ok {
		e.t.Skip("the store is not an idempotency.Lister")
	}
	return l
}

// list returns all entries of a query, page by page. It fails the case if a page is too large, or
// if there is no end.
func (e *env) list(q store.Query) (entries []store.Entry) {
	e.t.Helper()
	for range 10_000 {
		page, err := e.lister().List(e.ctx, q)
		e.ok("List", err)
		if q.Limit > 0 && len(page.Entries) > q.Limit {
			e.t.Fatalf("List: a page has %d records, the limit is %d", len(page.Entries), q.Limit)
		}
		entries = append(entries, page.Entries...)
		if q.Cursor = page.Next; q.Cursor == "" {
			return entries
		}
	}
	e.t.Fatalf("List: there is no end")
	return nil
}

// listed fails the case unless the query has these keys, in any order.
func (e *env) listed(q store.Query, want ...string) {
	e.t.Helper()
	found := make(map[string]bool)
	for _, entry := range e.list(q) {
		if found[entry.Key] = true; !slices.Contains(want, entry.Key) {
			e.t.Errorf("List of %+v shows %s, which it does not ask for", q, show(entry.Record))
		}
	}
	for i, key := range want {
		if !found[key] {
			e.t.Errorf("List of %+v misses number %d of %d records", q, i, len(want))
		}
	}
}

var holdingAll = store.Query{Holding: true}

// Nobody resolves a record that no operator can see.
func listAll(e *env) {
	e.lister()
	e.listed(store.Query{})
	const n, answer = 100, "answer"
	want := make(map[string]store.Seen)
	for k := range n {
		name := fmt.Sprint("key ", k)
		key, owner := keyOf(name), ownerOf(name)
		e.mine(e.claim(key, owner), 1)
		state := store.Claimed
		switch k % 4 {
		case 1:
			state = store.Released
			e.ok("Release", e.store.Release(e.ctx, key, owner, store.Release{}))
		case 2:
			state = store.Held
			e.ok("Hold", e.store.Hold(e.ctx, key, owner))
		case 3:
			state = store.Completed
			e.ok("Complete", e.store.Complete(e.ctx, key, owner, completion(answer)))
		}
		want[key] = store.Seen{Owner: owner, Attempt: 1, State: state}
	}
	for _, entry := range e.list(store.Query{}) {
		r := entry.Record
		if r.Seen() != want[entry.Key] || r.Fingerprint != payload {
			e.t.Errorf("List: got %s and %v, want %v", show(r), r.Seen(), want[entry.Key])
		}
		if r.State == store.Completed {
			e.about(r, len(answer))
		}
		delete(want, entry.Key)
	}
	if len(want) != 0 {
		e.t.Errorf("List missed %d of %d records", len(want), n)
	}
}

// A console shows one screen at a time, and nothing walks through a million records at once.
func listPages(e *env) {
	e.lister()
	var want []string
	for k := range 30 {
		want = append(want, keyOf(fmt.Sprint(k)))
		e.mine(e.claim(want[k], alice, holding), 1)
	}
	for _, holding := range []bool{false, true} {
		for _, limit := range []int{1, 7, 1000, 0, -1} {
			e.listed(store.Query{Holding: holding, Limit: limit}, want...)
		}
	}
}

// An operator settles what a page shows, and then asks for the next. Requests do not wait for
// that.
func listBusy(e *env) {
	l := e.lister()
	for _, q := range []store.Query{{Limit: 5}, {Limit: 5, Holding: true}} {
		var want []string
		for k := range 60 {
			key := keyOf(fmt.Sprint(k, q.Holding))
			e.mine(e.claim(key, alice, holding), 1)
			if k%3 == 0 {
				want = append(want, key)
			}
		}
		found := make(map[string]bool)
		for pages := 0; ; pages++ {
			page, err := l.List(e.ctx, q)
			e.ok("List", err)
			for _, entry := range page.Entries {
				if found[entry.Key] = true; entry.Record.State == store.Claimed && !slices.Contains(want, entry.Key) {
					e.ok("Release", e.store.Release(e.ctx, entry.Key, alice, store.Release{}))
				}
			}
			if pages < 20 {
				e.mine(e.claim(keyOf(fmt.Sprint("new ", q.Holding, pages)), alice), 1)
			}
			if q.Cursor = page.Next; q.Cursor == "" {
				break
			}
		}
		for _, key := range want {
			if !found[key] {
				e.t.Errorf("List missed a record that was there all the time, with Holding=%t", q.Holding)
			}
		}
	}
}

func listFilters(e *env) {
	e.lister()
	old, young, done := keyOf("old"), keyOf("young"), keyOf("done")
	e.mine(e.claim(old, alice, labelled("a")), 1)
	e.mine(e.claim(done, alice, labelled("a")), 1)
	e.advance(10 * time.Second)
	e.mine(e.claim(young, alice, labelled("b")), 1)
	e.ok("Complete", e.store.Complete(e.ctx, done, alice, completion("answer")))

	states := func(s ...store.State) store.Query { return store.Query{States: s} }
	e.listed(states(), old, young, done)
	e.listed(states(store.Claimed), old, young)
	e.listed(states(store.Completed), done)
	e.listed(states(store.Held, store.Completed), done)
	e.listed(states(store.Released))
	e.listed(store.Query{Label: "a"}, old, done)
	e.listed(store.Query{Label: "b"}, young)
	e.listed(store.Query{Label: "c"})
	e.listed(store.Query{OlderThan: 5 * time.Second}, old)
	e.listed(store.Query{OlderThan: 15 * time.Second})
	e.listed(store.Query{Label: "a", States: []store.State{store.Claimed}, Limit: 1}, old)
}

// An operator's list says of which route a record is, and in which trace its run was.
func listNoted(e *env) {
	e.lister()
	long := fmt.Sprintf("%064d", 1)
	shows := func(label, note string) {
		e.t.Helper()
		for _, entry := range e.list(store.Query{}) {
			r, last := entry.Record, ""
			for n := range store.EachNote(r.Notes) {
				last = string(n)
			}
			if r.Label != label || last != note {
				e.t.Errorf("List: got the label %q and the notes %q, want %q and at least %q", r.Label, r.Notes, label, note)
			}
		}
	}
	e.claimed(noted("a"), labelled(long))
	shows(long, "a")
	e.ok("Release", e.release(alice))
	shows(long, "a")
	e.claim(key, bob, noted("b"), labelled("short"))
	shows("short", "b")
	e.ok("Complete", e.store.Complete(e.ctx, key, bob, completion("answer")))
	shows("short", "b")
}

func listExpired(e *env) {
	e.lister()
	e.completed("answer")
	e.listed(store.Query{}, key)
	e.advance(ttl + margin)
	e.listed(store.Query{})
}

// A cursor comes back from a console, perhaps with another query, or is a part of one.
func listBadCursor(e *env) {
	l := e.lister()
	for k := range 20 {
		e.mine(e.claim(keyOf(fmt.Sprint(k)), alice, holding), 1)
	}
	for _, holding := range []bool{false, true} {
		page, err := l.List(e.ctx, store.Query{Holding: holding, Limit: 1})
		e.ok("List", err)
		if page.Next == "" {
			e.t.Fatalf("List: there is no next page after %d of 20 records", len(page.Entries))
		}
		for _, cursor := range []string{
			"x", " ", "0", "1.2.3", "-1", page.Next[1:], "\xff", strings.Repeat("9", 1000), page.Next + "\x00",
		} {
			_, err := l.List(e.ctx, store.Query{Holding: holding, Cursor: cursor})
			e.refused(fmt.Sprintf("List with the cursor %.20q", cursor), err, store.ErrBadCursor)
		}
		_, err = l.List(e.ctx, store.Query{Holding: !holding, Cursor: page.Next})
		e.refused("List with the cursor of another query", err, store.ErrBadCursor)
	}
}

// If its process dies now, nobody else knows that the run has begun.
func holdingClaimed(e *env) {
	e.lister()
	e.claimed(holding)
	e.listed(holdingAll, key)
	e.advance(lease + margin)
	e.listed(holdingAll, key)
	e.notMine(e.claim(key, bob), store.Held, 1)
	e.listed(holdingAll, key)
}

func holdingOthers(e *env) {
	e.lister()
	e.claimed()
	e.listed(holdingAll)
	e.advance(lease + margin)
	e.listed(holdingAll)
	e.mine(e.claim(key, bob), 2)
	e.listed(holdingAll)
	e.notMine(e.claim(key, carol, holding), store.Claimed, 2)
	e.listed(holdingAll)
	e.ok("Complete", e.complete(bob, "answer"))
	e.listed(holdingAll)
	e.answer(e.claim(key, carol, holding), "answer")
	e.listed(holdingAll)
}

// Who comes to settle what is left begins with what has waited longest.
func holdingOldest(e *env) {
	e.lister()
	var want []string
	for k := range 40 {
		e.advance(time.Second) // or two of them are equally old
		want = append(want, keyOf(fmt.Sprint(k)))
		if k%5 > 0 {
			e.mine(e.claim(want[k], alice, holding), 1)
			continue
		}
		e.mine(e.claim(want[k], alice), 1)
		e.ok("Hold", e.store.Hold(e.ctx, want[k], alice))
	}
	e.ok("Renew", e.store.Renew(e.ctx, want[1], alice))
	e.ok("Hold", e.store.Hold(e.ctx, want[2], alice))
	for _, limit := range []int{0, 3} {
		var got []string
		for _, entry := range e.list(store.Query{Holding: true, Limit: limit}) {
			got = append(got, entry.Key)
		}
		if !slices.Equal(got, want) {
			e.t.Errorf("List: %d records that are not those that were claimed, in that order", len(got))
		}
	}
}

// The run has come to the end of what it knows. Its route says Rerun, and did not expect that.
func holdingHeld(e *env) {
	e.lister()
	e.claimed()
	e.ok("Hold", e.store.Hold(e.ctx, key, alice))
	e.listed(holdingAll, key)
	e.ok("repeated Hold", e.store.Hold(e.ctx, key, alice))
	e.listed(holdingAll, key)
	e.ok("Complete", e.complete(alice, "answer"))
	e.listed(holdingAll)
}

func holdingFound(e *env) {
	e.lister()
	e.claimed()
	e.advance(lease + margin)
	e.notMine(e.claim(key, bob, holding), store.Held, 1)
	e.listed(holdingAll, key)
	e.notMine(e.claim(key, bob, holding), store.Held, 1)
	e.listed(holdingAll, key)
}

func holdingSettled(e *env) {
	e.lister()
	claimed := func(name string) string {
		e.t.Helper()
		e.mine(e.claim(keyOf(name), alice, holding), 1)
		return keyOf(name)
	}
	live := claimed("live")
	e.ok("Complete", e.store.Complete(e.ctx, claimed("completed"), alice, completion("answer")))
	e.ok("Complete", e.store.Complete(e.ctx, claimed("large"), alice, completion(strings.Repeat("x", 100_000))))
	e.ok("Release", e.store.Release(e.ctx, claimed("released"), alice, store.Release{}))
	e.listed(holdingAll, live)
	i, ok := e.store.(store.Inspector)
	if !ok {
		return
	}
	byHand := []string{claimed("resolved"), claimed("reset"), claimed("forgotten")}
	for _, key := range byHand {
		e.ok("Hold", e.store.Hold(e.ctx, key, alice))
	}
	e.listed(holdingAll, append(byHand, live)...)
	seen := func(key string) store.Seen {
		r, err := i.Get(e.ctx, key)
		e.ok("Get", err)
		return r.Seen()
	}
	e.ok("Resolve", i.Resolve(e.ctx, byHand[0], seen(byHand[0]), answered("answer")))
	e.ok("Resolve", i.Resolve(e.ctx, byHand[1], seen(byHand[1]), released))
	e.ok("Forget", i.Forget(e.ctx, byHand[2], seen(byHand[2])))
	e.listed(holdingAll, live)
}

func holdingExpired(e *env) {
	e.lister()
	e.claimed(holding, holdEnding)
	e.listed(holdingAll, key)
	e.advance(retention + margin)
	e.listed(holdingAll)
	e.claimed() // what takes its place is not in the index
	e.listed(holdingAll)
	e.ok("Release", e.release(alice))
	e.mine(e.claim(key, bob, holding), 2)
	e.listed(holdingAll, key)
}

// What a listing has done about an earlier claim does not hide a later one.
func holdingAgain(e *env) {
	e.lister()
	e.claimed(holding)
	e.ok("Release", e.release(alice))
	e.mine(e.claim(key, bob, holding), 2)
	e.listed(holdingAll, key)
	e.ok("Release", e.release(bob))
	e.listed(holdingAll)
	e.mine(e.claim(key, carol, holding), 3)
	e.listed(holdingAll, key)
	e.ok("Release", e.release(carol))
	e.mine(e.claim(key, alice), 4)
	e.listed(holdingAll)
}

func holdingRepeated(e *env) {
	e.lister()
	e.claimed(holding)
	e.claimed(holding)
	e.mine(e.claim(keyOf("later"), bob, holding), 1)
	e.claimed(holding)
	if n := len(e.list(holdingAll)); n != 2 {
		e.t.Errorf("List shows %d records, want 2", n)
	}
}

func holdingFilters(e *env) {
	e.lister()
	live, lapsed := keyOf("live"), keyOf("lapsed")
	e.mine(e.claim(lapsed, alice, holding, labelled("a")), 1)
	e.advance(lease + margin)
	e.mine(e.claim(live, alice, holding, labelled("b")), 1)
	e.listed(holdingAll, live, lapsed)
	e.listed(store.Query{Holding: true, States: []store.State{store.Held}}, lapsed)
	e.listed(store.Query{Holding: true, States: []store.State{store.Claimed}}, live)
	e.listed(store.Query{Holding: true, Label: "b"}, live)
	e.listed(store.Query{Holding: true, OlderThan: lease}, lapsed)
}
