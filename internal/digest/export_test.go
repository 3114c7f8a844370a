package digest

import "hash"

// A recorder stands in for SHA-256 and keeps what it is given.
type recorder struct {
	hash.Hash
	written []byte
}

func (r *recorder) Write(p []byte) (int, error) {
	r.written = append(r.written, p...)
	return len(p), nil
}

func (r *recorder) Sum(b []byte) []byte { return b }

func preimage(hash func(*hasher)) []byte {
	r := &recorder{}
	hash(&hasher{sha: r})
	return r.written
}

// RawPreimage returns what Raw hashes.
func RawPreimage(r *Request) []byte {
	t := parseMediaType(r.ContentType)
	return preimage(func(h *hasher) { h.raw(VersionRaw, r, &t) })
}

// JSONPreimage returns what JSON hashes.
func JSONPreimage(r *Request) []byte {
	return preimage(func(h *hasher) { h.json(r) })
}

// FieldsPreimage returns what f.Fingerprint hashes.
func FieldsPreimage(f *Fields, r *Request) []byte {
	return preimage(func(h *hasher) { h.fields(r, f) })
}

// NormalizeType returns the canonical spelling of a Content-Type, and whether it is
// well-formed.
func NormalizeType(value string) (string, bool) {
	t := parseMediaType(value)
	return string(t.appendTo(nil, "")), t.verbatim == "" && t.name != ""
}

// ParseType returns what this package reads in a Content-Type, in the form of
// mime.ParseMediaType, and whether it reads the value at all.
func ParseType(value string) (name string, params map[string]string, ok bool) {
	t := parseMediaType(value)
	params = make(map[string]string)
	for _, p := range t.params[:t.n] {
		params[string(appendLower(nil, p.name))] = p.value
	}
	return string(appendLower(nil, t.name)), params, t.verbatim == "" && t.name != ""
}

// Boundary returns the boundary in a Content-Type, or "" if there is no usable one.
func Boundary(value string) string {
	t := parseMediaType(value)
	return t.boundary()
}
