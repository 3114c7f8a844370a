package store

import "reflect"

// A Comparer is a [Store] of which there may be two values in one process, as when two parts of a
// program make one each for the same table. Two values of any other store are two stores.
type Comparer interface {
	// SameAs reports whether other keeps its records in the same place under the same names, so
	// that a key which is claimed in one is claimed in the other. The result must not change during
	// the life of both.
	//
	// A type that embeds a Comparer is not the same as what it embeds, unless it has a SameAs of its
	// own that says so: [Same] asks both.
	SameAs(other Store) bool
}

// Same reports whether a and b are the same store: they are equal, or each is a [Comparer] that says so.
// An idempotency.Guard asks when a request that it protects meets a second guard.
func Same(a, b Store) bool {
	if identical(a, b) {
		return true
	}
	x, ok := a.(Comparer)
	y, both := b.(Comparer)
	return ok && both && x.SameAs(b) && y.SameAs(a)
}

// identical compares two values, of which some cannot be compared.
func identical(a, b Store) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}
