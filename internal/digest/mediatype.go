package digest

import (
	"slices"
	"strings"

	"example.com/idempotency/internal/token"
)

// A mediaType is a Content-Type (RFC 9110, section 8.3) in the plainest form: one that all parsers
// read alike. Any other value counts as it is, and so does the body. A handler might read it in
// another way than this package: package mime keeps a backslash before a letter, refuses an empty
// parameter, and takes boundary* in place of boundary. The type counts in the case in which it was sent, and is known
// only in lower case, because gin and echo do not know Application/JSON.
//
// In the plainest form, names are tokens, those of parameters in lower case and without an asterisk, and no name occurs twice. A value is a
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
	slices.SortFunc(params, func(a, b param) int { return strings.Compare(a.name, b.name) })
	for i := 1; i < t.n; i++ {
		if params[i-1].name == params[i].name {
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
	if !ok || !token.Is(p.name) || strings.Contains(p.name, "*") || hasUpper(p.name) {
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

// appendTo appends the canonical spelling: parameters quoted and in the
// order of their names, no white space. It leaves out the parameter named omit.
//
// The canonical spelling is itself in the plainest form, so it never equals a value that is not.
func (t *mediaType) appendTo(dst []byte, omit string) []byte {
	dst = append(dst, t.verbatim...)
	dst = append(dst, t.name...)
	for _, p := range t.params[:t.n] {
		if p.name == omit {
			continue
		}
		dst = append(append(append(dst, ';'), p.name...), '=', '"')
		start := len(dst)
		dst = append(dst, p.value...)
		if p.name == "charset" {
			// RFC 9110, section 8.3.2: names of charsets are not case-sensitive.
			toLower(dst[start:])
		}
		dst = append(dst, '"')
	}
	return dst
}

// isJSON reports whether the type is application/json or has the suffix +json.
func (t *mediaType) isJSON() bool {
	return t.name == "application/json" || strings.HasSuffix(t.name, "+json")
}

// isUTF8 reports whether the type names no charset but UTF-8. What JSON means in another one depends on how
// a handler decodes it.
func (t *mediaType) isUTF8() bool {
	for _, p := range t.params[:t.n] {
		if p.name == "charset" {
			return strings.EqualFold(p.value, "utf-8") || strings.EqualFold(p.value, "utf8")
		}
	}
	return true
}

// boundary returns the boundary of a form in multipart/form-data, or "" if there is no usable one.
// Other multipart types are not forms that clients build anew for each attempt.
func (t *mediaType) boundary() string {
	if t.name != "multipart/form-data" {
		return ""
	}
	for _, p := range t.params[:t.n] {
		if p.name == boundaryParam && isBoundary(p.value) {
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

// appendCodings appends the content codings (RFC 9110, section 8.4) without white space, and in the case in which
// they were sent, because echo knows only gzip and not GZIP. It reports false, and appends them as they were sent, if readers take them in different ways:
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
		dst = append(dst, coding...)
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

func hasUpper(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return 'A' <= r && r <= 'Z' })
}

func toLower(b []byte) {
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
}
