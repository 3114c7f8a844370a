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

// number reads a number and keeps its canonical form.
//
// It makes the form from the decimal digits, without a double. A number is ±0.DDD × 10^point,
// where DDD neither begins nor ends with 0. There is one such form for each number, so two
// numbers are equal exactly if their forms are equal.
func (p *parser) number() error {
	negative := p.accept('-')
	whole := p.digits()
	if len(whole) == 0 || len(whole) > 1 && whole[0] == '0' {
		return ErrSyntax
	}
	var fraction []byte
	if p.accept('.') {
		if fraction = p.digits(); len(fraction) == 0 {
			return ErrSyntax
		}
	}
	exponent, err := p.exponent()
	if err != nil {
		return err
	}

	p.scratch = append(append(p.scratch[:0], whole...), fraction...)
	digits := bytes.TrimLeft(p.scratch, "0")
	point := len(whole) + exponent - (len(p.scratch) - len(digits))
	digits = bytes.TrimRight(digits, "0")
	if len(digits) > 0 && (point-1 > maxExponent || point-1 < -maxExponent) {
		return ErrExponent
	}

	start := len(p.text)
	p.text = appendDecimal(p.text, negative, digits, point)
	p.add(node{kind: kindNumber, start: int32(start), end: int32(len(p.text))})
	return nil
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

// appendDecimal appends ±0.DDD × 10^point, where DDD are the digits, in the notation of
// ECMAScript's Number::toString. Without digits it appends zero, which has no sign.
func appendDecimal(dst []byte, negative bool, digits []byte, point int) []byte {
	if len(digits) == 0 {
		return append(dst, '0')
	}
	if negative {
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
