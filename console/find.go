package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"example.com/idempotency"
	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/store"
)

// This file finds records: by their name, their key, a reference, a tenant, the trace of a run, or its operation ID.

// A findPage is what the screen shows: forms, or what was found.
type findPage struct {
	Finds bool // the store finds records by references and tenants
	*inspect.Found
	Value string // what was looked for
	Rows  []shownRecord
	Later bool // it is not the first page
}

// finder finds with the secrets of all guards.
func (v *visit) finder() inspect.Finder {
	return inspect.FinderOf(append([]*idempotency.Guard{v.guard}, v.Guards...)...)
}

// finds reports whether the store finds records by references and tenants.
func (v *visit) finds() bool {
	f, ok := v.store.(store.Finder)
	return ok && f.KeepsTags() == nil
}

// showFind shows the forms, or what an address asks for that may stand in one.
func (v *visit) showFind(string) error {
	if name := strings.TrimSpace(v.r.FormValue("record")); name != "" {
		return v.leadTo(name)
	}
	for _, by := range walks {
		if text := v.r.FormValue(by); text != "" {
			return v.walk(by, text)
		}
	}
	return v.show(http.StatusOK, "find", "Find a key", findPage{Finds: v.finds()}, nil)
}

// search finds what a form asks for. It is a POST, so that neither keys nor names of people stand in an address or a log.
func (v *visit) search(string) error {
	f := v.r.PostForm
	for _, by := range walks {
		if f.Has(by) {
			return v.walk(by, f.Get(by))
		}
	}
	switch {
	case f.Has("q"):
		return v.findAny(strings.TrimSpace(f.Get("q")))
	case f.Has(inspect.ByReference):
		return v.findBy(inspect.ByReference, f.Get(inspect.ByReference))
	case f.Has(inspect.ByTenant):
		return v.findBy(inspect.ByTenant, f.Get(inspect.ByTenant))
	}
	return v.findKey()
}

// findAny finds whatever a text is: the name of a record, a reference, a tenant, a key, a trace, or an operation ID.
func (v *visit) findAny(text string) error {
	if text == "" {
		return unfinished("Say what you look for.")
	}
	if key, err := inspect.Named(text); err == nil {
		if found, err := v.leadToKey(key); found || err != nil {
			return err
		}
	}
	var unable error
	for _, by := range []string{inspect.ByReference, inspect.ByTenant} {
		page, err := v.found(by, text)
		switch {
		case errors.Is(err, idempotency.ErrNoFinder):
			unable = err
		case err != nil:
			return err
		case len(page.Records) > 0 || page.Next != "":
			return v.showFound(page)
		}
	}
	scope, value, _ := strings.Cut(text, " ")
	for _, key := range []idempotency.Key{{Scope: inspect.ScopeNamed(scope), Value: value}, {Scope: store.Shared, Value: text}} {
		if key.Value == "" || len(key.Value) > longestKey {
			continue
		}
		if found, err := v.leadToKey(key); found || err != nil {
			return err
		}
	}
	if _, ok := inspect.Walked(inspect.ByID, text); ok {
		return v.walk(inspect.ByID, text)
	}
	if unable != nil {
		return unable
	}
	page := &findPage{Found: newFound("any"), Value: text}
	page.Says = "Nothing is found: no record has this name, this reference, this tenant or this key. " + whyNothing
	return v.showFound(page)
}

// leadToKey leads to the record of a key, if there is one.
func (v *visit) leadToKey(k idempotency.Key) (found bool, err error) {
	i, err := inspect.Look(v.r.Context(), v.guard, k)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return false, nil
	case err != nil:
		return false, err
	}
	return true, v.leadTo(i.Record)
}

// whyNothing says what else may be the reason.
const whyNothing = "No such request may have come, or its record has ended. It may also be of a route that says nothing to be found by " +
	"(WithReference, WithFindableScope), or from before the route said so, or its secret was changed."

func newFound(by string) *inspect.Found {
	return &inspect.Found{Type: "found", By: by, Records: []inspect.Record{}}
}

func (v *visit) findBy(by, value string) error {
	if value == "" {
		return unfinished("Say which " + by + " you look for.")
	}
	page, err := v.found(by, value)
	if err != nil {
		return err
	}
	return v.showFound(page)
}

// found returns a page of the records that have a reference or are of a tenant.
func (v *visit) found(by, value string) (*findPage, error) {
	of := value
	if by == inspect.ByTenant {
		of = inspect.ScopeNamed(value)
	}
	pages := func(ctx context.Context, q store.Query) (store.Page, error) { return v.finder().Page(ctx, by, of, q) }
	q := store.Query{Cursor: v.r.PostFormValue("cursor")}
	page := &findPage{Found: newFound(by), Value: value, Later: q.Cursor != ""}
	var err error
	if q.Limit, err = limit(v.r.PostForm, pageSize, mostLooked); err != nil {
		return page, err
	}
	found, next, err := v.list(v.r.Context(), pages, q)
	if err != nil {
		return page, err
	}
	page.add(v, found, next)
	verb := map[string][2]string{inspect.ByReference: {"has", "have"}, inspect.ByTenant: {"is of", "are of"}}[by]
	page.Says = page.sum(verb[0], verb[1], "this "+by, whyNothing)
	return page, nil
}

func (p *findPage) add(v *visit, found []idempotency.RecordInfo, next string) {
	for _, i := range found {
		p.Records = append(p.Records, inspect.RecordOf(i))
		p.Rows = append(p.Rows, shownRecord{inspect.RecordOf(i), v.at(i.Age)})
	}
	p.Next = next
}

// sum says how many there are, or why there may be none.
func (p *findPage) sum(has, have, what, nothing string) string {
	n := len(p.Records)
	switch {
	case n == 0 && p.Next != "":
		return "Nothing is found on this page; the next one may have some. " + nothing
	case n == 0 && p.Later:
		return "Nothing else is found. " + nothing
	case n == 0:
		return "Nothing is found: no record " + has + " " + what + ". " + nothing
	}
	further := ""
	if p.Later {
		further = "further "
	}
	says := plural(n, further+"record "+has, further+"records "+have) + " " + what
	if p.Next != "" {
		says += ", and there may be more"
	}
	return says + "."
}

// walked is what is found by a walk through what waits for somebody, because no store has an index of it: what a text must be,
// what records have of it, and where else to look.
var walked = map[string]struct{ wants, has, have, what, hint string }{
	inspect.ByTrace: {
		"Give the ID of a trace, which has 32 hexadecimal digits and not only zeros, or a traceparent.",
		"has a run", "have runs", "of this trace", noTrace,
	},
	inspect.ByOperation: {"Give an operation ID, which has 32 hexadecimal digits.", "has", "have", "this operation ID", noOperation},
	inspect.ByID: {
		"Give an operation ID or the ID of a trace, which have 32 hexadecimal digits, or a traceparent.",
		"has", "have", "this trace or operation ID", noTrace + noOperation,
	},
}

// walks are the names of these in a form, in the order in which they are looked for.
var walks = []string{inspect.ByTrace, inspect.ByOperation, inspect.ByID}

// Why the record of a trace or an operation ID may not be found.
const (
	noTrace     = " No store finds by traces: the span of a request names any record, as idempotency.record."
	noOperation = " An operation ID is a digest of the client's key, and tells its record only where the route keeps keys (WithKeptKeys): " +
		"each line of the log that has the one has the name of the record, too."
)

// walk finds records by a trace or an operation ID among what waits for somebody.
func (v *visit) walk(by, text string) error {
	about := walked[by]
	is, ok := inspect.Walked(by, text)
	if !ok {
		return unfinished(about.wants)
	}
	q := store.Query{Holding: true, Limit: 2 * pageSize, Cursor: v.r.FormValue("cursor")}
	page := &findPage{Found: newFound(by), Value: strings.TrimSpace(text), Later: q.Cursor != ""}
	var of []idempotency.RecordInfo
	for n := 0; n == 0 || n < mostPages && q.Cursor != ""; n++ {
		looked, next, err := inspect.LookPage(v.r.Context(), v.lister.List, v.guardOf, q)
		if err != nil {
			return err
		}
		for _, i := range looked {
			if is(i) {
				of = append(of, i)
			}
		}
		page.Looked += len(looked)
		q.Cursor = next
	}
	page.add(v, of, q.Cursor)
	page.Says = strings.TrimSpace(page.sum(about.has, about.have, about.what, "")) +
		fmt.Sprintf(" Looked at %s that are held, or in flight on routes that hold, and at no others.", plural(page.Looked, "record", "records")) + about.hint
	return v.showFound(page)
}

// showFound shows what was found. A browser is led to what is the only one.
func (v *visit) showFound(p *findPage) error {
	if !v.wantsJSON() && len(p.Records) == 1 && p.Next == "" && !p.Later {
		return v.leadTo(p.Records[0].Record)
	}
	return v.show(http.StatusOK, "found", "Found", p, p.Found)
}

// longestKey is how long a key is at most, in bytes.
const longestKey = 255

// findKey leads to the record of a client's key.
func (v *visit) findKey() error {
	k := idempotency.Key{Scope: inspect.ScopeNamed(v.r.PostFormValue("scope")), Value: v.r.PostFormValue("key")}
	if k.Scope == "" {
		k.Scope = store.Shared
	}
	if k.Value == "" || len(k.Value) > longestKey {
		return unfinished("Give the key as the client has sent it: at least 1 byte, and at most 255.")
	}
	i, err := inspect.Look(v.r.Context(), v.guard, k)
	if err != nil {
		return err
	}
	return v.leadTo(i.Record)
}

func (v *visit) leadTo(name string) error {
	if _, err := inspect.Named(name); err != nil {
		return notFound(err.Error() + ".")
	}
	v.w.Header().Set("Location", v.base+"records/"+name)
	v.w.WriteHeader(http.StatusSeeOther)
	return nil
}
