// Package token recognizes the tokens of RFC 9110, section 5.6.2: methods, field names, and the
// names and values of parameters.
package token

import "strings"

// Is reports whether s is a token. The empty string is not a token.
func Is(s string) bool {
	for i := range len(s) {
		if !IsChar(s[i]) {
			return false
		}
	}
	return s != ""
}

// IsMethod reports whether s is a method, and not one of RFC 9110 or RFC 5789 in another case: methods are
// case-sensitive.
func IsMethod(s string) bool {
	switch upper := strings.ToUpper(s); upper {
	case "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE":
		return s == upper
	}
	return Is(s)
}

// IsChar reports whether a token may contain c. It looks c up in two words, one for each half
// of ASCII. A shift by 64 or more leaves no bit set.
func IsChar(c byte) bool {
	const (
		low = (1<<10-1)<<'0' |
			1<<'!' | 1<<'#' | 1<<'$' | 1<<'%' | 1<<'&' | 1<<'\'' | 1<<'*' | 1<<'+' | 1<<'-' | 1<<'.'
		high = (1<<26-1)<<('A'-64) | (1<<26-1)<<('a'-64) |
			1<<('^'-64) | 1<<('_'-64) | 1<<('`'-64) | 1<<('|'-64) | 1<<('~'-64)
	)
	return uint64(1)<<c&low|uint64(1)<<(c-64)&high != 0
}
