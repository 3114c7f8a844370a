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

// takeTrailers collects the trailer that the handler has set by the time it returns: the announced
// names, and those set with http.TrailerPrefix. The values become independent of the handler's, so
// what is recorded is what is sent. A name that was in the header and is gone has no values: the
// trailer must not repeat those of the header.
func (rec *Recorder) takeTrailers() {
	var trailers []Field
	for _, name := range rec.diff.trailer {
		if values, ok := rec.header[name]; ok || len(rec.values(name)) > 0 {
			trailers = append(trailers, Field{Name: name, Values: slices.Clone(values)})
		}
	}
	for name, values := range rec.header {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			trailers = append(trailers, Field{Name: name, Values: slices.Clone(values)})
		}
	}
	if trailers == nil {
		return
	}
	if rec.rare == nil {
		rec.rare = new(rareParts)
	}
	rec.rare.trailers = trailers
	if rec.rare.written != nil {
		for _, f := range trailers {
			if f.Values == nil {
				continue // the header has some
			}
			rec.rare.written[f.Name] = slices.Clone(f.Values)
		}
	}
}

// trailer returns the trailer under its own names. All of it is sent, and not all is recorded.
func (rec *Recorder) trailer(recorded bool) []Field {
	if rec.rare == nil {
		return nil
	}
	var fields []Field
	for _, f := range rec.rare.trailers {
		if plain, ok := strings.CutPrefix(f.Name, http.TrailerPrefix); ok {
			f.Name = textproto.CanonicalMIMEHeaderKey(plain)
		}
		if !recorded || rec.diff.rules.record(f.Name) {
			fields = append(fields, f)
		}
	}
	return fields
}
