package jcs

import "slices"

// A Document is a parsed text. It is flat: it has one node for each value and each member name,
// in the order of the text. A large document therefore costs a few large pieces of memory
// instead of many small ones.
type Document struct {
	src   []byte
	nodes []node
	// text holds the decoded strings and canonical numbers that nodes refer to. Numbers that are
	// longer in their canonical form than in the source are not in it, because they could
	// multiply its size: 1e20 is 21 digits.
	text []byte
	// members holds, for each object, the nodes of its names in canonical order.
	members []int32
	// open is the stack of names of the objects that are not closed yet.
	open []int32
	// longer is by how many bytes numbers are longer in their canonical form, and so by how many the
	// canonical form may be longer than the text: strings are not.
	longer int
	// scratch holds the digits of the number being read, or a folded name.
	scratch []byte
	// folded holds the names of a large object.
	folded []foldedName
	// found holds what a path finds.
	found []byte
}

type kind uint8

const (
	kindNull kind = iota
	kindFalse
	kindTrue
	kindNumber
	kindLonger // a number whose canonical form is longer than the source
	kindString
	kindArray
	kindObject
)

// A node is a value or the name of a member. The value of a name is the node after it.
type node struct {
	kind kind
	// start and end are a range of Document.text for a string or a number, of Document.src for a
	// number whose canonical form is longer, and of Document.members for an object.
	start, end int32
	// next is the node after this value and everything in it.
	next int32
}

// bytes returns the decoded string, or the number if Document.text has it.
func (d *Document) bytes(n node) []byte {
	return d.text[n.start:n.end]
}

// grow makes room for n more elements, and no more than that. [slices.Grow] adds up to a quarter.
func grow[T any](s []T, n int) []T {
	if cap(s)-len(s) >= n {
		return s
	}
	return append(make([]T, 0, len(s)+n), s...)
}

// closeObject gives object i the members that are on the stack from mark on.
func (d *Document) closeObject(i int32, mark int) error {
	names := d.open[mark:]
	d.open = d.open[:mark]
	compare := func(a, b int32) int {
		return compareUTF16(d.bytes(d.nodes[a]), d.bytes(d.nodes[b]))
	}
	if !slices.IsSortedFunc(names, compare) {
		slices.SortFunc(names, compare)
	}
	d.nodes[i].start = int32(len(d.members))
	d.members = append(d.members, names...)
	d.nodes[i].end = int32(len(d.members))
	return d.checkNames(names)
}

// checkNames reports whether an object has a name twice. names is in canonical order, and
// checkNames may change that.
func (d *Document) checkNames(names []int32) error {
	compare := func(a, b int32) int {
		return compareFold(d.bytes(d.nodes[a]), d.bytes(d.nodes[b]))
	}
	if !slices.IsSortedFunc(names, compare) {
		const few = 64
		if len(names) > few {
			return d.checkMany(names)
		}
		slices.SortFunc(names, compare)
	}
	for k := 1; k < len(names); k++ {
		if compare(names[k-1], names[k]) == 0 {
			return ErrDuplicate
		}
	}
	return nil
}

// append appends the canonical form of the value at node i. It recurses as deep as the text is
// nested, which parse has limited.
func (d *Document) append(dst []byte, i int32) []byte {
	switch n := d.nodes[i]; n.kind {
	case kindNull:
		return append(dst, "null"...)
	case kindFalse:
		return append(dst, "false"...)
	case kindTrue:
		return append(dst, "true"...)
	case kindNumber:
		return append(dst, d.bytes(n)...)
	case kindLonger:
		p := parser{Document: d, src: d.src[n.start:n.end]}
		number, _ := p.decimal() // parse has read it without an error
		return number.append(dst)
	case kindString:
		return appendString(dst, d.bytes(n))
	case kindArray:
		dst = append(dst, '[')
		for e := i + 1; e < n.next; e = d.nodes[e].next {
			if e > i+1 {
				dst = append(dst, ',')
			}
			dst = d.append(dst, e)
		}
		return append(dst, ']')
	default:
		dst = append(dst, '{')
		for k, name := range d.members[n.start:n.end] {
			if k > 0 {
				dst = append(dst, ',')
			}
			dst = appendString(dst, d.bytes(d.nodes[name]))
			dst = append(dst, ':')
			dst = d.append(dst, name+1)
		}
		return append(dst, '}')
	}
}
