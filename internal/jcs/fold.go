package jcs

import (
	"cmp"
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
