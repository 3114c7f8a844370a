package history

import (
	"slices"
	"testing"

	"example.com/idempotency/internal/formtest"
)

// The list is a part of a record, and changes with the version of that.
func TestStoredFormOfTheNotes(t *testing.T) {
	long := make([]byte, 200)
	formtest.Check(t, "notes", 1, formtest.Case{
		Name:   "notes",
		Encode: func() []byte { return Append(nil, Append(nil, Append(nil, nil, []byte("first")), nil), long) },
		Decode: func(stored []byte) (any, error) { return slices.Collect(All(stored)), nil },
		Want:   [][]byte{[]byte("first"), long},
	}, formtest.Case{
		Name:   "decided",
		Encode: func() []byte { return AppendDecision(nil, Append(nil, nil, []byte("first")), []byte("by ada")) },
		Decode: func(stored []byte) (any, error) {
			return [2][][]byte{slices.Collect(All(stored)), slices.Collect(Decisions(stored))}, nil
		},
		Want: [2][][]byte{{[]byte("first")}, {[]byte("by ada")}},
	})
}
