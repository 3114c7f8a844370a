// Package differ compares the settings of two guards, whatever fields they have.
package differ

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unsafe"
)

// options are those that have not the name of the field that they set.
var options = map[string]string{"formerFingerprints": "WithFingerprint", "MaxAnswer": "WithLimits"}

// Check returns an error that names the options that set the fields of [Fields], if there are some.
func Check(a, b any, ignored ...string) error {
	lost := Fields(a, b, ignored...)
	if lost == nil {
		return nil
	}
	for i, field := range lost {
		lost[i] = cmp.Or(options[field], "With"+strings.ToUpper(field[:1])+field[1:])
	}
	lost = slices.Compact(lost)
	return fmt.Errorf("idempotency: a guard stands inside a guard on the same store that has other settings (%s), so its own do nothing: give each route one guard", strings.Join(lost, ", "))
}

// Fields returns the names of the fields in which two structs of one type differ, given pointers to them, without
// those that are ignored. A field called rules or Seals stands for its own fields. Functions are equal if they are one value:
// two closures of the same code are not, and pointers only if they are one.
func Fields(a, b any, ignored ...string) []string {
	return fields(reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem(), ignored)
}

func fields(a, b reflect.Value, ignored []string) (differ []string) {
	for i := range a.NumField() {
		switch name := a.Type().Field(i).Name; {
		case slices.Contains(ignored, name):
		case name == "rules", name == "Seals":
			differ = append(differ, fields(a.Field(i), b.Field(i), ignored)...)
		case !equal(a.Field(i), b.Field(i)):
			differ = append(differ, name)
		}
	}
	return differ
}

// value returns what tells a function from others: the closure, of which there may be many with one code. That in an
// interface has no place of its own, and is no setting.
func value(f reflect.Value) uintptr {
	if !f.CanAddr() {
		return f.Pointer()
	}
	return *(*uintptr)(unsafe.Pointer(f.UnsafeAddr())) // a function value is a pointer to its closure
}

func equal(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.Func:
		return value(a) == value(b)
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
