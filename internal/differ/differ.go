// Package differ compares the settings of two guards, whatever fields they have.
package differ

import (
	"reflect"
	"slices"
)

// Fields returns the names of the fields in which two values of one struct type differ, without those that
// are ignored. A field called rules stands for its own fields. Functions are equal if they are the same code,
// whatever they close over; pointers if they are one.
func Fields(a, b any, ignored ...string) []string {
	return fields(reflect.ValueOf(a), reflect.ValueOf(b), ignored)
}

func fields(a, b reflect.Value, ignored []string) (differ []string) {
	for i := range a.NumField() {
		switch name := a.Type().Field(i).Name; {
		case slices.Contains(ignored, name):
		case name == "rules":
			differ = append(differ, fields(a.Field(i), b.Field(i), ignored)...)
		case !equal(a.Field(i), b.Field(i)):
			differ = append(differ, name)
		}
	}
	return differ
}

func equal(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.Func:
		return a.Pointer() == b.Pointer()
	case reflect.Interface:
		if a.IsNil() || b.IsNil() {
			return a.IsNil() == b.IsNil()
		}
		return a.Elem().Type() == b.Elem().Type() && equal(a.Elem(), b.Elem())
	case reflect.Slice, reflect.Array:
		if a.Len() != b.Len() {
			return false
		}
		for i := range a.Len() {
			if !equal(a.Index(i), b.Index(i)) {
				return false
			}
		}
		return true
	case reflect.Struct:
		for i := range a.NumField() {
			if !equal(a.Field(i), b.Field(i)) {
				return false
			}
		}
		return true
	case reflect.Map:
		return a.Pointer() == b.Pointer()
	default:
		return a.Equal(b)
	}
}
