package jcs

import (
	"bytes"
	"strconv"
)

// maxExponent is the largest exponent of a canonical form, far above that of any double.
// maxWritten is the largest exponent that a number may be written with. It is larger, so that
// every canonical form can be read again, and small enough for the arithmetic.
const (
	maxExponent = 100_000_000
	maxWritten  = 10 * maxExponent
)

// A decimal is the number ±0.DDD × 10^point, where DDD are the digits, which neither begin nor end
// with 0. There is one such form for each number, so two numbers are equal exactly if their forms
// are equal. No double is involved.
type decimal struct {
	negative bool
	digits   []byte
	point    int
}

// number reads a number and keeps its canonical form, or its place if that is shorter.
func (p *parser) number() error {
	from, start := p.pos, len(p.text)
	if p.integer() {
		p.text = append(p.text, p.src[from:p.pos]...)
		p.add(node{kind: kindNumber, start: int32(start), end: int32(len(p.text))})
		return nil
	}
	number, err := p.decimal()
	if err != nil {
		return err
	}
	p.text = number.append(p.text)
	n := node{kind: kindNumber, start: int32(start), end: int32(len(p.text))}
	if longer := len(p.text) - start - (p.pos - from); longer > 0 {
		p.longer += longer
		p.text = p.text[:start]
		n = node{kind: kindLonger, start: int32(from), end: int32(p.pos)}
	}
	p.add(n)
	return nil
}

// integer consumes a number that is in its canonical form already, as most are: at most 21 digits and
// nothing else.
func (p *parser) integer() bool {
	from := p.pos
	if digits := p.digits(); len(digits) == 0 || len(digits) > 21 || digits[0] == '0' {
		p.pos = from
		return false
	}
	switch p.peek() {
	case '.', 'e', 'E':
		p.pos = from
		return false
	}
	return true
}

// decimal reads a number. Its digits are valid until the next one is read.
func (p *parser) decimal() (decimal, error) {
	negative := p.accept('-')
	whole := p.digits()
	if len(whole) == 0 || len(whole) > 1 && whole[0] == '0' {
		return decimal{}, ErrSyntax
	}
	var fraction []byte
	if p.accept('.') {
		if fraction = p.digits(); len(fraction) == 0 {
			return decimal{}, ErrSyntax
		}
	}
	exponent, err := p.exponent()
	if err != nil {
		return decimal{}, err
	}

	p.scratch = append(append(grow(p.scratch[:0], len(whole)+len(fraction)), whole...), fraction...)
	digits := bytes.TrimLeft(p.scratch, "0")
	point := len(whole) + exponent - (len(p.scratch) - len(digits))
	digits = bytes.TrimRight(digits, "0")
	if len(digits) > 0 && (point-1 > maxExponent || point-1 < -maxExponent) {
		return decimal{}, ErrExponent
	}
	return decimal{negative, digits, point}, nil
}

// digits consumes the decimal digits at the current position.
func (p *parser) digits() []byte {
	from := p.pos
	for p.pos < len(p.src) && '0' <= p.src[p.pos] && p.src[p.pos] <= '9' {
		p.pos++
	}
	return p.src[from:p.pos]
}

// exponent reads the exponent of a number. Without one it returns 0.
func (p *parser) exponent() (int, error) {
	if !p.accept('e') && !p.accept('E') {
		return 0, nil
	}
	negative := p.accept('-')
	if !negative {
		p.accept('+')
	}
	digits := p.digits()
	if len(digits) == 0 {
		return 0, ErrSyntax
	}
	e := 0
	for _, c := range digits {
		if e = e*10 + int(c-'0'); e > maxWritten {
			return 0, ErrExponent
		}
	}
	if negative {
		e = -e
	}
	return e, nil
}

// maxLonger is more than what the canonical form of a number has besides its digits: a sign, a point,
// zeros or an exponent.
const maxLonger = 32

// append appends the number in the notation of ECMAScript's Number::toString. Without digits it
// appends zero, which has no sign.
func (d decimal) append(dst []byte) []byte {
	digits, point := d.digits, d.point
	if len(digits) == 0 {
		return append(dst, '0')
	}
	if d.negative {
		dst = append(dst, '-')
	}
	switch {
	case len(digits) <= point && point <= 21:
		dst = append(dst, digits...)
		return appendZeros(dst, point-len(digits))
	case 0 < point && point <= 21:
		dst = append(dst, digits[:point]...)
		dst = append(dst, '.')
		return append(dst, digits[point:]...)
	case -6 < point && point <= 0:
		dst = append(dst, '0', '.')
		dst = appendZeros(dst, -point)
		return append(dst, digits...)
	}
	dst = append(dst, digits[0])
	if len(digits) > 1 {
		dst = append(dst, '.')
		dst = append(dst, digits[1:]...)
	}
	dst = append(dst, 'e')
	if point > 0 {
		dst = append(dst, '+')
	}
	return strconv.AppendInt(dst, int64(point-1), 10)
}

// appendZeros appends n zeros, at most 20.
func appendZeros(dst []byte, n int) []byte {
	return append(dst, "00000000000000000000"[:n]...)
}
