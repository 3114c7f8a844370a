package jcs

import (
	"cmp"
	"hash/maphash"
	"slices"
	"unicode"
	"unicode/utf8"
)

// This file compares names as encoding/json does when it looks for the field of a struct: without
// regard to case. To most other parsers, names that differ in case are different.

// compareFold compares two UTF-8 strings. Equal strings have the same runes after simple case
// folding, as strings.EqualFold defines it.
func compareFold(a, b []byte) int {
	for len(a) > 0 && len(b) > 0 {
		x, n := firstFolded(a)
		y, m := firstFolded(b)
		if x != y {
			return cmp.Compare(x, y)
		}
		a, b = a[n:], b[m:]
	}
	return len(a) - len(b)
}

// firstFolded returns the smallest of the runes that differ from the first one of s only in case,
// and the length of the first one.
func firstFolded(s []byte) (r rune, size int) {
	if c := s[0]; c < utf8.RuneSelf {
		if 'a' <= c && c <= 'z' {
			c -= 'a' - 'A'
		}
		return rune(c), 1
	}
	r, size = utf8.DecodeRune(s)
	for next := unicode.SimpleFold(r); ; next = unicode.SimpleFold(next) {
		if next <= r { // SimpleFold goes upwards, and from the largest to the smallest
			return next, size
		}
		r = next
	}
}

// A foldedName is a name with the hash of its folded form.
type foldedName struct {
	hash uint64
	name int32
}

var seed = maphash.MakeSeed()

// checkMany is checkNames for many names in any order. It folds each name once. A
// sort would fold it in each comparison, which takes five times as long for names that are made for it.
func (d *Document) checkMany(names []int32) error {
	d.folded = grow(d.folded[:0], len(names))
	for _, name := range names {
		s := d.bytes(d.nodes[name])
		d.scratch = grow(d.scratch[:0], len(s)) // the smallest rune is also the shortest
		for len(s) > 0 {
			r, size := firstFolded(s)
			d.scratch = utf8.AppendRune(d.scratch, r)
			s = s[size:]
		}
		d.folded = append(d.folded, foldedName{maphash.Bytes(seed, d.scratch), name})
	}
	slices.SortFunc(d.folded, func(a, b foldedName) int { return cmp.Compare(a.hash, b.hash) })
	for i, a := range d.folded {
		for _, b := range d.folded[i+1:] {
			if a.hash != b.hash {
				break
			}
			if compareFold(d.bytes(d.nodes[a.name]), d.bytes(d.nodes[b.name])) == 0 {
				return ErrDuplicate
			}
		}
	}
	return nil
}
