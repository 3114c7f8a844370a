package answer

import "encoding/binary"

// A Field is a header or trailer field. A field without values suppresses the one that an
// outer handler, or the server, would otherwise send under its name.
type Field struct {
	Name   string
	Values []string
}

// How lists of fields are stored, and how long that is.

func appendFields(b []byte, fields []Field) []byte {
	b = binary.AppendUvarint(b, uint64(len(fields)))
	for _, f := range fields {
		b = appendString(b, f.Name)
		b = binary.AppendUvarint(b, uint64(len(f.Values)))
		for _, v := range f.Values {
			b = appendString(b, v)
		}
	}
	return b
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func fieldsLen(fields []Field) int {
	n := uvarintLen(len(fields))
	for _, f := range fields {
		n += stringLen(f.Name) + uvarintLen(len(f.Values))
		for _, v := range f.Values {
			n += stringLen(v)
		}
	}
	return n
}

// MaxFields is how large the fields of an answer that is kept may be, header and trailer together.
// Proxies and clients in common use refuse more.
const MaxFields = 64 << 10

// fieldCost is what a field counts for beside its bytes, as in RFC 9113, section 6.5.2. So the number of
// fields is bounded too.
const fieldCost = 32

// fieldsSize is what fields count for in [MaxFields]: the name and a value, once for each value.
func fieldsSize(fields []Field) int {
	size := 0
	for _, f := range fields {
		size += max(1, len(f.Values)) * (len(f.Name) + fieldCost)
		for _, v := range f.Values {
			size += len(v)
		}
	}
	return size
}

func stringLen(s string) int { return uvarintLen(len(s)) + len(s) }

func uvarintLen(n int) int {
	size := 1
	for ; n >= 0x80; n >>= 7 {
		size++
	}
	return size
}
