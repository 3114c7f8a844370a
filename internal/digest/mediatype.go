package digest

import (
	"cmp"
	"slices"
	"strings"

	"example.com/idempotency/internal/token"
)

// A mediaType is a Content-Type (RFC 9110, section 8.3) in the plainest form: one that all parsers
// read alike. Any other value counts as it is, and so does the body. A handler might read it in
// another way than this package: package mime keeps a backslash before a letter, refuses an empty
// parameter, and takes boundary* in place of boundary.
//
// In the plainest form, names are tokens without an asterisk, and no name occurs twice. A value is a
// token, or printable ASCII in quotes without a quote, backslash or semicolon. One semicolon may end
// the type.
//
// The parser of the standard library would allocate a map and several strings for each request.
type mediaType struct {
	name   string // type/subtype
	params [maxParams]param
	n      int
	// verbatim is the whole value if it is not in the plainest form. The other fields are empty then.
	verbatim string
}

// maxParams is how many parameters a type may have. No registered type has as many.
const maxParams = 8

// A param is a parameter. The value has no quotes around it.
type param struct{ name, value string }

// parseMediaType parses a field value. It sorts the parameters by name.
func parseMediaType(value string) mediaType {
	value = trim(value)
	t := mediaType{}
	name, rest := cutBefore(value, ';')
	t.name = trim(name)
	if top, sub, ok := strings.Cut(t.name, "/"); !ok || !token.Is(top) || !token.Is(sub) {
		return mediaType{verbatim: value}
	}
	for rest != "" && rest != ";" {
		var p param
		var ok bool
		if p, rest, ok = cutParam(rest); !ok || t.n == maxParams {
			return mediaType{verbatim: value}
		}
		t.params[t.n] = p
		t.n++
	}
	params := t.params[:t.n]
	slices.SortFunc(params, func(a, b param) int { return compareFold(a.name, b.name) })
	for i := 1; i < t.n; i++ {
		if compareFold(params[i-1].name, params[i].name) == 0 {
			return mediaType{verbatim: value}
		}
	}
	return t
}

// cutParam consumes a semicolon and the parameter after it. It fails if they are not in the plainest
// form.
func cutParam(s string) (p param, rest string, ok bool) {
	if s, ok = strings.CutPrefix(s, ";"); !ok {
		return p, "", false
	}
	p.name, s, ok = strings.Cut(trim(s), "=")
	if !ok || !token.Is(p.name) || strings.Contains(p.name, "*") {
		return p, "", false
	}
	if quoted, ok := strings.CutPrefix(s, `"`); ok {
		p.value, rest, ok = strings.Cut(quoted, `"`)
		return p, trim(rest), ok && isPlain(p.value)
	}
	p.value, rest = cutBefore(s, ';')
	p.value = strings.TrimRight(p.value, " \t")
	return p, rest, token.Is(p.value)
}

// cutBefore cuts s before the first sep, or at its end if there is none.
func cutBefore(s string, sep byte) (before, rest string) {
	if i := strings.IndexByte(s, sep); i >= 0 {
		return s[:i], s[i:]
	}
	return s, ""
}

// isPlain reports whether all parsers read s alike between quotes.
func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '\\' || c == ';' {
			return false
		}
	}
	return true
}

// appendTo appends the canonical spelling: names in lower case, parameters quoted and in the
// order of their names, no white space. It leaves out the parameter named omit.
//
// The canonical spelling is itself in the plainest form, so it never equals a value that is not.
func (t *mediaType) appendTo(dst []byte, omit string) []byte {
	dst = append(dst, t.verbatim...)
	dst = appendLower(dst, t.name)
	for _, p := range t.params[:t.n] {
		if omit != "" && strings.EqualFold(p.name, omit) {
			continue
		}
		dst = append(dst, ';')
		dst = appendLower(dst, p.name)
		dst = append(dst, '=', '"')
		start := len(dst)
		dst = append(dst, p.value...)
		if strings.EqualFold(p.name, "charset") {
			// RFC 9110, section 8.3.2: names of charsets are not case-sensitive.
			toLower(dst[start:])
		}
		dst = append(dst, '"')
	}
	return dst
}

// isJSON reports whether the type is application/json or has the suffix +json.
func (t *mediaType) isJSON() bool {
	const suffix = "+json"
	return strings.EqualFold(t.name, "application/json") ||
		len(t.name) > len(suffix) && strings.EqualFold(t.name[len(t.name)-len(suffix):], suffix)
}

// isUTF8 reports whether the type names no charset but UTF-8. What JSON means in another one depends on how
// a handler decodes it.
func (t *mediaType) isUTF8() bool {
	for _, p := range t.params[:t.n] {
		if strings.EqualFold(p.name, "charset") {
			return strings.EqualFold(p.value, "utf-8") || strings.EqualFold(p.value, "utf8")
		}
	}
	return true
}

// boundary returns the boundary of a form in multipart/form-data, or "" if there is no usable one.
// Other multipart types are not forms that clients build anew for each attempt.
func (t *mediaType) boundary() string {
	if !strings.EqualFold(t.name, "multipart/form-data") {
		return ""
	}
	for _, p := range t.params[:t.n] {
		if strings.EqualFold(p.name, boundaryParam) && isBoundary(p.value) {
			return p.value
		}
	}
	return ""
}

const boundaryParam = "boundary"

// isBoundary reports whether s, which is plain, has the length of a boundary (RFC 2046, section
// 5.1.1). A boundary with spaces is not used, because parsers cut them off.
func isBoundary(s string) bool {
	return 1 <= len(s) && len(s) <= 70 && strings.IndexByte(s, ' ') < 0
}

// appendCodings appends the content codings (RFC 9110, section 8.4) in lower case and without
// white space. It reports false, and appends them as they were sent, if readers take them in different ways:
// some look at the first line alone, at the first element, or for the coding identity, which changes nothing.
func appendCodings(dst []byte, value string) (all []byte, ok bool) {
	if value == "" {
		return dst, true
	}
	start := len(dst)
	for coding := range strings.SplitSeq(value, ",") {
		coding = trim(coding)
		if coding == "" || strings.EqualFold(coding, "identity") || strings.IndexByte(coding, '\n') >= 0 {
			return append(dst[:start], value...), false
		}
		if len(dst) > start {
			dst = append(dst, ',')
		}
		dst = appendLower(dst, coding)
	}
	return dst, true
}

// trim removes optional white space. strings.Trim takes several times as long.
func trim(s string) string {
	for s != "" && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for s != "" && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

func toLower(b []byte) {
	for i, c := range b {
		b[i] = lower(c)
	}
}

func appendLower(dst []byte, s string) []byte {
	start := len(dst)
	dst = append(dst, s...)
	toLower(dst[start:])
	return dst
}

// compareFold compares two strings and ignores the case of ASCII letters.
func compareFold(a, b string) int {
	for i := range min(len(a), len(b)) {
		if c := cmp.Compare(lower(a[i]), lower(b[i])); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(a), len(b))
}
