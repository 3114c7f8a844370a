package response

import (
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"example.com/idempotency/internal/answer"
)

// How fields are put into the header of an answer, and how trailers are announced there.

// setField sets a field for this answer alone. Its values replace those of outer handlers:
// adding them would send equal ones twice.
func setField(h http.Header, f answer.Field) {
	if len(f.Values) == 0 {
		h[f.Name] = nil
		return
	}
	h[f.Name] = f.Values
}

// addField puts values behind those of outer handlers.
func addField(h http.Header, f answer.Field) { h[f.Name] = append(slices.Clip(h[f.Name]), f.Values...) }

// Value returns the values of a field that has one. The slice is the caller's own, as those of
// [answer.Space.Value] are.
func Value(v string) []string {
	s := answer.NewSpace()
	defer s.Free()
	return s.Value(v)
}

// trailerNames splits the values of the field Trailer, and returns each name once. It leaves out the
// names that RFC 9110 section 6.5.1 forbids there and that net/http ignores.
func trailerNames(lines []string) (names []string) {
	if len(lines) == 0 {
		return nil
	}
	known := make(answer.Names)
	for _, line := range lines {
		for name := range strings.SplitSeq(line, ",") {
			name = textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(name))
			switch name {
			case "", "Transfer-Encoding", "Content-Length", "Trailer":
			default:
				if known.Add(name) {
					names = append(names, name)
				}
			}
		}
	}
	return names
}

// announce adds names to the field Trailer, which net/http needs before the body. Outer
// handlers may have announced some of them already, and net/http would send a name that is
// there twice two times.
func announce(h http.Header, names []string) {
	if len(names) == 0 {
		return
	}
	known := make(answer.Names, len(names))
	for _, name := range trailerNames(h["Trailer"]) {
		known.Add(name)
	}
	for _, name := range names {
		if known.Add(name) {
			h["Trailer"] = append(h["Trailer"], name)
		}
	}
}

func fieldNames(fields []answer.Field) []string {
	names := make([]string, 0, len(fields))
	for _, f := range fields {
		names = append(names, f.Name)
	}
	return names
}
