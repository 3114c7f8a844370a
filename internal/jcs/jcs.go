// Package jcs writes JSON in its canonical form, as RFC 8785 defines it: members
// sorted by name, no white space, one spelling for each string and number. Two texts
// have the same canonical form only if they have the same meaning.
//
// Three things set it apart from a canonical form made by way of encoding/json:
//
//   - Different numbers stay different. RFC 8785 reads numbers as IEEE doubles, and
//     so 12345678901234567890 and 12345678901234567891 would become one. Here the
//     form is made from the exact decimal value. It is that of RFC 8785, byte for
//     byte, for every number that is the shortest decimal of its double, which
//     includes all with 15 digits or fewer; other numbers keep all their digits.
//   - What has more than one meaning is refused: a name that occurs twice in an
//     object, a lone surrogate, bytes that are not UTF-8. Parsers disagree on them.
//   - Time and memory are linear in the size of the text, but for the sorting, and
//     nesting is limited.
package jcs

import (
	"errors"
	"sync"
)

// Limits of what is read as JSON.
const (
	// MaxDepth is how deep arrays and objects may be nested.
	MaxDepth = 1000
	// MaxSize is how many bytes a text may have.
	MaxSize = 1 << 28
)

// Reasons why a text has no canonical form.
var (
	ErrSyntax    = errors.New("jcs: not a JSON text")
	ErrDepth     = errors.New("jcs: nested too deep")
	ErrSize      = errors.New("jcs: text too large")
	ErrDuplicate = errors.New("jcs: a name occurs twice in an object")
	ErrUnicode   = errors.New("jcs: a string is not valid Unicode")
	ErrExponent  = errors.New("jcs: exponent of a number out of range")
)

// Canonical appends the canonical form of the JSON text src to dst. On an error it
// returns dst as it was.
func Canonical(dst, src []byte) ([]byte, error) {
	d := documents.Get().(*document)
	defer d.free()
	if err := d.parse(src); err != nil {
		return dst, err
	}
	return d.append(dst, 0), nil
}

// documents keeps the memory of parsed documents for the next ones.
var documents = sync.Pool{New: func() any { return new(document) }}

// maxKept is the size above which the memory of a document is left to the garbage
// collector, so that one huge text does not occupy memory for long.
const maxKept = 1 << 20

// free gives the document back to the pool.
func (d *document) free() {
	const nodeSize, memberSize = 16, 4
	if nodeSize*cap(d.nodes)+memberSize*cap(d.members)+cap(d.text) <= maxKept {
		documents.Put(d)
	}
}
