package idempotency

import (
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// A headerDiff is what a handler did to the header it was given.
type headerDiff struct {
	recorded []field  // set or changed: kept with the answer
	live     []field  // set or changed, for the first answer only
	trailer  []string // names announced in the field Trailer
}

// diffHeader compares the header as the handler leaves it with what outer handlers
// had set before it ran. Only the difference belongs to the answer: CORS, request-id
// and tracing fields of outer handlers are made anew for each request. The field echo
// was not shown to the handler, so that it cannot have removed it.
func diffHeader(before, after http.Header, echo string, d *headerDiff) {
	dropped := after["Connection"]
	d.trailer = trailerNames(after["Trailer"])
	for name, values := range after {
		if slices.Equal(values, before[name]) {
			if _, ok := before[name]; ok {
				continue
			}
		}
		if strings.HasPrefix(name, http.TrailerPrefix) || name == "Trailer" || slices.Contains(d.trailer, name) {
			continue
		}
		f := field{name: name, values: values}
		if isRecorded(name) && !nominated(dropped, name) {
			d.recorded = append(d.recorded, f)
		} else {
			d.live = append(d.live, f)
		}
	}
	for name := range before {
		if _, ok := after[name]; !ok && name != echo {
			d.recorded = append(d.recorded, field{name: name})
		}
	}
}

// isRecorded reports whether a field of a first answer belongs to its replay. Left
// out are what describes the connection, the moment or the length, which are made
// anew, and what gives rights to whoever receives it, however the handler spells it.
func isRecorded(name string) bool {
	switch textproto.CanonicalMIMEHeaderKey(name) {
	case "Connection", "Keep-Alive", "Proxy-Connection", "Te", "Transfer-Encoding", "Upgrade",
		"Date", "Content-Length",
		"Set-Cookie", "Set-Cookie2", "Authorization", "Www-Authenticate", "Authentication-Info",
		"Proxy-Authenticate", "Proxy-Authorization", "Proxy-Authentication-Info",
		replayedHeader:
		return false
	}
	return true
}

// nominated reports whether a Connection field makes name hop-by-hop
// (RFC 9110 section 7.6.1).
func nominated(connection []string, name string) bool {
	for _, line := range connection {
		for option := range strings.SplitSeq(line, ",") {
			if textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(option)) == name {
				return true
			}
		}
	}
	return false
}

// trailerNames splits the values of the field Trailer, leaving out the names that
// RFC 9110 section 6.5.1 forbids there and net/http ignores.
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

// announce adds to the names that the field Trailer announces, which net/http needs
// before the body. Outer handlers may have announced some of their own; a name that
// stood there twice would be sent twice.
func announce(h http.Header, names []string) {
	for _, name := range names {
		if !slices.Contains(trailerNames(h["Trailer"]), name) {
			h.Add("Trailer", name)
		}
	}
}

func fieldNames(fields []field) []string {
	names := make([]string, 0, len(fields))
	for _, f := range fields {
		names = append(names, f.name)
	}
	return names
}

// trailerFields collects the trailer that a handler has set by the time it returns:
// the announced names, and those set with http.TrailerPrefix.
func trailerFields(h http.Header, announced []string) []field {
	var fields []field
	for _, name := range announced {
		if values, ok := h[name]; ok {
			fields = append(fields, field{name: name, values: values})
		}
	}
	for name, values := range h {
		if plain, ok := strings.CutPrefix(name, http.TrailerPrefix); ok {
			fields = append(fields, field{name: textproto.CanonicalMIMEHeaderKey(plain), values: values})
		}
	}
	return fields
}
