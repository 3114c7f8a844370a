package response

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
)

// The stored form of an answer. All integers are big endian or unsigned varints.
//
//	1  version
//	1  kind
//	2  status
//	n  key: length (varint) and bytes
//	32 fingerprint
//	n  header:  count (varint), then fields
//	n  added:   count (varint), then fields
//	n  trailer: count (varint), then fields
//	n  body: length (varint) and bytes
//	4  CRC-32C of all of the above
//
// A field is its name and its number of values (varint), followed by the values. A string
// is its length (varint) and its bytes. Key and fingerprint are inside so that a record that
// was moved, or a reply that was read off the wrong connection, answers nobody.

// Version is the first byte of the stored form.
const Version = 1

var (
	// ErrVersion says that another version of this package stored the answer. During a
	// rolling upgrade that is not corruption: a newer process can read it.
	ErrVersion = errors.New("idempotency: stored answer has an unknown version")

	// ErrCorrupt says that the bytes are not the stored form of an answer, or belong to
	// another key or fingerprint.
	ErrCorrupt = errors.New("invalid answer")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Encode returns the stored form of the answer to a key and a fingerprint, in one
// allocation.
func (a *Answer) Encode(key string, fingerprint [32]byte) []byte {
	size := 4 + stringLen(key) + len(fingerprint) +
		fieldsLen(a.Header) + fieldsLen(a.Added) + fieldsLen(a.Trailer) + uvarintLen(len(a.Body)) + len(a.Body) + crc32.Size
	b := make([]byte, 0, size)
	b = append(b, Version, byte(a.Kind))
	b = binary.BigEndian.AppendUint16(b, uint16(a.Status))
	b = appendString(b, key)
	b = append(b, fingerprint[:]...)
	b = appendFields(b, a.Header)
	b = appendFields(b, a.Added)
	b = appendFields(b, a.Trailer)
	b = binary.AppendUvarint(b, uint64(len(a.Body)))
	b = append(b, a.Body...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// Decode reads a stored answer, and checks that it is whole and that it belongs to the key
// and the fingerprint. Its errors are [ErrCorrupt] and [ErrVersion], wrapped. The body of the
// answer is part of b. Its fields are put into space if they fit there.
func Decode(b []byte, key string, fingerprint [32]byte, space []Field) (a Answer, err error) {
	if len(b) == 0 {
		return a, fmt.Errorf("%w: empty", ErrCorrupt)
	}
	if b[0] != Version {
		return a, fmt.Errorf("%w: %d", ErrVersion, b[0])
	}
	d := decoder{rest: b}
	if len(b) < 4+len(fingerprint)+crc32.Size ||
		crc32.Checksum(b[:len(b)-crc32.Size], castagnoli) != binary.BigEndian.Uint32(b[len(b)-crc32.Size:]) {
		return a, fmt.Errorf("%w: wrong checksum", ErrCorrupt)
	}
	d.rest = b[1 : len(b)-crc32.Size]
	a.Kind, a.Status = Kind(d.take(1)[0]), int(binary.BigEndian.Uint16(d.take(2)))
	storedKey := d.take(d.length())
	storedFingerprint := d.take(len(fingerprint))
	lists, length := d.fields(space)
	a.Header, a.Added, a.Trailer, a.length = lists[0], lists[1], lists[2], length
	a.Body = d.take(d.length())
	switch {
	case d.bad || len(d.rest) != 0:
		return Answer{}, fmt.Errorf("%w: wrong lengths", ErrCorrupt)
	case string(storedKey) != key || [32]byte(storedFingerprint) != fingerprint:
		return Answer{}, fmt.Errorf("%w: belongs to another key or request", ErrCorrupt)
	case a.Kind < KindKept || a.Kind > KindError:
		return Answer{}, fmt.Errorf("%w: unknown kind %d", ErrCorrupt, a.Kind)
	case (a.Status < 100 || a.Status > 999) && (a.Status != 0 || a.Kind != KindNotKept):
		return Answer{}, fmt.Errorf("%w: invalid status %d", ErrCorrupt, a.Status)
	}
	return a, nil
}

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

// fields reads the header, the added fields and the trailer. It also reads ahead to the length of the body, which a
// replay sends as a field.
//
// It walks over all of them twice: once to count them and find their end, and once to cut
// strings and values from two allocations. A count is believed only after as many entries
// have been seen, so a hostile record costs no more than a small multiple of its own size.
func (d *decoder) fields(space []Field) (lists [3][]Field, length []string) {
	walk := *d
	var counts [3]int
	values := 1
	for i := range counts {
		counts[i] = walk.length()
		for range counts[i] {
			walk.take(walk.length())
			n := walk.length()
			for range n {
				walk.take(walk.length())
			}
			if walk.bad {
				break
			}
			values += n
		}
	}
	end := len(walk.rest)
	bodyLen := walk.length()
	if walk.bad {
		d.bad = true
		return lists, nil
	}
	size := len(d.rest) - end
	var onStack [512]byte
	region := string(strconv.AppendInt(append(onStack[:0], d.rest[:size]...), int64(bodyLen), 10))
	text := func() string {
		n := d.length()
		from := size - (len(d.rest) - end)
		d.take(n)
		return region[from : from+n]
	}
	all := space[:0]
	if n := counts[0] + counts[1] + counts[2]; n > cap(all) {
		all = make([]Field, 0, n)
	}
	vals := make([]string, 0, values)
	for i := range counts {
		d.length()
		from := len(all)
		for range counts[i] {
			f := Field{Name: text()}
			n := d.length()
			first := len(vals)
			for range n {
				vals = append(vals, text())
			}
			f.Values = vals[first:len(vals):len(vals)]
			all = append(all, f)
		}
		lists[i] = all[from:len(all):len(all)]
	}
	vals = append(vals, region[size:])
	return lists, vals[len(vals)-1:]
}

func uvarintLen(n int) int {
	size := 1
	for ; n >= 0x80; n >>= 7 {
		size++
	}
	return size
}

func stringLen(s string) int { return uvarintLen(len(s)) + len(s) }

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
