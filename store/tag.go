package store

import "context"

// What records are found by besides their keys.

// A Tag is a digest by which records are found, of an order number for example. To a store it is 16 opaque
// bytes.
type Tag [16]byte

// MaxTags is how many tags a [Claim] has at most.
const MaxTags = 4

// A Finder is a [Store] that keeps the tags of claims, and finds records by them. It reads an index, and not
// all records.
//
// A tag enters the index before [Store.Claim] returns, and so before the run begins. If the entering fails,
// Claim returns an error, and nobody runs. A record that was claimed by another version of the store, which
// keeps no tags, has none.
type Finder interface {
	// KeepsTags returns nil, or why the store keeps no tags: its database has an older schema, for example.
	// Then a claim is granted without its tags, and Find returns that error. The result must not change during
	// the store's life.
	KeepsTags() error

	// Find returns the next records that have the tag and fit the query, in no order. What [Lister.List] says of
	// pages, of records that come and go, and of cursors holds for Find too. A cursor is of one tag. Holding
	// means nothing here.
	//
	// Errors: [ErrBadCursor], and that of KeepsTags.
	Find(ctx context.Context, t Tag, q Query) (Page, error)
}
