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
// They do not depend on the function that makes the fingerprints. What [Reading.Raw] does not count,
// such as the spelling of a content type or the boundary of a form, does not count here.
type Checksums struct {
	Parts [5]uint16
	// Partial says that the body is long, and that its checksum may miss a difference in its middle.
	Partial bool
}

// maxWhole is the length up to which all of a body counts for its checksum. Of a longer one, or of
// a longer piece of a form, the length and the two ends count.
const maxWhole = 8 << 10

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// update adds a body, or a piece of one, to a checksum.
func update(crc uint32, piece []byte) uint32 {
	if len(piece) <= maxWhole {
		return crc32.Update(crc, castagnoli, piece)
	}
	const end = maxWhole / 2
	crc = crc32.Update(crc, castagnoli, piece[:end]) ^ uint32(len(piece))
	return crc32.Update(crc, castagnoli, piece[len(piece)-end:])
}

func fold(crc uint32) uint16 { return uint16(crc>>16) ^ uint16(crc) }

// ChecksumBody returns the checksums of a request that has nothing but a body.
func ChecksumBody(body []byte) Checksums {
	return Checksums{Parts: [5]uint16{4: fold(update(0, body))}, Partial: len(body) > maxWhole}
}

// Checksums returns the checksums of the request.
func (d *Reading) Checksums() Checksums {
	c := ChecksumBody(d.Body)
	if d.delimiter != nil {
		c.Parts[4] = sumOfPieces(d.Body, d.delimiter)
	}
	for i, part := range [...]string{d.Method, d.Path, d.Query} {
		d.h.gathered = append(d.h.gathered[:0], part...)
		c.Parts[i] = sum(d.h.gathered)
	}
	c.Parts[3] = sum(d.h.content) // kind and codings
	return c
}

func sum(part []byte) uint16 { return fold(crc32.Checksum(part, castagnoli)) }

// sumOfPieces returns the checksum of what is between the delimiters.
func sumOfPieces(body, delimiter []byte) uint16 {
	var crc uint32
	for found := true; found; {
		var piece []byte
		piece, body, found = bytes.Cut(body, delimiter)
		crc = update(crc, piece)
	}
	return fold(crc)
}
