package digest

import (
	"bytes"
	"hash/crc32"
)

// Checksums are short sums of the parts of a request, in this order: method, path, query,
// content type with its codings, body. Two requests with another fingerprint can be compared by
// them part by part. They protect nothing: different parts have the same sum once in 65,536
// times, and anybody can make such parts.
//
// They do not depend on the function that makes the fingerprints. What [Raw] does not count,
// such as the spelling of a content type or the boundary of a form, does not count here.
type Checksums [5]uint16

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Sum16 returns the checksum of one part.
func Sum16(part []byte) uint16 { return fold(crc32.Checksum(part, castagnoli)) }

func fold(crc uint32) uint16 { return uint16(crc>>16) ^ uint16(crc) }

// Checksum returns the checksums of a request.
func Checksum(r *Request) Checksums {
	h := newHasher()
	defer h.free()
	sum := func(part []byte) uint16 {
		h.gathered = part
		return Sum16(part)
	}
	t := parseMediaType(r.ContentType)
	c := Checksums{
		sum(append(h.gathered[:0], r.Method...)),
		sum(append(h.gathered[:0], r.Path...)),
		sum(append(h.gathered[:0], r.Query...)),
	}
	omit := ""
	if boundary := t.boundary(); boundary != "" {
		h.scratch = append(append(h.scratch[:0], "--"...), boundary...)
		if isMultipart(r.Body, h.scratch) {
			omit = boundaryParam
			c[4] = sumOfPieces(r.Body, h.scratch)
		}
	}
	if omit == "" {
		c[4] = Sum16(r.Body)
	}
	kind := append(t.appendTo(h.gathered[:0], omit), '\n')
	c[3] = sum(appendCodings(kind, r.ContentEncoding))
	return c
}

// sumOfPieces returns the checksum of what is between the delimiters.
func sumOfPieces(body, delimiter []byte) uint16 {
	var crc uint32
	for found := true; found; {
		var piece []byte
		piece, body, found = bytes.Cut(body, delimiter)
		crc = crc32.Update(crc, castagnoli, piece)
	}
	return fold(crc)
}
