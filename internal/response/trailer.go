package response

import (
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// Trailers: how they are announced, collected when the handler returns, and sent.

// trailerNames splits the values of the field Trailer. It leaves out the names that RFC 9110
// section 6.5.1 forbids there and that net/http ignores.
func trailerNames(lines []string) []string {
	var names []string
	for _, line := range lines {
		for name := range strings.SplitSeq(line, ",") {
			name = textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(name))
			switch name {
			case "", "Transfer-Encoding", "Content-Length", "Trailer":
			default:
				names = append(names, name)
			}
		}
	}
	return names
}

// announce adds names to the field Trailer, which net/http needs before the body. Outer
// handlers may have announced some of them already, and net/http would send a name that is
// there twice two times.
func announce(h http.Header, names []string) {
	for _, name := range names {
		if !slices.Contains(trailerNames(h["Trailer"]), name) {
			h.Add("Trailer", name)
		}
	}
}

func fieldNames(fields []Field) []string {
	names := make([]string, 0, len(fields))
	for _, f := range fields {
		names = append(names, f.Name)
	}
	return names
}

// trailer collects the trailer that the handler has set by the time it returns: the announced
// names, and those set with http.TrailerPrefix. All of it is sent, and not all is recorded.
func (rec *Recorder) trailer(recorded bool) []Field {
	var fields []Field
	add := func(name string, values []string) {
		if !recorded || rec.diff.rules.record(name) {
			fields = append(fields, Field{Name: name, Values: values})
		}
	}
	for _, name := range rec.diff.trailer {
		if values, ok := rec.header[name]; ok {
			add(name, values)
		}
	}
	for name, values := range rec.header {
		if plain, ok := strings.CutPrefix(name, http.TrailerPrefix); ok {
			add(textproto.CanonicalMIMEHeaderKey(plain), values)
		}
	}
	return fields
}
