package keyheader

import (
	"strings"

	"example.com/idempotency/internal/token"
)

// Each function of this file consumes one element of the grammar of RFC 8941 and returns the
// rest. They check lengths and characters, and do not keep values.

// cutString consumes the String whose opening quote is next, and returns the text between the
// quotes with its escape sequences (section 4.2.5).
func cutString(s string) (inner string, escaped bool, rest string, ok bool) {
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return s[1:i], escaped, s[i+1:], true
		case c == '\\':
			escaped = true
			if i++; i == len(s) || s[i] != '"' && s[i] != '\\' {
				return "", false, "", false
			}
		case c < ' ' || c >= 0x7F:
			return "", false, "", false
		}
	}
	return "", false, "", false
}

// skipParameters consumes the parameters of an item (section 4.2.3.2).
func skipParameters(s string) (rest string, ok bool) {
	for strings.HasPrefix(s, ";") {
		s = strings.TrimLeft(s[1:], " ")
		if s == "" || !isLower(s[0]) && s[0] != '*' {
			return "", false
		}
		s = skip(s, isKeyChar)
		if strings.HasPrefix(s, "=") {
			if s, ok = skipBareItem(s[1:]); !ok {
				return "", false
			}
		}
	}
	return s, true
}

// skipBareItem consumes the value of a parameter (section 4.2.3.1).
func skipBareItem(s string) (rest string, ok bool) {
	if s == "" {
		return "", false
	}
	switch c := s[0]; {
	case c == '"':
		_, _, rest, ok = cutString(s)
		return rest, ok
	case c == '-' || isDigit(c):
		return skipNumber(s)
	case c == '?': // a Boolean
		if len(s) < 2 || s[1] != '0' && s[1] != '1' {
			return "", false
		}
		return s[2:], true
	case c == ':': // a Byte Sequence
		rest = skip(s[1:], isBase64)
		return strings.CutPrefix(rest, ":")
	case c == '*' || isLower(c|0x20): // a Token
		return skip(s, isTokenChar), true
	default:
		return "", false
	}
}

// skipNumber consumes an Integer of up to 15 digits or a Decimal of up to 12 digits
// before the point and 3 after it (section 4.2.4).
func skipNumber(s string) (rest string, ok bool) {
	s = strings.TrimPrefix(s, "-")
	rest = skip(s, isDigit)
	whole := len(s) - len(rest)
	if whole == 0 || whole > 15 {
		return "", false
	}
	s, ok = strings.CutPrefix(rest, ".")
	if !ok {
		return rest, true
	}
	rest = skip(s, isDigit)
	fraction := len(s) - len(rest)
	return rest, whole <= 12 && 1 <= fraction && fraction <= 3
}

// skip consumes characters as long as they are of one kind.
func skip(s string, kind func(byte) bool) string {
	for s != "" && kind(s[0]) {
		s = s[1:]
	}
	return s
}

func isLower(c byte) bool { return 'a' <= c && c <= 'z' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isAlphanumeric(c byte) bool { return isLower(c|0x20) || isDigit(c) }

func isKeyChar(c byte) bool {
	return isLower(c) || isDigit(c) || strings.IndexByte("_-.*", c) >= 0
}

func isTokenChar(c byte) bool {
	return token.IsChar(c) || c == ':' || c == '/'
}

func isBase64(c byte) bool {
	return isAlphanumeric(c) || c == '+' || c == '/' || c == '='
}
