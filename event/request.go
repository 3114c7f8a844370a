package event

import "strings"

// RequestParts is a set of parts of a request.
type RequestParts uint8

// Names returns the names of the parts in the set: method, path, query, content-type, body.
func (p RequestParts) Names() []string {
	var names []string
	for i, name := range partNames {
		if p&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// String returns the names of the parts, separated by commas.
func (p RequestParts) String() string { return strings.Join(p.Names(), ",") }

// The parts of a request, as idempotency.RawFingerprint counts them.
const (
	PartMethod RequestParts = 1 << iota
	PartPath
	PartQuery
	// PartContentType includes Content-Encoding.
	PartContentType
	PartBody
)

var partNames = [...]string{"method", "path", "query", "content-type", "body"}
