package store

import (
	"context"
	"slices"
	"time"
)

// A Lister is a [Store] that shows its records page by page, all of them or those that a query
// asks for. Among them are those of the library itself, which [Page.OfKeys] leaves out.
//
// To find what nobody has settled, it keeps an index of all records that are held, or claimed by
// a claim that says Hold. A claim enters the index before [Store.Claim] returns, and so before
// the run begins: the record of a process that has died is found although no client comes back
// for it. If the entering fails, Claim returns an error, and nobody runs. What becomes held in
// another way is entered too: by [Store.Hold], or by a claim that says Hold and finds that the
// lease of another has ended.
type Lister interface {
	// List returns the next records that the query asks for. A page may have fewer records than
	// its limit, or none, and still not be the last: one call looks at a bounded number of
	// records, whatever the store contains. The last page has no Next.
	//
	// Each record that is in the store from the first page to the last, and that fits the
	// query all the time, is in at least one page. One that comes, goes or changes meanwhile
	// may be missing. A record may be in two pages. Records that cannot be read are passed over, but
	// for those of the index: they are [Unreadable].
	//
	// Errors: [ErrBadCursor].
	List(ctx context.Context, q Query) (Page, error)
}

// A Query says which records a [Lister] shows. The zero Query asks for all. It may get more
// fields, so name the fields in a composite literal.
type Query struct {
	// Holding asks only for records that are held, or claimed by a claim that says Hold, oldest
	// first: in the order in which they became so. A claim that is repeated may count from then
	// on. It reads the index of the store, and not the records that nobody has to look at.
	// Without it records come in no order.
	//
	// The index may have lost a record: its process died between the claim and the entry, or a
	// replica that had not got the entry became the master. Such a record is listed without
	// Holding.
	Holding bool
	// States asks only for records in one of these states. Empty stands for all.
	States []State
	// Label asks only for records with that label. Empty stands for all.
	Label string
	// OlderThan asks only for records whose Age is at least that.
	OlderThan time.Duration
	// Limit is how many records a page has at most. If it is not positive, it is 100. A store
	// may make it less.
	Limit int
	// Cursor says where the page begins. It is the Next of the page before, of the same query,
	// or empty for the first page.
	Cursor string
}

// PageSize returns how many records a page may have.
func (q *Query) PageSize() int {
	if q.Limit <= 0 {
		return defaultPageSize
	}
	return min(q.Limit, maxPageSize)
}

// Matches reports whether the query asks for the record, whatever it says of the index.
func (q *Query) Matches(r Record) bool {
	return (len(q.States) == 0 || slices.Contains(q.States, r.State)) &&
		(q.Label == "" || r.Label == q.Label) && r.Age >= q.OlderThan
}

// Unreadable is what a [Lister] shows of a record in its index that it cannot read: nobody knows that it is settled.
// [Inspector.Get] says why. A claim that a later version has made may be one, too.
var Unreadable = Record{State: Held, TTL: Forever}

// A Page is a part of the records of a store.
type Page struct {
	Entries []Entry
	// Next is the Cursor of the next page. It is empty if there is none. It means something
	// only to the store that made it, and only for the same query. Limit and OlderThan may change.
	Next string
}

// An Entry is a record in a [Page].
type Entry struct {
	// Key is the name of the record, as an [Inspector] takes it.
	Key string
	// Record is the record without its answer, and mostly without its steps.
	Record Record
}

const (
	defaultPageSize = 100
	maxPageSize     = 1000
)
