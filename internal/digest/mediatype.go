package digest

import (
	"cmp"
	"slices"
	"strings"

	"example.com/idempotency/internal/token"
)

// A mediaType is a parsed Content-Type (RFC 9110, section 8.3). The parser of the standard
// library would allocate a map and several strings for each request.
type mediaType struct {
	name   string // type/subtype
	params [maxParams]param
	n      int
	// verbatim is the whole value if it is not well-formed. The other fields are empty then.
	verbatim string
}

// maxParams is how many parameters a well-formed type may have. No registered type has as many.
const maxParams = 8

// A param is a parameter. The value of a quoted one is the text between the quotes, with its
// backslashes.
type param struct {
	name, value string
	quoted      bool
}

// parseMediaType parses a field value. It sorts the parameters by name.
func parseMediaType(value string) mediaType {
	value = trim(value)
	t := mediaType{}
	name, rest, _ := strings.Cut(value, ";")
	t.name = trim(name)
	if top, sub, ok := strings.Cut(t.name, "/"); !ok || !token.Is(top) || !token.Is(sub) {
		return mediaType{verbatim: value}
	}
	for rest != "" {
		rest = trim(rest)
		if rest == "" || rest[0] == ';' {
			rest = strings.TrimPrefix(rest, ";")
			continue
		}
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

// cutParam consumes a parameter and the semicolon after it.
func cutParam(s string) (p param, rest string, ok bool) {
	if p.name, s, ok = strings.Cut(s, "="); !ok || !token.Is(p.name) {
		return p, "", false
	}
	if p.quoted = strings.HasPrefix(s, `"`); p.quoted {
		end := 1
		for end < len(s) && s[end] != '"' {
			if s[end] == '\\' {
				end++
			}
			end++
		}
		if end >= len(s) {
			return p, "", false
		}
		p.value, s = s[1:end], trim(s[end+1:])
		return p, strings.TrimPrefix(s, ";"), s == "" || s[0] == ';'
	}
	p.value, rest, _ = strings.Cut(s, ";")
	p.value = strings.TrimRight(p.value, " \t")
	return p, rest, token.Is(p.value)
}

// appendTo appends the canonical spelling: names in lower case, parameters quoted and in the
// order of their names, no white space. It leaves out the parameter named omit.
//
// The canonical spelling is itself well-formed, so it never equals a malformed value.
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
		dst = p.appendValue(dst)
		if strings.EqualFold(p.name, "charset") {
			// RFC 9110, section 8.3.2: names of charsets are not case-sensitive.
			toLower(dst[start:])
		}
		dst = append(dst, '"')
	}
	return dst
}

// appendValue appends the value, with backslashes only where it needs them.
func (p *param) appendValue(dst []byte) []byte {
	if !p.quoted || strings.IndexByte(p.value, '\\') < 0 {
		return append(dst, p.value...)
	}
	for i := 0; i < len(p.value); i++ {
		if p.value[i] == '\\' {
			i++
		}
		if c := p.value[i]; c == '"' || c == '\\' {
			dst = append(dst, '\\')
		}
		dst = append(dst, p.value[i])
	}
	return dst
}

// isJSON reports whether the type is application/json or has the suffix +json.
func (t *mediaType) isJSON() bool {
	const suffix = "+json"
	return strings.EqualFold(t.name, "application/json") ||
		len(t.name) > len(suffix) && strings.EqualFold(t.name[len(t.name)-len(suffix):], suffix)
}

// boundary returns the boundary of a form in multipart/form-data, or "" if there is no usable one.
// Other multipart types are not forms that clients build anew for each attempt.
//
// A parameter with an asterisk in its name is encoded or continued as RFC 2231 says. It may stand
// for one without: the parser of net/http takes boundary* in place of boundary.
func (t *mediaType) boundary() (boundary string) {
	if !strings.EqualFold(t.name, "multipart/form-data") {
		return ""
	}
	for _, p := range t.params[:t.n] {
		switch {
		case strings.Contains(p.name, "*"):
			return ""
		case strings.EqualFold(p.name, boundaryParam) && isBoundary(p.value):
			boundary = p.value
		}
	}
	return boundary
}

const boundaryParam = "boundary"

// isBoundary reports whether s has the length of a boundary (RFC 2046, section 5.1.1) and
// consists of visible characters that mean the same with and without quotes.
func isBoundary(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7F || c == '"' || c == '\\' {
			return false
		}
	}
	return 1 <= len(s) && len(s) <= 70
}

// appendCodings appends the content codings (RFC 9110, section 8.4) in lower case and without
// white space. It leaves out the identity coding, which changes nothing.
func appendCodings(dst []byte, value string) []byte {
	start := len(dst)
	for coding := range strings.SplitSeq(value, ",") {
		coding = trim(coding)
		if coding == "" || strings.EqualFold(coding, "identity") {
			continue
		}
		if len(dst) > start {
			dst = append(dst, ',')
		}
		dst = appendLower(dst, coding)
	}
	return dst
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
