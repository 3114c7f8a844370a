package rpc

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// nested knows a message in field 2, and in it again.
func nested(field uint64) Schema {
	if field == 2 {
		return nested
	}
	return nil
}

// The order is a part of stored fingerprints: it must stay as it is.
func TestInOrder(t *testing.T) {
	for name, tt := range map[string]struct{ message, want string }{
		"empty":                       {"", ""},
		"one field":                   {"\x08\x01", "\x08\x01"},
		"by number":                   {"\x18\x01\x08\x02", "\x08\x02\x18\x01"},
		"each kind":                   {"\x3d1234\x31abcdefgh\x2a\x01x\x20\x01", "\x20\x01\x2a\x01x\x31abcdefgh\x3d1234"},
		"a large number":              {"\xf8\xff\xff\xff\x0f\x01\x08\x01", "\x08\x01\xf8\xff\xff\xff\x0f\x01"},
		"a list":                      {"\x1a\x01b\x1a\x01a\x08\x01\x1a\x01c", "\x08\x01\x1a\x01b\x1a\x01a\x1a\x01c"},
		"in a message":                {"\x12\x04\x18\x01\x08\x02\x08\x01", "\x08\x01\x12\x04\x08\x02\x18\x01"},
		"in each message of a list":   {"\x12\x04\x18\x01\x08\x02\x12\x04\x18\x03\x08\x04", "\x12\x04\x08\x02\x18\x01\x12\x04\x08\x04\x18\x03"},
		"in a message in a message":   {"\x12\x06\x12\x04\x18\x01\x08\x02", "\x12\x06\x12\x04\x08\x02\x18\x01"},
		"not in a field not known":    {"\x1a\x04\x18\x01\x08\x02\x08\x01", "\x08\x01\x1a\x04\x18\x01\x08\x02"},
		"not in text":                 {"\x0a\x048108", "\x0a\x048108"},
		"not in a group":              {"\x1b\x18\x01\x08\x02\x1c\x08\x01", "\x08\x01\x1b\x18\x01\x08\x02\x1c"},
		"a group in a group":          {"\x1b\x1b\x1c\x1c\x08\x01", "\x08\x01\x1b\x1b\x1c\x1c"},
		"a number in place of it":     {"\x18\x01\x10\x05", "\x10\x05\x18\x01"},
		"what is no message in it":    {"\x18\x01\x12\x03\x18\x01\xff", "\x12\x03\x18\x01\xff\x18\x01"},
		"what is no field comes last": {"\x18\x01\x08\x02\x0a\x05x", "\x08\x02\x18\x01\x0a\x05x"},
		"an unknown kind":             {"\x18\x01\x0f\x08\x02", "\x18\x01\x0f\x08\x02"},
		"a group without an end":      {"\x18\x01\x0b\x08\x02", "\x18\x01\x0b\x08\x02"},
		"an end without a group":      {"\x18\x01\x0c", "\x0c\x18\x01"},
		"a size beyond all":           {"\x18\x01\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\x18\x01\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"},
	} {
		require.Equal(t, tt.want, string(InOrder([]byte(tt.message), nested)), name)
	}
}

// A message of many fields, or of many messages in each other, takes little more memory than its bytes.
func TestOrderOfManyFieldsTakesLittleMemory(t *testing.T) {
	many := strings.Repeat("\x18\x01\x08\x01", 1<<20)
	require.Equal(t, many, string(InOrder([]byte(many), nested)))
	list := strings.Repeat("\x18\x01", 1<<20) + "\x08\x01"
	require.Equal(t, "\x08\x01"+list[:2<<20], string(InOrder([]byte(list), nested)), "a list is one run")
	var deep []byte
	for range 2 * maxRuns {
		deep = slices.Concat([]byte{0x12}, binary.AppendUvarint(nil, uint64(len(deep))), deep)
	}
	require.Equal(t, deep, InOrder(deep, nested))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	InOrder([]byte(many), nested)
	InOrder([]byte(strings.Repeat("\x12\x80\x80\x80\x00", 1<<20)), nested) // a list of empty messages
	InOrder(deep, nested)
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(3*(len(many)+5<<20)))
}

// Nothing is lost, and no order of the fields is another message.
func FuzzInOrder(f *testing.F) {
	f.Add([]byte("\x12\x04\x18\x01\x08\x02\x08\x01"), []byte("\x18\x05"))
	f.Add([]byte("\x1b\x18\x01\x1c"), []byte("\x0f"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		for _, m := range [][]byte{a, b} {
			ordered := InOrder(m, nested)
			if !bytes.Equal(ordered, InOrder(ordered, nested)) {
				t.Errorf("%q has another order again", m)
			}
			was, is := slices.Sorted(slices.Values(m)), slices.Sorted(slices.Values(ordered))
			if !slices.Equal(was, is) {
				t.Errorf("%q has become %q", m, ordered)
			}
		}
		na, _, ea := field(a)
		nb, _, eb := field(b)
		if na == unreadable || nb == unreadable || na == nb {
			return
		}
		one, other := slices.Concat(a[:ea], b[:eb]), slices.Concat(b[:eb], a[:ea])
		if !bytes.Equal(InOrder(one, nested), InOrder(other, nested)) {
			t.Errorf("%q counts in another order", one)
		}
	})
}
