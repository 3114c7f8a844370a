package response

import (
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// Which header fields belong to an answer: what the handler changed, less what must not be
// repeated.

// A headerDiff is what a handler did to the header it was given.
type headerDiff struct {
	recorded []Field  // set or changed: kept with the answer
	live     []Field  // set or changed, for the first answer only
	trailer  []string // names announced in the field Trailer
}

// diffHeader compares the header as the handler leaves it with what outer handlers had set
// before it ran. Only the difference belongs to the answer: outer handlers set their CORS,
// request-id and tracing fields anew for each request. The handler has not seen the field
// echo and so cannot have removed it.
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
		f := Field{Name: name, Values: values}
		if isRecorded(name) && !nominated(dropped, name) {
			d.recorded = append(d.recorded, f)
		} else {
			d.live = append(d.live, f)
		}
	}
	for name := range before {
		if _, ok := after[name]; !ok && name != echo {
			d.recorded = append(d.recorded, Field{Name: name})
		}
	}
}

// Recorded returns the fields of h that a replay may repeat, sorted by name.
func Recorded(h http.Header) []Field {
	var d headerDiff
	diffHeader(nil, h, "", &d)
	slices.SortFunc(d.recorded, func(f, g Field) int { return strings.Compare(f.Name, g.Name) })
	return d.recorded
}

// isRecorded reports whether a field of a first answer belongs to its replay. Fields that
// describe the connection, the moment or the length are made anew. Fields that give rights
// to the client that receives them are left out, however the handler spells their names.
func isRecorded(name string) bool {
	switch textproto.CanonicalMIMEHeaderKey(name) {
	case "Connection", "Keep-Alive", "Proxy-Connection", "Te", "Transfer-Encoding", "Upgrade",
		"Date", "Content-Length",
		"Set-Cookie", "Set-Cookie2", "Authorization", "Www-Authenticate", "Authentication-Info",
		"Proxy-Authenticate", "Proxy-Authorization", "Proxy-Authentication-Info",
		ReplayedHeader:
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
