package jcs

import (
	"unicode/utf16"
	"unicode/utf8"
)

// string reads the string whose opening quote is next, and keeps it decoded.
func (p *parser) string() error {
	start := len(p.text)
	p.pos++
	for {
		// Text that needs no decoding is copied in one piece.
		from := p.pos
		for p.pos < len(p.src) && p.src[p.pos] != '"' && p.src[p.pos] != '\\' && p.src[p.pos] >= ' ' {
			p.pos++
		}
		if !utf8.Valid(p.src[from:p.pos]) {
			return ErrUnicode
		}
		p.text = append(p.text, p.src[from:p.pos]...)
		switch {
		case p.accept('"'):
			p.add(node{kind: kindString, start: int32(start), end: int32(len(p.text))})
			return nil
		case p.accept('\\'):
			if err := p.escape(); err != nil {
				return err
			}
		default: // a control character, or the end
			return ErrSyntax
		}
	}
}

// escape reads the rest of an escape sequence, after the backslash.
func (p *parser) escape() error {
	c := p.peek()
	p.pos++
	switch c {
	case '"', '\\', '/':
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'u':
		return p.unicodeEscape()
	default:
		return ErrSyntax
	}
	p.text = append(p.text, c)
	return nil
}

// unicodeEscape reads the four digits after \u. If they are one half of a surrogate pair, it
// reads the other half too.
func (p *parser) unicodeEscape() error {
	r, ok := p.hex4()
	if !ok {
		return ErrSyntax
	}
	if utf16.IsSurrogate(r) {
		if !p.accept('\\') || !p.accept('u') {
			return ErrUnicode
		}
		low, ok := p.hex4()
		if !ok {
			return ErrSyntax
		}
		if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
			return ErrUnicode
		}
	}
	p.text = utf8.AppendRune(p.text, r)
	return nil
}

func (p *parser) hex4() (r rune, ok bool) {
	if len(p.src)-p.pos < 4 {
		return 0, false
	}
	for _, c := range p.src[p.pos : p.pos+4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	p.pos += 4
	return r, true
}

// appendString appends s as ECMAScript writes it. It escapes only what must be escaped.
func appendString(dst, s []byte) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	from := 0
	for i, c := range s {
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\t':
			dst = append(dst, '\\', 't')
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\f':
			dst = append(dst, '\\', 'f')
		case '\r':
			dst = append(dst, '\\', 'r')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	dst = append(dst, s[from:]...)
	return append(dst, '"')
}

// compareUTF16 compares two UTF-8 strings as RFC 8785 sorts names: by UTF-16 code
// units.
//
// That is the order of the UTF-8 bytes but for one thing: what is above U+FFFF is
// written with surrogates, U+D800 to U+DFFF, and so sorts before U+E000 to U+FFFF. In
// UTF-8 the first begin with a byte from 0xF0 up and the second with 0xEE or 0xEF,
// and these bytes occur nowhere else.
func compareUTF16(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		x, y := a[i], b[i]
		if x == y {
			continue
		}
		if x >= 0xEE && y >= 0xEE && (x >= 0xF0) != (y >= 0xF0) {
			x, y = y, x
		}
		if x < y {
			return -1
		}
		return 1
	}
	return len(a) - len(b)
}
