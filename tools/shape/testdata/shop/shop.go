// Package shop sells. See [Order.Pay], [Order.ID], [store.Store], [store.Store.Put], [store],
// [expvar.Int] and [Price].
//
// These are not doc links: Pool[T], [ours], [0], a [Link].
//
//	[Nothing] in code
//
// [Link]: https://example.org
package shop

import "example.org/shop/store"

var all store.Store
