package storetest

import (
	"fmt"
	"strings"
	"time"

	"example.com/idempotency/store"
)

// What an operator finds who has no key, but an order number or the name of a tenant.

// tagOf returns the tag of a name.
func tagOf(name string) store.Tag { return store.Tag(ownerOf("tag of " + name)) }

// tagged gives a claim the tags of these names.
func tagged(names ...string) edit {
	return func(c *store.Claim) {
		for _, name := range names {
			c.Tags = append(c.Tags, tagOf(name))
		}
	}
}

// finder returns the store as one that keeps tags, or skips the case.
func (e *env) finder() store.Finder {
	e.t.Helper()
	f := optional[store.Finder](e)
	if err := f.KeepsTags(); err != nil {
		e.t.Skip("the store keeps no tags:", err)
	}
	return f
}

// findPage returns one page of the records that have the tag.
func (e *env) findPage(tag string, q store.Query) store.Page {
	e.t.Helper()
	page, err := e.finder().Find(e.ctx, tagOf(tag), q)
	e.returned(fmt.Sprintf("Find with the cursor %.40q", q.Cursor), err)
	return page
}

// find returns all entries that have the tag, page by page.
func (e *env) find(tag string, q store.Query) []store.Entry {
	e.t.Helper()
	return e.walk("Find", q, func(q store.Query) store.Page { e.t.Helper(); return e.findPage(tag, q) })
}

// found fails the case unless these records have the tag, and no others.
func (e *env) found(tag string, want ...*env) {
	e.t.Helper()
	e.foundBy(tag, store.Query{}, want...)
}

func (e *env) foundBy(tag string, q store.Query, want ...*env) {
	e.t.Helper()
	e.shows(fmt.Sprintf("Find of %q by %+v", tag, q), e.find(tag, q), want)
}

var tagCases = []testCase{
	// Did order 77 go through?
	{"Tag/finds the record in each state", func(e *env) {
		e.found("77")
		for name, ends := range map[string]func(e *env){
			"claimed":   func(*env) {},
			"renewed":   func(e *env) { e.renew(alice) },
			"completed": func(e *env) { e.complete(alice, "answer") },
			"released":  func(e *env) { e.release(alice) },
			"undone":    func(e *env) { e.release(alice, undone) },
			"held":      func(e *env) { e.hold(alice) },
			"lapsed":    func(e *env) { e.advance(lease + margin) },
		} {
			e := e.on(name)
			e.claimed(tagged(name))
			ends(e)
			e.found(name, e)
			if entries := e.find(name, store.Query{}); len(entries) > 0 {
				r := view{entries[0].Record, e.t}
				r.bound().answerless()
				if r.Owner != alice || r.Attempt != 1 {
					e.t.Errorf("Find: got %v of another owner or attempt", r)
				}
			}
		}
		e.found("77")
	}},
	{"Tag/finds by each tag, and by no other", func(e *env) {
		first, second, none := e.on("first"), e.on("second"), e.on("none")
		first.claimed(tagged("a", "b", "c", "d"))
		second.claimed(tagged("b"))
		none.claimed()
		e.found("a", first)
		e.found("b", first, second)
		e.found("c", first)
		e.found("d", first)
		e.found("e")
	}},
	{"Tag/of a claim that was not granted finds nothing", func(e *env) {
		e.claimed(tagged("first"))
		e.claim(bob, tagged("second")).claimed(1)
		e.claim(bob, mismatching, tagged("other"))
		e.complete(alice, "answer")
		e.claim(bob, tagged("third")).answer("answer")
		e.found("first", e)
		e.found("second")
		e.found("third")
		e.found("other")
	}},
	// A process that does not know of tags takes over from one that does.
	{"Tag/stays when a later claim has none", func(e *env) {
		e.lapsed(tagged("77"))
		e.claim(bob).mine(2)
		e.found("77", e)
		e.complete(bob, "answer")
		e.advance(retention)
		e.found("77", e)
	}},
	{"Tag/gives way to those of a later claim", func(e *env) {
		e.released(tagged("77", "78"))
		e.claim(bob, tagged("78", "79")).mine(2)
		e.found("77")
		e.found("78", e)
		e.found("79", e)
	}},
	{"Tag/a repeated claim is found once", func(e *env) {
		e.claimed(tagged("77", "77"))
		e.claimed(tagged("77", "77"))
		if n := len(e.find("77", store.Query{})); n != 1 {
			e.t.Errorf("Find shows %d records, want 1", n)
		}
	}},
	// Another request has the key since, and it may be about something else.
	{"Tag/is not that of another payload", func(e *env) {
		e.claimed(tagged("77"))
		e.release(alice, undone)
		e.claim(bob, mismatching).mine(2)
		e.found("77")
	}},
	{"Tag/ends with the record", func(e *env) {
		claimed, completed, forgotten := e.on("claimed"), e.on("completed"), e.on("forgotten")
		claimed.claimed(tagged("77"))
		completed.completed("answer", tagged("77"))
		e.found("77", claimed, completed)
		e.advance(retention + margin)
		e.found("77", completed)
		e.advance(ttl)
		e.found("77")
		if _, ok := e.store.(store.Inspector); !ok {
			return
		}
		forgotten.held(tagged("77"))
		e.found("77", forgotten)
		forgotten.forget(forgotten.get().Seen())
		e.found("77")
		forgotten.claimed(mismatching)
		e.found("77")
	}},
	// What takes the place of a record that has expired is not that record.
	{"Tag/is not that of the next record", func(e *env) {
		other := e.on("other")
		e.claimed(tagged("77"))
		other.claimed(tagged("77"))
		e.advance(retention + margin)
		e.claim(bob, mismatching).mine(1)
		other.claim(bob, tagged("78")).mine(1)
		e.found("77")
		e.found("78", other)
	}},
	// The tag lasts as long as the record, and nobody says beforehand how long that is.
	{"Tag/lasts as long as the record", func(e *env) {
		renewed, released, held, lapsed, found := e.on("renewed"), e.on("released"), e.on("held"), e.on("lapsed"), e.on("found")
		all := map[string]*env{"renewed": renewed, "released": released, "held": held, "lapsed": lapsed, "found": found}
		for tag, e := range all {
			if e == lapsed {
				e.claimed(holding, tagged(tag))
			} else {
				e.claimed(tagged(tag))
			}
		}
		held.hold(alice)
		e.advance(lease + margin)
		found.claim(bob, holding).held(1)
		for k := range 3 {
			e.advance(retention - lease - 2*margin)
			renewed.renew(alice)
			next := ownerOf(fmt.Sprint(k))
			released.claim(next).mine(k + 2)
			released.release(next)
		}
		for tag, e := range all {
			e.found(tag, e)
		}
		if _, ok := e.store.(store.Inspector); !ok {
			return
		}
		held.resolve(held.get().Seen(), answered("answer"))
		e.advance(retention + margin) // and less than the TTL of the answer
		e.found("renewed")
		e.found("released")
		e.found("held", held)
		e.advance(ttl)
		e.found("held")
		e.found("lapsed", lapsed)
		e.found("found", found)
	}},
	{"Tag/many records have it", func(e *env) {
		const n = 300
		var want []*env
		for k := range n {
			want = append(want, e.on(fmt.Sprint(k)))
			want[k].claimed(tagged("tenant", fmt.Sprint(k)))
		}
		e.found("tenant", want...)
		for _, limit := range []int{1, 7, 1000} {
			e.foundBy("tenant", store.Query{Limit: limit}, want...)
		}
		e.found("17", want[17])
	}},
	// An operator erases what a page shows, and then asks for the next.
	{"Tag/shows what stays while others come and go", func(e *env) {
		shown := make(map[string]bool) // of the keys that stay
		for k := range 200 {
			e := e.on(fmt.Sprint(k))
			if e.completed("answer", tagged("tenant")); k%3 == 0 {
				shown[e.key] = false
			}
		}
		q := store.Query{Limit: 5}
		for pages := 0; pages == 0 || q.Cursor != ""; pages++ {
			page := e.findPage("tenant", q)
			for _, entry := range page.Entries {
				if _, stays := shown[entry.Key]; stays {
					shown[entry.Key] = true
				} else if i, ok := e.store.(store.Inspector); ok && entry.Record.State == store.Completed {
					e.returned("Forget", i.Forget(e.ctx, entry.Key, entry.Record.Seen()))
				}
			}
			if pages < 20 {
				e.on(fmt.Sprint("new ", pages)).claimed(tagged("tenant"))
			}
			if q.Cursor = page.Next; pages > 1000 {
				e.t.Fatalf("Find: there is no end")
			}
		}
		for _, was := range shown {
			if !was {
				e.t.Errorf("Find missed a record that was there all the time")
			}
		}
	}},
	{"Tag/with filters", func(e *env) {
		old, young, done := e.on("old"), e.on("young"), e.on("done")
		old.claimed(labelled("a"), tagged("77"))
		done.claimed(labelled("a"), tagged("77"))
		e.advance(100 * time.Second)
		young.claimed(labelled("b"), tagged("77"))
		done.complete(alice, "answer")
		e.foundBy("77", store.Query{States: []store.State{store.Claimed}}, old, young)
		e.foundBy("77", store.Query{Label: "a"}, old, done)
		e.foundBy("77", store.Query{OlderThan: 50 * time.Second}, old)
	}},
	{"Tag/with another cursor is refused", func(e *env) {
		for k := range 40 {
			e.on(fmt.Sprint(k)).claimed(tagged("77", "78"))
		}
		page := e.findPage("77", store.Query{Limit: 1})
		if page.Next == "" {
			e.t.Fatalf("Find: there is no next page after %d of 40 records", len(page.Entries))
		}
		e.refused(store.ErrBadCursor).findPage("78", store.Query{Cursor: page.Next})
		e.refused(store.ErrBadCursor).findPage("77", store.Query{Cursor: page.Next, Label: "a"})
		for _, cursor := range []string{"x", page.Next[1:], page.Next + "\x00", strings.Repeat(page.Next, 2)} {
			e.refused(store.ErrBadCursor).findPage("77", store.Query{Cursor: cursor})
		}
		if _, ok := e.store.(store.Lister); ok {
			e.refused(store.ErrBadCursor).page(store.Query{Cursor: page.Next})
		}
		e.findPage("77", store.Query{Cursor: page.Next})
	}},
}
