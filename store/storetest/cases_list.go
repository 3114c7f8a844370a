package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"example.com/idempotency/store"
)

// What an operator sees of many records, and of those that nobody has settled.

var listCases = []testCase{
	// Nobody resolves a record that no operator can see.
	{"List/shows every record", func(e *env) {
		e.listed(store.Query{})
		const n, answer = 100, "answer"
		want := make(map[string]store.Seen)
		for k := range n {
			name := fmt.Sprint("key ", k)
			e, owner := e.on(name), ownerOf(name)
			e.claim(owner).mine(1)
			state := store.Claimed
			switch k % 4 {
			case 1:
				state = store.Released
				e.release(owner)
			case 2:
				state = store.Held
				e.hold(owner)
			case 3:
				state = store.Completed
				e.complete(owner, answer)
			}
			want[e.key] = store.Seen{Owner: owner, Attempt: 1, State: state}
		}
		for _, entry := range e.list(store.Query{}) {
			r := view{entry.Record, e.t}
			if r.Seen() != want[entry.Key] || r.Fingerprint != payload {
				e.t.Errorf("List: got %v and %v, want %v", r, r.Seen(), want[entry.Key])
			}
			if r.State == store.Completed {
				r.about(len(answer)).answerless()
			}
			delete(want, entry.Key)
		}
		if len(want) != 0 {
			e.t.Errorf("List missed %d of %d records", len(want), n)
		}
	}},
	// A console shows one screen at a time, and nothing walks through a million records at once.
	{"List/a page has its limit at most", func(e *env) {
		var want []*env
		for k := range 30 {
			want = append(want, e.on(fmt.Sprint(k)))
			want[k].claimed(holding)
		}
		for _, holding := range []bool{false, true} {
			for _, limit := range []int{1, 7, 1000, 0, -1} {
				e.listed(store.Query{Holding: holding, Limit: limit}, want...)
			}
		}
	}},
	// An operator settles what a page shows, and then asks for the next. Requests do not wait for
	// that.
	{"List/shows what stays while others come and go", func(e *env) {
		for _, q := range []store.Query{{Limit: 5}, {Limit: 5, Holding: true}} {
			shown := make(map[string]bool) // of the keys that stay
			for k := range 60 {
				e := e.on(fmt.Sprint(k, q.Holding))
				if e.claimed(holding); k%3 == 0 {
					shown[e.key] = false
				}
			}
			for pages := 0; pages == 0 || q.Cursor != ""; pages++ {
				page := e.page(q)
				for _, entry := range page.Entries {
					if _, stays := shown[entry.Key]; stays {
						shown[entry.Key] = true
					} else if entry.Record.State == store.Claimed {
						other := *e
						other.key = entry.Key
						other.release(alice)
					}
				}
				if pages < 20 {
					e.on(fmt.Sprint("new ", q.Holding, pages)).claimed()
				}
				if q.Cursor = page.Next; pages > 1000 {
					e.t.Fatalf("List: there is no end")
				}
			}
			for _, was := range shown {
				if !was {
					e.t.Errorf("List missed a record that was there all the time, with Holding=%t", q.Holding)
				}
			}
		}
	}},
	{"List/filters", func(e *env) {
		old, young, done := e.on("old"), e.on("young"), e.on("done")
		old.claimed(labelled("a"))
		done.claimed(labelled("a"))
		e.advance(100 * time.Second)
		young.claimed(labelled("b"))
		done.complete(alice, "answer")

		states := func(s ...store.State) store.Query { return store.Query{States: s} }
		e.listed(states(), old, young, done)
		e.listed(states(store.Claimed), old, young)
		e.listed(states(store.Completed), done)
		e.listed(states(store.Held, store.Completed), done)
		e.listed(states(store.Released))
		e.listed(store.Query{Label: "a"}, old, done)
		e.listed(store.Query{Label: "b"}, young)
		e.listed(store.Query{Label: "c"})
		e.listed(store.Query{OlderThan: 50 * time.Second}, old)
		e.listed(store.Query{OlderThan: 150 * time.Second})
		e.listed(store.Query{Label: "a", States: []store.State{store.Claimed}, Limit: 1}, old)
	}},
	// An operator's list says of which route a record is, and in which trace its run was.
	{"List/tells note and label", func(e *env) {
		long := fmt.Sprintf("%064d", 1)
		shows := func(label, note string) {
			e.t.Helper()
			for _, entry := range e.list(store.Query{}) {
				r := view{entry.Record, e.t}.label(label)
				if notes := notesOf(r.Record); len(notes) == 0 || notes[len(notes)-1] != note {
					e.t.Errorf("List: got the notes %q, want at least %q", notes, note)
				}
			}
		}
		e.claimed(noted("a"), labelled(long))
		shows(long, "a")
		e.release(alice)
		shows(long, "a")
		e.claim(bob, noted("b"), labelled("short"))
		shows("short", "b")
		e.complete(bob, "answer")
		shows("short", "b")
	}},
	{"List/leaves out what has expired", func(e *env) {
		e.completed("answer")
		e.listed(store.Query{}, e)
		e.advance(ttl + margin)
		e.listed(store.Query{})
	}},
	// A cursor comes back from a console, perhaps with another query, or is a part of one.
	{"List/with another cursor is refused", func(e *env) {
		for k := range 20 {
			e.on(fmt.Sprint(k)).claimed(holding)
		}
		for _, holding := range []bool{false, true} {
			page := e.page(store.Query{Holding: holding, Limit: 1})
			if page.Next == "" {
				e.t.Fatalf("List: there is no next page after %d of 20 records", len(page.Entries))
			}
			for _, cursor := range []string{
				"x", " ", "0", "1.2.3", "-1", page.Next[1:], "\xff", strings.Repeat("9", 1000), page.Next + "\x00",
			} {
				e.refused(store.ErrBadCursor).page(store.Query{Holding: holding, Cursor: cursor})
			}
			e.refused(store.ErrBadCursor).page(store.Query{Holding: !holding, Cursor: page.Next})
		}
	}},
	// It may also be made up, or damaged on its way. A place that no page has named is none to go on
	// from, and a place in the records of one label is none in those of another.
	{"List/with a forged cursor is refused", func(e *env) {
		for k := range 20 {
			e.on(fmt.Sprint(k)).claimed(holding, labelled([]string{"a", "b"}[k%2]))
		}
		claimed := []store.State{store.Claimed}
		queries := []store.Query{
			{}, {Label: "a"}, {Label: "b"}, {States: claimed}, {States: append(claimed, store.Held)}, {Label: "a", States: claimed},
		}
		for _, q := range queries {
			queries = append(queries, store.Query{Holding: true, Label: q.Label, States: q.States})
		}
		for i, q := range queries {
			q.Limit = 1
			cursor := e.page(q).Next
			if cursor == "" {
				e.t.Fatalf("List: there is no next page after 1 of 20 records, or of 10 with a label")
			}
			forged := []string{
				strings.Repeat(cursor, 2), strings.Repeat(cursor, 10_000), strings.Repeat("A", 1<<20), cursor + cursor[:1],
				"9223372036854775808", "18446744073709551616", "-9223372036854775809", "0x1", "1e3", "null", "{}", "[]", "../..", "%00", ".", "..", "...",
			}
			for n := range cursor {
				forged = append(forged, cursor[:max(1, n)], cursor[n:]+cursor[:n]+"!", cursor[:n]+"!"+cursor[n+1:], cursor[:n]+"\xff"+cursor[n:])
				if n > 0 {
					forged = append(forged, cursor[n:])
				}
			}
			for _, junk := range []string{"!", "=", "==", "\n", "\r\n", " ", "\x00", "\xff", "ß", ".", ".0", "/", "%20", "A", "0"} {
				forged = append(forged, cursor+junk, junk+cursor)
			}
			for _, q.Cursor = range forged {
				e.refused(store.ErrBadCursor).page(q)
			}
			for j, other := range queries {
				if other.Cursor = cursor; i != j {
					e.refused(store.ErrBadCursor).page(other)
				}
			}
			q.Cursor = cursor
			e.page(q)
		}
	}},
	// If its process dies now, nobody else knows that the run has begun.
	{"Holding/a claim that says Hold is listed at once", func(e *env) {
		e.claimed(holding)
		e.listed(holdingAll, e)
		e.advance(lease + margin)
		e.listed(holdingAll, e)
		e.claim(bob).held(1)
		e.listed(holdingAll, e)
	}},
	{"Holding/other claims are not listed", func(e *env) {
		e.claimed()
		e.listed(holdingAll)
		e.advance(lease + margin)
		e.listed(holdingAll)
		e.claim(bob).mine(2)
		e.listed(holdingAll)
		e.claim(carol, holding).claimed(2)
		e.listed(holdingAll)
		e.complete(bob, "answer")
		e.listed(holdingAll)
		e.claim(carol, holding).answer("answer")
		e.listed(holdingAll)
	}},
	// Who comes to settle what is left begins with what has waited longest.
	{"Holding/oldest first", func(e *env) {
		var want []string
		for k := range 40 {
			e.advance(10 * time.Second) // or two of them are equally old
			e := e.on(fmt.Sprint(k))
			want = append(want, e.key)
			if k%5 > 0 {
				e.claimed(holding)
			} else {
				e.held()
			}
		}
		e.on("1").renew(alice)
		e.on("2").hold(alice)
		for _, limit := range []int{0, 3} {
			var got []string
			for _, entry := range e.list(store.Query{Holding: true, Limit: limit}) {
				got = append(got, entry.Key)
			}
			if !slices.Equal(got, want) {
				e.t.Errorf("List: %d records that are not those that were claimed, in that order", len(got))
			}
		}
	}},
	// The run has come to the end of what it knows. Its route says Rerun, and did not expect that.
	{"Holding/what was held by its run is listed", func(e *env) {
		e.held()
		e.listed(holdingAll, e)
		e.hold(alice)
		e.listed(holdingAll, e)
		e.complete(alice, "answer")
		e.listed(holdingAll)
	}},
	{"Holding/a lapsed claim found by a Hold is listed", func(e *env) {
		e.lapsed()
		e.claim(bob, holding).held(1)
		e.listed(holdingAll, e)
		e.claim(bob, holding).held(1)
		e.listed(holdingAll, e)
	}},
	{"Holding/what is settled is not listed", func(e *env) {
		live, completed, large := e.on("live"), e.on("completed"), e.on("large")
		live.claimed(holding)
		completed.claimed(holding)
		completed.complete(alice, "answer")
		large.claimed(holding)
		large.complete(alice, strings.Repeat("x", 100_000))
		e.on("released").released(holding)
		e.listed(holdingAll, live)
		if _, ok := e.store.(store.Inspector); !ok {
			return
		}
		resolved, reset, forgotten := e.on("resolved"), e.on("reset"), e.on("forgotten")
		for _, e := range []*env{resolved, reset, forgotten} {
			e.held(holding)
		}
		e.listed(holdingAll, resolved, reset, forgotten, live)
		resolved.resolve(resolved.get().Seen(), answered("answer"))
		reset.resolve(reset.get().Seen(), released)
		forgotten.forget(forgotten.get().Seen())
		e.listed(holdingAll, live)
	}},
	{"Holding/what has expired is not listed", func(e *env) {
		e.claimed(holding, holdEnding)
		e.listed(holdingAll, e)
		e.advance(retention + margin)
		e.listed(holdingAll)
		e.claimed() // what takes its place is not in the index
		e.listed(holdingAll)
		e.release(alice)
		e.claim(bob, holding).mine(2)
		e.listed(holdingAll, e)
	}},
	// What a listing has done about an earlier claim does not hide a later one.
	{"Holding/another claim of the key is listed", func(e *env) {
		e.released(holding)
		e.claim(bob, holding).mine(2)
		e.listed(holdingAll, e)
		e.release(bob)
		e.listed(holdingAll)
		e.claim(carol, holding).mine(3)
		e.listed(holdingAll, e)
		e.release(carol)
		e.claim(alice).mine(4)
		e.listed(holdingAll)
	}},
	{"Holding/a repeated claim is listed once", func(e *env) {
		e.claimed(holding)
		e.claimed(holding)
		e.on("later").claim(bob, holding).mine(1)
		e.claimed(holding)
		if n := len(e.list(holdingAll)); n != 2 {
			e.t.Errorf("List shows %d records, want 2", n)
		}
	}},
	{"Holding/with filters", func(e *env) {
		live, lapsed := e.on("live"), e.on("lapsed")
		lapsed.lapsed(holding, labelled("a"))
		live.claimed(holding, labelled("b"))
		e.listed(holdingAll, live, lapsed)
		e.listed(store.Query{Holding: true, States: []store.State{store.Held}}, lapsed)
		e.listed(store.Query{Holding: true, States: []store.State{store.Claimed}}, live)
		e.listed(store.Query{Holding: true, Label: "b"}, live)
		e.listed(store.Query{Holding: true, OlderThan: lease}, lapsed)
	}},
}

var holdingAll = store.Query{Holding: true}
