package answer

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
	// ErrVersion says that another version of this package stored the answer: the version is
	// unknown, or the answer is whole and not of this form. During a rolling upgrade that is
	// not corruption: another process can read it.
	ErrVersion = errors.New("idempotency: stored answer has an unknown version")

	// ErrCorrupt says that the bytes were cut or altered, or belong to another key or
	// fingerprint.
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
	if !d.bad && (string(storedKey) != key || [32]byte(storedFingerprint) != fingerprint) {
		return Answer{}, fmt.Errorf("%w: belongs to another key or request", ErrCorrupt)
	}
	lists := d.take(d.length())
	a.Body = d.take(d.length())
	d.bad = d.bad || !a.readFields(lists, space)
	switch { // nothing was altered since it was stored, so its writer has another form
	case d.bad || len(d.rest) != 0:
		return Answer{}, fmt.Errorf("%w: %d with other lengths", ErrVersion, Version)
	case a.Kind < KindKept || a.Kind > KindError:
		return Answer{}, fmt.Errorf("%w: %d with the kind %d", ErrVersion, Version, a.Kind)
	case (a.Status < 100 || a.Status > 999) && (a.Status != 0 || a.Kind != KindNotKept):
		return Answer{}, fmt.Errorf("%w: %d with the status %d", ErrVersion, Version, a.Status)
	}
	return a, nil
}

// readFields reads header, added fields and trailer. One string holds all of them. It reports whether
// the lists are as they must be.
func (a *Answer) readFields(lists []byte, space *Space) bool {
	d := fieldDecoder{decoder{rest: lists}, len(lists), string(lists), space}
	a.Header, a.Added, a.Trailer = d.fields(), d.fields(), d.fields()
	return !d.bad && len(d.rest) == 0
}
