// Package jcs writes JSON in its canonical form, the JSON Canonicalization Scheme of RFC 8785:
// members sorted by name, no white space, one spelling for each string and number. Two texts
// have the same canonical form only if they have the same meaning.
//
// It differs in three ways from a canonical form made with encoding/json:
//
//   - Different numbers stay different. RFC 8785 reads numbers as IEEE doubles, in which
//     12345678901234567890 and 12345678901234567891 are one number. This package works on the
//     exact decimal value. A number that is the shortest decimal of its double, as all with at
//     most 15 digits are, gets the form of RFC 8785, byte for byte. Other numbers keep all
//     their digits.
//   - It refuses texts that parsers read in different ways: with a lone surrogate, bytes that are
//     not UTF-8, or a name that occurs twice in an object. Names that differ only in case count
//     as one, because encoding/json reads both into the same field of a struct.
//   - Its time and memory, apart from sorting, are linear in the size of the text, and it
//     limits nesting.
package jcs

import (
	"errors"
	"sync"
)

// Limits of the texts that this package reads.
const (
	// MaxDepth is how deep arrays and objects may be nested.
	MaxDepth = 1000
	// MaxSize is how many bytes a text may have.
	MaxSize = 1 << 28
)

// The reasons why a text has no canonical form.
var (
	ErrSyntax    = errors.New("jcs: not a JSON text")
	ErrDepth     = errors.New("jcs: nested too deep")
	ErrSize      = errors.New("jcs: text too large")
	ErrDuplicate = errors.New("jcs: a name occurs twice in an object, perhaps in another case")
	ErrUnicode   = errors.New("jcs: a string is not valid Unicode")
	ErrExponent  = errors.New("jcs: exponent of a number out of range")
)

// Canonical appends the canonical form of the JSON text src to dst. If it returns an error, dst
// is as it was.
func Canonical(dst, src []byte) ([]byte, error) {
	d, err := Read(src)
	if err != nil {
		return dst, err
	}
	defer d.Free()
	return d.append(grow(dst, len(src)+d.longer), 0), nil
}

// Read parses a JSON text that must not change before Free is called. It takes memory of at most 16
// times the size of the text, together with what [Canonical] or [Document.Select] make of it.
func Read(src []byte) (*Document, error) {
	d := documents.Get().(*Document)
	if err := d.parse(src); err != nil {
		d.Free()
		return nil, err
	}
	return d, nil
}

// documents keeps the memory of parsed documents for further ones.
var documents = sync.Pool{New: func() any { return new(Document) }}

// maxKept is the most memory that a document in the pool may hold. The garbage collector gets
// larger ones, so that a single huge text does not occupy memory for long.
const maxKept = 1 << 20

// Free gives the memory of the document back.
func (d *Document) Free() {
	const nodeSize, memberSize, foldedSize = 16, 4, 16
	d.src = nil
	if nodeSize*cap(d.nodes)+memberSize*(cap(d.members)+cap(d.open))+foldedSize*cap(d.folded)+
		cap(d.text)+cap(d.scratch)+cap(d.found) <= maxKept {
		documents.Put(d)
	}
}
