// Package keyheader reads the value of an Idempotency-Key field.
//
// The IETF draft (draft-ietf-httpapi-idempotency-key-header-07, section 2.1) defines it as a
// String of RFC 8941, as in "abc". Nearly all clients send the bare abc. Both name the same
// key.
package keyheader

import "strings"

// MaxLen is the length of the longest key, in bytes.
const MaxLen = 255

// An Error says what is wrong with a field, in one sentence for the client. It never contains
// anything that the client sent.
type Error string

// Error returns the sentence.
func (e Error) Error() string { return string(e) }

// The reasons to refuse a field.
const (
	ErrEmpty     Error = "The idempotency key is empty."
	ErrTooLong   Error = "The idempotency key is longer than 255 bytes."
	ErrRepeated  Error = "The idempotency key header was sent more than once."
	ErrList      Error = "The idempotency key header is a list; it must hold one key."
	ErrUnquoted  Error = "The idempotency key must be sent in double quotes."
	ErrCharacter Error = "The idempotency key has a character that is not allowed without double quotes."
	ErrString    Error = "The idempotency key is not a well-formed quoted string."
	ErrParameter Error = "The idempotency key is followed by malformed parameters."
)

// Fields returns the values of a field. A server knows only the canonical spelling of its name, but a program that
// makes a request itself, from the event of a cloud function for example, may have used another, or several.
func Fields(header map[string][]string, canonical string) []string {
	if values, ok := header[canonical]; ok {
		return values
	}
	var all []string
	for name, values := range header {
		if len(name) == len(canonical) && strings.EqualFold(name, canonical) {
			all = append(all, values...)
		}
	}
	return all
}

// Parse returns the key that a field value names. It ignores white space around the value.
//
// A value that begins with a double quote is a String of RFC 8941: printable ASCII, in which
// \" and \\ stand for a quote and a backslash. Every space between the quotes is part of the
// key. Parameters may follow. They must be well-formed, and are ignored because none are
// defined.
//
// Any other value is the key itself, or an error if strict is set. It consists of visible ASCII
// characters except comma, quote and semicolon. A comma means that a proxy has joined two
// fields. A semicolon could begin parameters: a;b=1 may mean the key a or the key a;b=1, and a
// wrong guess makes two keys of one, or one of two. Common identifiers contain none of the
// three, and between quotes all are allowed.
//
// Every error is an [Error]. Parse allocates only to resolve backslashes.
func Parse(value string, strict bool) (key string, err error) {
	value = strings.Trim(value, " \t")
	switch {
	case value == "":
		return "", ErrEmpty
	case value[0] == '"':
		return parseItem(value)
	case strict:
		return "", ErrUnquoted
	default:
		return parseBare(value)
	}
}

// parseBare checks a value that is the key itself.
func parseBare(value string) (string, error) {
	if len(value) > MaxLen {
		return "", ErrTooLong
	}
	for i := range len(value) {
		switch c := value[i]; {
		case c == ',':
			return "", ErrList
		case c <= ' ' || c >= 0x7F || c == '"' || c == ';':
			return "", ErrCharacter
		}
	}
	return value, nil
}

// parseItem parses a String with parameters, an item of RFC 8941, section 4.2.3.
func parseItem(value string) (string, error) {
	key, escaped, rest, ok := cutString(value)
	if !ok {
		return "", ErrString
	}
	if escaped {
		key = unescape(key)
	}
	switch rest, ok = skipParameters(rest); {
	case !ok:
		return "", ErrParameter
	case strings.HasPrefix(strings.TrimLeft(rest, " \t"), ","):
		return "", ErrList
	case rest != "":
		return "", ErrString
	case key == "":
		return "", ErrEmpty
	case len(key) > MaxLen:
		return "", ErrTooLong
	}
	return key, nil
}

// unescape removes the backslash of each escape sequence of a valid String.
func unescape(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
