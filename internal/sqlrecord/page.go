package sqlrecord

import (
	"errors"

	"example.com/idempotency/store"
)

const (
	// defaultPageSize and maxPageSize are how many records a page has at most.
	defaultPageSize, maxPageSize = 100, 1000
	// looks is how many rows a call reads at most to find those that a query asks for.
	looks = 1000
)

// A Pager makes a page of the rows that a store reads for a query.
type Pager struct {
	// Limit is how many rows the store reads.
	Limit int

	query store.Query
	tag   []store.Tag
	size  int
	at    Cursor // the last row that was looked at
}

// NewPager returns the pager of a query that goes on at the cursor, among the records that have a tag if one is
// given.
func NewPager(q store.Query, at Cursor, tag ...store.Tag) *Pager {
	size := min(q.Limit, maxPageSize)
	if size <= 0 {
		size = defaultPageSize
	}
	p := &Pager{Limit: size, query: q, tag: tag, size: size, at: at}
	if len(q.States) > 0 || q.Label != "" || q.OlderThan > 0 {
		p.Limit = looks
	}
	return p
}

// Rows are the result of a statement.
type Rows interface {
	Scanner
	Next() bool
	Err() error
}

// Read makes the page of rows that have the key, the place in the index, the columns of [Scan] and
// the time. It is the last page if there are fewer rows than it has asked for. Rows that
// cannot be read are passed over, but for those of the index.
func (p *Pager) Read(rows Rows) (store.Page, error) {
	var page store.Page
	read := 0
	for len(page.Entries) < p.size && rows.Next() {
		var now Moment
		r, err := Scan(after{rows, []any{&p.at.Key, &p.at.Since}}, &now)
		read++
		switch unreadable := errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrUnreadableHere); {
		case unreadable && p.query.Holding && p.query.Matches(store.Unreadable):
			page.Entries = append(page.Entries, store.Entry{Key: p.at.Key, Record: store.Unreadable})
		case unreadable:
		case err != nil:
			return store.Page{}, err
		default:
			if out := r.See(now); !r.Expired(now) && p.query.Matches(out) {
				page.Entries = append(page.Entries, store.Entry{Key: p.at.Key, Record: out})
			}
		}
	}
	if read >= p.Limit || len(page.Entries) >= p.size {
		page.Next = p.at.text(&p.query, p.tag...)
	}
	return page, rows.Err()
}

// An after scans columns that come before those of a row.
type after struct {
	Scanner
	before []any
}

func (a after) Scan(dest ...any) error { return a.Scanner.Scan(append(a.before, dest...)...) }
