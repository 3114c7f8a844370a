package answer

import "encoding/binary"

// A decoder takes pieces off a byte slice. After an error it is bad and hands out zero
// bytes, which lets callers check once, at the end.
type decoder struct {
	rest []byte
	bad  bool
}

var zeros [64]byte

func (d *decoder) take(n int) []byte {
	if d.bad || n < 0 || n > len(d.rest) {
		d.bad = true
		return zeros[:max(0, min(n, len(zeros)))]
	}
	b := d.rest[:n:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) length() int {
	v, n := binary.Uvarint(d.rest)
	// A length never exceeds what is left. Longer encodings of the same number are refused,
	// because an answer has exactly one stored form.
	if d.bad || n <= 0 || v > uint64(len(d.rest)-n) || n != uvarintLen(int(v)) {
		d.bad = true
		return 0
	}
	d.rest = d.rest[n:]
	return int(v)
}

// A fieldDecoder takes fields off lists of them. Its strings are parts of text, which has the same
// bytes.
type fieldDecoder struct {
	decoder
	size  int // of the lists
	text  string
	space *Space
}

// fields reads one list. A hostile record costs no more than a small multiple of its own size,
// because every field takes two bytes of it, and every value one.
func (d *fieldDecoder) fields() []Field {
	n := d.length()
	if n > len(d.rest)/2 {
		d.bad = true
		return nil
	}
	fields := d.space.fields(n)
	for i := range fields {
		fields[i].Name = d.string()
		fields[i].Values = d.space.values(d.length())
		for j := range fields[i].Values {
			fields[i].Values[j] = d.string()
		}
		if d.bad {
			return nil
		}
	}
	return fields
}

func (d *fieldDecoder) string() string {
	n := d.length()
	at := d.size - len(d.rest)
	d.take(n)
	return d.text[at : at+n]
}
