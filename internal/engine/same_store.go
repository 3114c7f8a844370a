package engine

import (
	"reflect"

	"example.com/idempotency/store"
)

// sameStore reports whether two stores are one value: a transaction, and what it locks, is known only to
// the value that has begun it. Some values cannot be compared.
func sameStore(a, b store.Store) bool { return reflect.TypeOf(a).Comparable() && a == b }
