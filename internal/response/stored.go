package response

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// The stored form of an answer. All integers are big endian or unsigned varints.
//
//	1  version
//	1  kind
//	2  status
//	n  key: length (varint) and bytes
//	32 fingerprint
//	n  size of the next three together (varint)
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
	return a.encodeTo(nil, key, fingerprint)
}

// EncodeTo is Encode into memory that is used again.
func (a *Answer) EncodeTo(b *Buffer, key string, fingerprint [32]byte) []byte {
	b.bytes = a.encodeTo(b.bytes[:0], key, fingerprint)
	return b.bytes
}

func (a *Answer) encodeTo(b []byte, key string, fingerprint [32]byte) []byte {
	lists := fieldsLen(a.Header) + fieldsLen(a.Added) + fieldsLen(a.Trailer)
	size := 4 + stringLen(key) + len(fingerprint) + uvarintLen(lists) + lists + uvarintLen(len(a.Body)) + len(a.Body) + crc32.Size
	if cap(b) < size {
		b = make([]byte, 0, size)
	}
	b = append(b, Version, byte(a.Kind))
	b = binary.BigEndian.AppendUint16(b, uint16(a.Status))
	b = appendString(b, key)
	b = append(b, fingerprint[:]...)
	b = binary.AppendUvarint(b, uint64(lists))
	b = appendFields(b, a.Header)
	b = appendFields(b, a.Added)
	b = appendFields(b, a.Trailer)
	b = binary.AppendUvarint(b, uint64(len(a.Body)))
	b = append(b, a.Body...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// Decode reads a stored answer, and checks that it is whole and that it belongs to the key
// and the fingerprint. Its errors are [ErrCorrupt] and [ErrVersion], wrapped. The body of the
// answer is part of b. The fields take their memory from space, which may be nil.
func Decode(b []byte, key string, fingerprint [32]byte, space *Space) (a Answer, err error) {
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
	lists := d.take(d.length())
	a.Body = d.take(d.length())
	d.bad = d.bad || !a.readFields(lists, space)
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

// readFields reads header, added fields and trailer. One string holds all of them. It reports whether
// the lists are as they must be.
func (a *Answer) readFields(lists []byte, space *Space) bool {
	d := fieldDecoder{decoder{rest: lists}, len(lists), string(lists), space}
	a.Header, a.Added, a.Trailer = d.fields(), d.fields(), d.fields()
	return !d.bad && len(d.rest) == 0
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
