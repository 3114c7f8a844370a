package idempotency

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net/http"
	"strconv"
)

// The stored form of an answer. All integers are big endian or unsigned varints.
//
//	1  version, answerVersion
//	1  kind
//	2  status
//	n  key: length (varint) and bytes
//	32 fingerprint
//	n  header:  count (varint), then fields
//	n  trailer: count (varint), then fields
//	n  body: length (varint) and bytes
//	4  CRC-32C of all of the above
//
// A field is its name and its number of values (varint), followed by the values;
// strings are length (varint) and bytes. Key and fingerprint are inside because a
// record that was moved, or a reply that was read off the wrong connection, must
// answer nobody.
const answerVersion = 1

// The kinds of stored answers.
const (
	answerKept    = 1 // status, header, trailer and body
	answerNotKept = 2 // a run whose answer was too large: status and Location only
	answerValue   = 3 // of Do: the body is the encoded value
	answerError   = 4 // of Do: the body is the text of a permanent error
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)

	// errAnswerVersion says that a record was written by a newer version of this
	// package. During a rolling upgrade that is no corruption: it answers 503.
	errAnswerVersion = errors.New("idempotency: stored answer has an unknown version")
)

// A field is a header or trailer field. A field without values suppresses what an
// outer handler, or the server, would otherwise send under its name.
type field struct {
	name   string
	values []string
}

// An answer is what a run answered, or what is replayed of it. The body of a decoded
// answer belongs to the store.
type answer struct {
	kind            byte
	status          int
	header, trailer []field
	body            []byte
	length          []string // of the body, as a field; set by decodeAnswer
}

// notKept is the answer in place of one that is too large to keep: that it ran, with
// which status, and where its result is.
func notKept(status int, h http.Header) *answer {
	a := &answer{kind: answerNotKept, status: status}
	if location, ok := h["Location"]; ok {
		a.header = []field{{name: "Location", values: location}}
	}
	return a
}

// encode returns the stored form in one allocation.
func (a *answer) encode(key string, fp Fingerprint) []byte {
	size := 4 + uvarintLen(len(key)) + len(key) + len(fp) +
		fieldsLen(a.header) + fieldsLen(a.trailer) + uvarintLen(len(a.body)) + len(a.body) + crc32.Size
	b := make([]byte, 0, size)
	b = append(b, answerVersion, a.kind)
	b = binary.BigEndian.AppendUint16(b, uint16(a.status))
	b = appendString(b, key)
	b = append(b, fp[:]...)
	b = appendFields(b, a.header)
	b = appendFields(b, a.trailer)
	b = binary.AppendUvarint(b, uint64(len(a.body)))
	b = append(b, a.body...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// decodeAnswer reads a stored answer and checks that it is whole and belongs to key
// and fingerprint. Its fields are put into space if they fit. Its errors are ErrCorrupt
// and errAnswerVersion.
func decodeAnswer(b []byte, key string, fp Fingerprint, space []field) (a answer, err error) {
	if len(b) == 0 {
		return a, fmt.Errorf("%w: empty answer", ErrCorrupt)
	}
	if b[0] != answerVersion {
		return a, fmt.Errorf("%w: %d", errAnswerVersion, b[0])
	}
	d := decoder{rest: b}
	if len(b) < 4+len(fp)+crc32.Size ||
		crc32.Checksum(b[:len(b)-crc32.Size], castagnoli) != binary.BigEndian.Uint32(b[len(b)-crc32.Size:]) {
		return a, fmt.Errorf("%w: checksum", ErrCorrupt)
	}
	d.rest = b[1 : len(b)-crc32.Size]
	a.kind, a.status = d.take(1)[0], int(binary.BigEndian.Uint16(d.take(2)))
	storedKey := d.take(d.length())
	storedFP := d.take(len(fp))
	a.header, a.trailer, a.length = d.fields(space)
	a.body = d.take(d.length())
	switch {
	case d.bad || len(d.rest) != 0:
		return answer{}, fmt.Errorf("%w: lengths", ErrCorrupt)
	case string(storedKey) != key || Fingerprint(storedFP) != fp:
		return answer{}, fmt.Errorf("%w: it belongs to another key or request", ErrCorrupt)
	case a.kind < answerKept || a.kind > answerError:
		return answer{}, fmt.Errorf("%w: kind %d", ErrCorrupt, a.kind)
	case a.status < 100 || a.status > 999:
		return answer{}, fmt.Errorf("%w: status %d", ErrCorrupt, a.status)
	}
	return a, nil
}

// A decoder takes pieces off a byte slice. After an error it is bad and hands out
// zero bytes, so that callers check once, at the end.
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
	// A length never exceeds what is left. Longer encodings of the same number are
	// refused: there is one stored form of an answer.
	if d.bad || n <= 0 || v > uint64(len(d.rest)-n) || n != uvarintLen(int(v)) {
		d.bad = true
		return 0
	}
	d.rest = d.rest[n:]
	return int(v)
}

// fields reads header and trailer, and ahead to the length of the body, which a replay
// sends as a field too. All are walked twice: once to find their end and count, then to
// cut strings and values from two allocations; space is for the fields, if it is enough.
// A count is believed only when as many have been seen, so that a hostile record costs
// no more than a small multiple of its own size.
func (d *decoder) fields(space []field) (header, trailer []field, length []string) {
	walk := *d
	var counts [2]int
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
		return nil, nil, nil
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
	if n := counts[0] + counts[1]; n > cap(all) {
		all = make([]field, 0, n)
	}
	vals := make([]string, 0, values)
	for i := range counts {
		d.length()
		for range counts[i] {
			f := field{name: text()}
			n := d.length()
			first := len(vals)
			for range n {
				vals = append(vals, text())
			}
			f.values = vals[first:len(vals):len(vals)]
			all = append(all, f)
		}
	}
	vals = append(vals, region[size:])
	return all[:counts[0]:counts[0]], all[counts[0]:], vals[len(vals)-1:]
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

func fieldsLen(fields []field) int {
	n := uvarintLen(len(fields))
	for _, f := range fields {
		n += stringLen(f.name) + uvarintLen(len(f.values))
		for _, v := range f.values {
			n += stringLen(v)
		}
	}
	return n
}

func appendFields(b []byte, fields []field) []byte {
	b = binary.AppendUvarint(b, uint64(len(fields)))
	for _, f := range fields {
		b = appendString(b, f.name)
		b = binary.AppendUvarint(b, uint64(len(f.values)))
		for _, v := range f.values {
			b = appendString(b, v)
		}
	}
	return b
}

// bodyAllowed reports whether an answer with this status may have a body
// (RFC 9110 section 6.4.1).
func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

// lengthAllowed reports whether an answer may carry its length, by the header of outer
// handlers. With a trailer HTTP/1.1 needs the chunked coding instead. Under a content coding
// that is theirs, what they send of a body has another length.
func lengthAllowed(h http.Header, status int, method string) bool {
	return bodyAllowed(status) && method != http.MethodHead && len(h["Trailer"]) == 0 && len(h["Content-Encoding"]) == 0
}

// send replays a kept answer.
func (a *answer) send(w http.ResponseWriter, method string) {
	h := w.Header()
	announce(h, fieldNames(a.trailer))
	if lengthAllowed(h, a.status, method) {
		h["Content-Length"] = a.length
	}
	for _, f := range a.header {
		setField(h, f)
	}
	h[replayedHeader] = replayedTrue
	w.WriteHeader(a.status)
	if len(a.body) > 0 {
		_, _ = w.Write(a.body) // a client that is gone can ask again
	}
	for _, f := range a.trailer {
		setField(h, f)
	}
}

var replayedTrue = []string{"true"}

// setField sets a field for this answer alone. Values replace those of outer
// handlers: adding would double them.
func setField(h http.Header, f field) {
	if len(f.values) == 0 {
		h[f.name] = nil
		return
	}
	h[f.name] = f.values
}
