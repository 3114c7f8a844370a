package engine

import (
	"reflect"

	"example.com/idempotency/store"
)

// sameStore compares stores, of which some cannot be compared.
func sameStore(a, b store.Store) bool { return reflect.TypeOf(a).Comparable() && a == b }
