package formtest

import (
	"reflect"
	"slices"
	"time"
)

// unset returns the fields that are zero in each of the values, as Type.Field: those of structs, also in pointers,
// interfaces and lists. No golden bytes show how such a field is stored, so nothing would say that its form has changed.
func unset(values ...any) []string {
	set := map[string]bool{} // by field, whether it was set in one of them
	for _, v := range values {
		note(reflect.ValueOf(v), set)
	}
	var names []string
	for name, is := range set {
		if !is {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func note(v reflect.Value, set map[string]bool) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			note(v.Elem(), set)
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			note(v.Index(i), set)
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return
		}
		for i := range v.NumField() {
			name := v.Type().Name() + "." + v.Type().Field(i).Name
			set[name] = set[name] || !v.Field(i).IsZero()
			note(v.Field(i), set)
		}
	}
}
